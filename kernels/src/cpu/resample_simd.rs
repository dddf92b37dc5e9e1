//! The inner loops of [`super::resample`] in AVX2 and AVX-512 instructions. Left to the compiler, the AVX2 code comes
//! out erratic: up to 2.4 times slower than this.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512, flip};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_packus_epi16, _mm_srli_si128, _mm_storeu_si128,
        _mm_unpackhi_epi8, _mm_unpacklo_epi8, _mm256_add_epi32, _mm256_castsi256_si128, _mm256_cvtepu8_epi32,
        _mm256_extracti128_si256, _mm256_mullo_epi32, _mm256_packs_epi32, _mm256_permute4x64_epi64, _mm256_set1_epi32,
        _mm256_srai_epi32, _mm512_add_epi32, _mm512_cvtepu8_epi32, _mm512_cvtusepi32_epi8, _mm512_max_epi32,
        _mm512_mullo_epi32, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_srai_epi32,
    };

    use super::super::resample::{Column, HALF, Lanes, Plain};
    use crate::preprocess::weights::PRECISION;

    /// Proof that the CPU has AVX2.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(());

    /// Proof that the CPU has AVX-512 F, which includes AVX2.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512(());

    impl Avx2 {
        pub(in super::super) fn detect() -> Option<Self> {
            is_x86_feature_detected!("avx2").then_some(Self(()))
        }
    }

    impl Avx512 {
        pub(in super::super) fn detect() -> Option<Self> {
            is_x86_feature_detected!("avx512f").then_some(Self(()))
        }
    }

    impl Lanes for Avx2 {
        #[inline(always)]
        fn sum_pixels(self, weights: &[i32], columns: &[Column], out: &mut [Column; 3]) {
            // SAFETY: `self` exists only where the CPU has AVX2.
            unsafe { sum_pixels_avx2(weights, columns, out) }
        }

        #[inline(always)]
        fn sum_rows(self, weights: &[i32], rows: &[u8], stride: usize, out: &mut [u8]) {
            // SAFETY: `self` exists only where the CPU has AVX2.
            unsafe { sum_rows_avx2(weights, rows, stride, out) }
        }
    }

    impl Lanes for Avx512 {
        #[inline(always)]
        fn sum_pixels(self, weights: &[i32], columns: &[Column], out: &mut [Column; 3]) {
            // SAFETY: `self` exists only where the CPU has AVX-512 F.
            unsafe { sum_pixels_avx512(weights, columns, out) }
        }

        #[inline(always)]
        fn sum_rows(self, weights: &[i32], rows: &[u8], stride: usize, out: &mut [u8]) {
            // SAFETY: `self` exists only where the CPU has AVX-512 F.
            unsafe { sum_rows_avx512(weights, rows, stride, out) }
        }
    }

    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are readable; the load needs no alignment, and every x86_64 CPU has it.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(bytes: &mut [u8; 16], v: __m128i) {
        // SAFETY: 16 bytes are writable; the store needs no alignment, and every x86_64 CPU has it.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), v) }
    }

    /// The square transposed, in SSE2 instructions, which every `x86_64` CPU has. Interleaving rows i and i + 8 rotates the
    /// eight bits of an element's row and column by one; four times swap both.
    pub(in super::super) fn flip(square: &[Column; 16]) -> [Column; 16] {
        // SAFETY: every x86_64 CPU has SSE2.
        unsafe { flip_sse2(square) }
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn flip_sse2(square: &[Column; 16]) -> [Column; 16] {
        let mut rows = square.each_ref().map(load);
        for _ in 0..4 {
            let before = rows;
            for i in 0..8 {
                rows[2 * i] = _mm_unpacklo_epi8(before[i], before[i + 8]);
                rows[2 * i + 1] = _mm_unpackhi_epi8(before[i], before[i + 8]);
            }
        }
        let mut flipped = [[0; 16]; 16];
        flipped.iter_mut().zip(rows).for_each(|(bytes, row)| store(bytes, row));
        flipped
    }

    /// Sums of 16 samples.
    type Sums256 = [__m256i; 2];

    #[target_feature(enable = "avx2")]
    #[inline]
    fn add_256(sums: &mut Sums256, weight: __m256i, samples: __m128i) {
        let halves = [_mm256_cvtepu8_epi32(samples), _mm256_cvtepu8_epi32(_mm_srli_si128::<8>(samples))];
        for (sum, half) in sums.iter_mut().zip(halves) {
            *sum = _mm256_add_epi32(*sum, _mm256_mullo_epi32(weight, half));
        }
    }

    /// The sums as samples: shifted, saturated.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn samples_256(sums: Sums256) -> __m128i {
        let [low, high] =
            [_mm256_srai_epi32::<{ PRECISION as i32 }>(sums[0]), _mm256_srai_epi32::<{ PRECISION as i32 }>(sums[1])];
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
    }

    #[target_feature(enable = "avx2")]
    fn sum_pixels_avx2(weights: &[i32], columns: &[Column], out: &mut [Column; 3]) {
        let half = _mm256_set1_epi32(HALF);
        let [mut red, mut green, mut blue] = [[half; 2]; 3];
        for (&weight, [r, g, b]) in weights.iter().zip(columns.as_chunks::<3>().0) {
            let weight = _mm256_set1_epi32(weight);
            add_256(&mut red, weight, load(r));
            add_256(&mut green, weight, load(g));
            add_256(&mut blue, weight, load(b));
        }
        let [r, g, b] = out;
        store(r, samples_256(red));
        store(g, samples_256(green));
        store(b, samples_256(blue));
    }

    #[target_feature(enable = "avx2")]
    fn sum_rows_avx2(weights: &[i32], rows: &[u8], stride: usize, out: &mut [u8]) {
        const BLOCK: usize = 32;
        let half = _mm256_set1_epi32(HALF);
        let (blocks, tail) = out.as_chunks_mut::<BLOCK>();
        let done = blocks.len() * BLOCK;
        for (i, out) in blocks.iter_mut().enumerate() {
            let [mut left, mut right] = [[half; 2]; 2];
            for (row, &weight) in weights.iter().enumerate() {
                let samples = &rows[row * stride + i * BLOCK..][..BLOCK];
                let weight = _mm256_set1_epi32(weight);
                if let [a, b] = samples.as_chunks::<16>().0 {
                    add_256(&mut left, weight, load(a));
                    add_256(&mut right, weight, load(b));
                }
            }
            if let [a, b] = out.as_chunks_mut::<16>().0 {
                store(a, samples_256(left));
                store(b, samples_256(right));
            }
        }
        if !tail.is_empty() {
            Plain.sum_rows(weights, &rows[done..], stride, tail);
        }
    }

    #[target_feature(enable = "avx512f,avx2")]
    #[inline]
    fn add_512(sums: &mut __m512i, weight: __m512i, samples: __m128i) {
        *sums = _mm512_add_epi32(*sums, _mm512_mullo_epi32(weight, _mm512_cvtepu8_epi32(samples)));
    }

    /// The sums as samples: shifted, saturated.
    #[target_feature(enable = "avx512f,avx2")]
    #[inline]
    fn samples_512(sums: __m512i) -> __m128i {
        let whole = _mm512_srai_epi32::<PRECISION>(sums);
        _mm512_cvtusepi32_epi8(_mm512_max_epi32(whole, _mm512_setzero_si512()))
    }

    #[target_feature(enable = "avx512f,avx2")]
    fn sum_pixels_avx512(weights: &[i32], columns: &[Column], out: &mut [Column; 3]) {
        let [mut red, mut green, mut blue] = [_mm512_set1_epi32(HALF); 3];
        for (&weight, [r, g, b]) in weights.iter().zip(columns.as_chunks::<3>().0) {
            let weight = _mm512_set1_epi32(weight);
            add_512(&mut red, weight, load(r));
            add_512(&mut green, weight, load(g));
            add_512(&mut blue, weight, load(b));
        }
        let [r, g, b] = out;
        store(r, samples_512(red));
        store(g, samples_512(green));
        store(b, samples_512(blue));
    }

    #[target_feature(enable = "avx512f,avx2")]
    fn sum_rows_avx512(weights: &[i32], rows: &[u8], stride: usize, out: &mut [u8]) {
        const BLOCK: usize = 64;
        let (blocks, tail) = out.as_chunks_mut::<BLOCK>();
        let done = blocks.len() * BLOCK;
        for (i, out) in blocks.iter_mut().enumerate() {
            let mut sums = [_mm512_set1_epi32(HALF); 4];
            for (row, &weight) in weights.iter().enumerate() {
                let samples = &rows[row * stride + i * BLOCK..][..BLOCK];
                let weight = _mm512_set1_epi32(weight);
                for (sum, samples) in sums.iter_mut().zip(samples.as_chunks::<16>().0) {
                    add_512(sum, weight, load(samples));
                }
            }
            for (out, sum) in out.as_chunks_mut::<16>().0.iter_mut().zip(sums) {
                store(out, samples_512(sum));
            }
        }
        if !tail.is_empty() {
            Plain.sum_rows(weights, &rows[done..], stride, tail);
        }
    }
}
