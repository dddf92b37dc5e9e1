// The functions of kernels/cu/ptx.cuh for the emulator: the same names and meanings, without PTX.
#pragma once

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define DYNAMIC_SMEM(name) unsigned char* const name = emulator::machine->dynamic_smem()

__device__ __forceinline__ u32 smem_address(const void* p) { return emulator::machine->smem_address(p); }

__device__ __forceinline__ void cp_async_16(u32 to, const void* from, u32 bytes) { emulator::machine->copy_async(to, from, 16, bytes); }
__device__ __forceinline__ void cp_async_8(u32 to, const void* from, u32 bytes) { emulator::machine->copy_async(to, from, 8, bytes); }
__device__ __forceinline__ void cp_async_4(u32 to, const void* from, u32 bytes) { emulator::machine->copy_async(to, from, 4, bytes); }
__device__ __forceinline__ void cp_async_commit() { emulator::machine->copy_commit(); }
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  emulator::machine->copy_wait(N);
}

namespace emulator {
inline void ldmatrix(Collective kind, u32 (&r)[4], u32 row) {
  LdmatrixOperand operand = {row, {}};
  machine->collective(kind, 0xffffffffu, &operand);
  for (int i = 0; i < 4; ++i) r[i] = operand.matrix[i];
}
template <class Sum>
inline void mma(Collective kind, Sum (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  MmaOperand operand = {a, b, d};
  machine->collective(kind, 0xffffffffu, &operand);
}
}  // namespace emulator

__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 row) { emulator::ldmatrix(emulator::kLdmatrix, r, row); }
__device__ __forceinline__ void ldmatrix_x4_trans(u32 (&r)[4], u32 row) { emulator::ldmatrix(emulator::kLdmatrixTrans, r, row); }
__device__ __forceinline__ void mma_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { emulator::mma(emulator::kMmaF16, d, a, b); }
__device__ __forceinline__ void mma_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { emulator::mma(emulator::kMmaBf16, d, a, b); }
__device__ __forceinline__ void mma_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { emulator::mma(emulator::kMmaTf32, d, a, b); }
__device__ __forceinline__ void mma_s8_u8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { emulator::mma(emulator::kMmaS8U8, d, a, b); }

namespace emulator {
inline u32 saturate_u8(int x) { return x < 0 ? 0 : x > 255 ? 255 : x; }
}  // namespace emulator

__device__ __forceinline__ u32 pack_u8(int b0, int b1, u32 upper) {
  return emulator::saturate_u8(b0) | emulator::saturate_u8(b1) << 8 | upper << 16;
}

__device__ __forceinline__ u32 dot_2_low(u32 a, u32 b, u32 c) { return c + (a & 0xffff) * (b & 255) + (a >> 16) * (b >> 8 & 255); }
__device__ __forceinline__ u32 dot_2_high(u32 a, u32 b, u32 c) { return dot_2_low(a, b >> 16, c); }

__device__ __forceinline__ int cut_u8(int x) { return (int)emulator::saturate_u8(x); }
__device__ __forceinline__ u32 add_cut_u8x2(u32 a, u32 b) {
  using emulator::saturate_u8;
  return saturate_u8((short)(a + b)) | saturate_u8((short)((a >> 16) + (b >> 16))) << 16;
}

__device__ __forceinline__ s8 f32_to_s8(float x) {
  const float r = __builtin_rintf(x);
  return (s8)(r < -128.0f ? -128.0f : r > 127.0f ? 127.0f : r);
}

__device__ __forceinline__ void prefetch(const void*) {}

__device__ __forceinline__ u32 permute_bytes(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }

// Half of the last kept bit is added to the magnitude; infinities and NaN stay.
__device__ __forceinline__ u32 to_tf32(float x) {
  const u32 bits = __float_as_uint(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & ~0x1fffu;
}

__device__ __forceinline__ float f16_to_f32(u16 x) { return emulator::f16_to_f32(x); }
__device__ __forceinline__ u16 f32_to_f16(float x) { return emulator::round_to_f16(x); }
__device__ __forceinline__ u32 pack_f16(float lo, float hi) { return f32_to_f16(lo) | (u32)f32_to_f16(hi) << 16; }

namespace emulator {
inline u32 round_to_bf16(float x) {
  const u32 bits = __float_as_uint(x);
  if (x != x) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
}
// The exact a b + c rounded once: the product is exact in double, and a sum rounded to odd keeps what decides a tie.
inline u16 fma_f16(u16 a, u16 b, u16 c) {
  const double product = (double)f16_to_f32(a) * (double)f16_to_f32(b), addend = f16_to_f32(c);
  double sum = product + addend;
  const double virtual_addend = sum - product;
  const double error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
  u64 bits;
  __builtin_memcpy(&bits, &sum, 8);
  if (error != 0.0 && error == error && !(bits & 1)) {
    bits += (error > 0.0) == (sum > 0.0) ? 1 : -1;
    __builtin_memcpy(&sum, &bits, 8);
  }
  return round_to_f16(sum);
}
}  // namespace emulator

__device__ __forceinline__ u32 pack_bf16(float lo, float hi) { return emulator::round_to_bf16(lo) | emulator::round_to_bf16(hi) << 16; }
__device__ __forceinline__ u32 fma_f16x2(u32 a, u32 b, u32 c) {
  const u32 lo = emulator::fma_f16((u16)a, (u16)b, (u16)c);
  const u32 hi = emulator::fma_f16((u16)(a >> 16), (u16)(b >> 16), (u16)(c >> 16));
  return lo | hi << 16;
}

__device__ __forceinline__ float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ u32 shuffle_xor(u32 x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ u32 shuffle(u32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

__device__ __forceinline__ float maximum(float a, float b) { return a != a || b != b ? __builtin_nanf("") : a > b ? a : b; }
__device__ __forceinline__ float minimum(float a, float b) { return a != a || b != b ? __builtin_nanf("") : a < b ? a : b; }

__device__ __forceinline__ uint4 load_streaming(const uint4* p) { return __ldcs(p); }

__device__ __forceinline__ void launch_dependents() {}
__device__ __forceinline__ void wait_for_predecessor() {}
