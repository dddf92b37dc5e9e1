// Element types of activations: fp32, binary16 and bfloat16, chosen by a define, computed in fp32.
#pragma once
#include "ptx.cuh"

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(f16 x) { return f16_to_f32(x.bits); }
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

__device__ __forceinline__ void store_as(float* to, float x) { *to = x; }
__device__ __forceinline__ void store_as(f16* to, float x) { to->bits = f32_to_f16(x); }
__device__ __forceinline__ void store_as(bf16* to, float x) { to->bits = (u16)pack_bf16(x, 0.0f); }
__device__ __forceinline__ void store_as(s8* to, float x) { *to = f32_to_s8(x); }

// Both halves of a register as floats, and back.
__device__ __forceinline__ float2 unpack(f16, u32 x) { return make_float2(f16_to_f32((u16)x), f16_to_f32((u16)(x >> 16))); }
__device__ __forceinline__ float2 unpack(bf16, u32 x) { return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)); }
__device__ __forceinline__ u32 pack(f16, float lo, float hi) { return pack_f16(lo, hi); }
__device__ __forceinline__ u32 pack(bf16, float lo, float hi) { return pack_bf16(lo, hi); }
