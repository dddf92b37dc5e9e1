//! Vectors of f32 for the kernels, one type for each instruction set, and the choice between them.
#![allow(unsafe_code)]

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// AVX-512F: 16 lanes, fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX2 and FMA: 8 lanes, fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Advanced SIMD of `AArch64`: 4 lanes, fused multiply-add. Compiled only: it has not run on such a machine yet.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// What the compiler makes of plain loops: 4 lanes, product and sum rounded apart.
    Plain,
}

impl Isa {
    /// The sets that this machine can run, the fastest first.
    #[allow(clippy::vec_init_then_push, reason = "on AArch64 nothing depends on what the machine has")]
    pub fn available() -> Vec<Self> {
        let mut sets = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") {
                sets.push(Self::Avx512);
            }
            if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                sets.push(Self::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        sets.push(Self::Neon);
        sets.push(Self::Plain);
        sets
    }

    /// The fastest set that this machine can run.
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// f32 values in a vector.
    pub(super) fn lanes(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => <std::arch::x86_64::__m512 as Vector>::LANES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => <std::arch::x86_64::__m256 as Vector>::LANES,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => <std::arch::aarch64::float32x4_t as Vector>::LANES,
            Self::Plain => <[f32; 4] as Vector>::LANES,
        }
    }
}

/// Arithmetic on a vector of `LANES` values.
///
/// # Safety
/// Every method may be called only where the type's instruction set is present, and the caller must be compiled for it
/// (all methods are inlined into it). Pointers must be valid for the lanes that are read or written.
pub(super) trait Vector: Copy {
    /// Values in a vector.
    const LANES: usize;
    /// All lanes `x`.
    unsafe fn splat(x: f32) -> Self;
    /// `LANES` values from `from`.
    unsafe fn load(from: *const f32) -> Self;
    /// `count` < `LANES` values from `from`, the other lanes 0.
    unsafe fn load_partial(from: *const f32, count: usize) -> Self;
    /// All lanes to `to`.
    unsafe fn store(self, to: *mut f32);
    /// The first `count` < `LANES` lanes to `to`.
    unsafe fn store_partial(self, to: *mut f32, count: usize);
    /// self + a b.
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// self + other.
    unsafe fn add(self, other: Self) -> Self;
    /// The larger of self and `bound`; NaN where self is NaN.
    unsafe fn at_least(self, bound: Self) -> Self;
    /// The smaller of self and `bound`; NaN where self is NaN.
    unsafe fn at_most(self, bound: Self) -> Self;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(clippy::wildcard_imports, reason = "intrinsics")]
    use std::arch::x86_64::*;

    use super::Vector;

    // SAFETY (both impls): the intrinsics need the instruction set and valid pointers, which the trait demands of its
    // callers. `max`/`min` return their second operand where one is NaN.
    impl Vector for __m512 {
        const LANES: usize = 16;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn load_partial(from: *const f32, count: usize) -> Self {
            unsafe { _mm512_maskz_loadu_ps((1u16 << count) - 1, from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm512_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn store_partial(self, to: *mut f32, count: usize) {
            unsafe { _mm512_mask_storeu_ps(to, (1u16 << count) - 1, self) }
        }
        #[inline(always)]
        unsafe fn add_product(self, a: Self, b: Self) -> Self {
            unsafe { _mm512_fmadd_ps(a, b, self) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { _mm512_add_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn at_least(self, bound: Self) -> Self {
            unsafe { _mm512_max_ps(bound, self) }
        }
        #[inline(always)]
        unsafe fn at_most(self, bound: Self) -> Self {
            unsafe { _mm512_min_ps(bound, self) }
        }
    }

    /// Lane masks of [`_mm256_maskload_ps`]: entry 8 - n starts n set lanes.
    static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    #[inline(always)]
    unsafe fn mask(count: usize) -> __m256i {
        debug_assert!(count <= 8);
        // SAFETY: 8 entries follow entry 8 - count for every count up to 8.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - count).cast()) }
    }

    impl Vector for __m256 {
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn load_partial(from: *const f32, count: usize) -> Self {
            unsafe { _mm256_maskload_ps(from, mask(count)) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm256_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn store_partial(self, to: *mut f32, count: usize) {
            unsafe { _mm256_maskstore_ps(to, mask(count), self) }
        }
        #[inline(always)]
        unsafe fn add_product(self, a: Self, b: Self) -> Self {
            unsafe { _mm256_fmadd_ps(a, b, self) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { _mm256_add_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn at_least(self, bound: Self) -> Self {
            unsafe { _mm256_max_ps(bound, self) }
        }
        #[inline(always)]
        unsafe fn at_most(self, bound: Self) -> Self {
            unsafe { _mm256_min_ps(bound, self) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    #[allow(clippy::wildcard_imports, reason = "intrinsics")]
    use std::arch::aarch64::*;

    use super::Vector;

    // SAFETY: the intrinsics need valid pointers, which the trait demands of its callers; every AArch64 target has them.
    impl Vector for float32x4_t {
        const LANES: usize = 4;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { vdupq_n_f32(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            unsafe { vld1q_f32(from) }
        }
        #[inline(always)]
        unsafe fn load_partial(from: *const f32, count: usize) -> Self {
            let mut lanes = [0.0f32; 4];
            unsafe {
                std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count);
                vld1q_f32(lanes.as_ptr())
            }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { vst1q_f32(to, self) }
        }
        #[inline(always)]
        unsafe fn store_partial(self, to: *mut f32, count: usize) {
            let mut lanes = [0.0f32; 4];
            unsafe {
                vst1q_f32(lanes.as_mut_ptr(), self);
                std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count);
            }
        }
        #[inline(always)]
        unsafe fn add_product(self, a: Self, b: Self) -> Self {
            unsafe { vfmaq_f32(self, a, b) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { vaddq_f32(self, other) }
        }
        #[inline(always)]
        unsafe fn at_least(self, bound: Self) -> Self {
            unsafe { vmaxq_f32(self, bound) }
        }
        #[inline(always)]
        unsafe fn at_most(self, bound: Self) -> Self {
            unsafe { vminq_f32(self, bound) }
        }
    }
}

// SAFETY: plain loops; the pointers are the caller's.
impl Vector for [f32; 4] {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { from.cast::<Self>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, count: usize) -> Self {
        let mut lanes = [0.0; 4];
        unsafe { std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count) };
        lanes
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, count: usize) {
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), to, count) }
    }
    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        std::array::from_fn(|i| self[i] + a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        std::array::from_fn(|i| self[i] + other[i])
    }
    #[inline(always)]
    unsafe fn at_least(self, bound: Self) -> Self {
        std::array::from_fn(|i| if self[i] < bound[i] { bound[i] } else { self[i] })
    }
    #[inline(always)]
    unsafe fn at_most(self, bound: Self) -> Self {
        std::array::from_fn(|i| if self[i] > bound[i] { bound[i] } else { self[i] })
    }
}
