// The instructions that CUDA C++ without headers cannot say, one function each. Everything else in this folder is plain
// C++17, so that the same text can be compiled for a CPU with another version of this one file.
#pragma once

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// Declares `unsigned char* name`, the block's dynamic shared memory. At most once a kernel.
#define DYNAMIC_SMEM(name) extern __shared__ __align__(1024) unsigned char name[]

// Address of dynamic shared memory, as the functions below take it.
__device__ __forceinline__ u32 smem_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Copies 16 bytes to shared memory in the background; only the first `bytes` (0..16) are read, the rest is zero.
__device__ __forceinline__ void cp_async_16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Copies 4 bytes likewise (0 or 4 are read).
__device__ __forceinline__ void cp_async_4(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Copies 8 bytes likewise (0 or 8 are read).
__device__ __forceinline__ void cp_async_8(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

// Ends a group of copies of this thread.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's groups are under way.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned).
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}

// d += a b for a tile of 16 x 8 x 16, binary16 operands, fp32 sums. Fragments as PTX lays out mma.m16n8k16.
__device__ __forceinline__ void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same with bfloat16 operands.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b for a tile of 16 x 8 x 8 of TF32 operands (fp32 bits, rounded by `to_tf32`). Fragments as mma.m16n8k8.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b for a tile of 16 x 8 x 32, signed bytes times unsigned ones, sums modulo 2^32. Fragments as mma.m16n8k32.
__device__ __forceinline__ void mma_s8_u8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two numbers cut to 0..255, as the lower bytes; the lower half of `upper` is the upper half.
__device__ __forceinline__ u32 pack_u8(int b0, int b1, u32 upper) {
  u32 all;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(b1), "r"(b0), "r"(upper));
  return all;
}

// a1 b1 + a0 b0 + c of the 16-bit numbers a1, a0 and bytes of b, without signs, modulo 2^32: bytes 0 and 1, or 2 and 3.
__device__ __forceinline__ u32 dot_2_low(u32 a, u32 b, u32 c) {
  u32 d;
  asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ u32 dot_2_high(u32 a, u32 b, u32 c) {
  u32 d;
  asm("dp2a.hi.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// A number cut to 0..255.
__device__ __forceinline__ int cut_u8(int x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  int r;
  asm("min.relu.s32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(255));
  return r;
#else
  return x < 0 ? 0 : x > 255 ? 255 : x;
#endif
}

// Sums of two times 16 bits, each with its sign and cut to 0..255.
__device__ __forceinline__ u32 add_cut_u8x2(u32 a, u32 b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  u32 sum, cut;
  asm("add.s16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  asm("min.relu.s16x2 %0, %1, %2;" : "=r"(cut) : "r"(sum), "r"(0x00ff00ffu));
  return cut;
#else
  auto half = [](u32 x, u32 y) { return (u32)cut_u8((int)((x + y) << 16) >> 16); };
  return half(a, b) | half(a >> 16, b >> 16) << 16;
#endif
}

// The nearest whole number, of two the even one, cut to -128..127.
__device__ __forceinline__ s8 f32_to_s8(float x) {
  int r;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(r) : "f"(x));
  return (s8)r;
}

// Asks for 128 bytes to be in the second-level cache soon.
__device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// Bytes of a (0 to 3) and b (4 to 7), chosen by the selector's hexadecimal digits, lowest first.
__device__ __forceinline__ u32 permute_bytes(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }

// Rounds to the 10 mantissa bits of TF32, halves away from zero.
__device__ __forceinline__ u32 to_tf32(float x) {
  u32 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

// binary16, rounded to nearest even, and back.
__device__ __forceinline__ u16 f32_to_f16(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ float f16_to_f32(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}

// Two at once: `lo` in the low half.
__device__ __forceinline__ u32 pack_f16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
__device__ __forceinline__ u32 pack_bf16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

// a b + c on two binary16 values at once, each rounded once.
__device__ __forceinline__ u32 fma_f16x2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// The value of another lane of the warp; all 32 lanes take part.
__device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ u32 shuffle_xor(u32 x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ u32 shuffle(u32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

// The larger and the smaller of two numbers; no number where either is none, unlike fmaxf and fminf.
__device__ __forceinline__ float maximum(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float minimum(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

// 16 bytes that are read once: past the first-level cache.
__device__ __forceinline__ uint4 load_streaming(const uint4* p) { return __ldcs(p); }

// Lets the next kernel of the stream start before this one ends (where it was launched so), and waits for the one before.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
__device__ __forceinline__ void launch_dependents() {}
__device__ __forceinline__ void wait_for_predecessor() {}
#endif
