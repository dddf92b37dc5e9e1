// Kernels of the emulator's own test, one for each thing that it must get right.
#include "ptx.cuh"
#include "twice.cuh"

static_assert(FLAG == 1 && T == 3, "definitions with and without a value");
constexpr int kPair[] = {PAIR(1, 2)};

extern "C" __global__ void __launch_bounds__(256) scale(const float* __restrict__ x, float* __restrict__ y, float factor, int n) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = FACTOR_OF_DEFINE * twice(factor * x[i]);
}

// The launch's coordinates, written where the linear indices say.
extern "C" __global__ void coordinates(uint4* out) {
  const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const u32 thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const u32 threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + thread] = make_uint4(threadIdx.x | threadIdx.y << 10 | threadIdx.z << 20, blockIdx.x, blockIdx.y, blockIdx.z);
}

template <int Kind>
__device__ void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  if (Kind == 0) mma_f16(d, a, b);
  if (Kind == 1) mma_bf16(d, a, b);
  if (Kind == 2) mma_tf32(d, a, b);
}

// A[16][k], B[n = 8][k] as 32-bit words along k, C[16][8]: the fragments are written out once more here.
template <int Kind>
__device__ void mma_tile(const u32* a, const u32* b, float* c) {
  const u32 lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;
  const u32 fa[4] = {a[group * 8 + t], a[(group + 8) * 8 + t], a[group * 8 + t + 4], a[(group + 8) * 8 + t + 4]};
  const u32 fb[2] = {b[group * 8 + t], b[group * 8 + t + 4]};
  float d[4] = {c[group * 8 + 2 * t], c[group * 8 + 2 * t + 1], c[(group + 8) * 8 + 2 * t], c[(group + 8) * 8 + 2 * t + 1]};
  multiply<Kind>(d, fa, fb);
  c[group * 8 + 2 * t] = d[0];
  c[group * 8 + 2 * t + 1] = d[1];
  c[(group + 8) * 8 + 2 * t] = d[2];
  c[(group + 8) * 8 + 2 * t + 1] = d[3];
}
extern "C" __global__ void tile_f16(const u32* a, const u32* b, float* c) { mma_tile<0>(a, b, c); }
extern "C" __global__ void tile_bf16(const u32* a, const u32* b, float* c) { mma_tile<1>(a, b, c); }
extern "C" __global__ void tile_tf32(const u32* a, const u32* b, float* c) { mma_tile<2>(a, b, c); }

// The same with four bytes in each word, and sums of ints.
extern "C" __global__ void tile_s8_u8(const u32* a, const u32* b, int* c) {
  const u32 lane = threadIdx.x % 32, group = lane / 4, t = lane % 4;
  const u32 fa[4] = {a[group * 8 + t], a[(group + 8) * 8 + t], a[group * 8 + t + 4], a[(group + 8) * 8 + t + 4]};
  const u32 fb[2] = {b[group * 8 + t], b[group * 8 + t + 4]};
  int d[4] = {c[group * 8 + 2 * t], c[group * 8 + 2 * t + 1], c[(group + 8) * 8 + 2 * t], c[(group + 8) * 8 + 2 * t + 1]};
  mma_s8_u8(d, fa, fb);
  for (u32 i = 0; i < 4; ++i) c[(group + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

extern "C" __global__ void bytes(const int* x, u32* out) {
  out[0] = pack_u8(x[0], x[1], pack_u8(x[2], x[3], 0));
  out[1] = permute_bytes(0x33221100u, 0x77665544u, 0x7250u);
}

// Four 8x8 matrices, through shared memory, as each lane gets them: out[trans][lane][matrix].
extern "C" __global__ void matrices(const u16* in, u32* out) {
  DYNAMIC_SMEM(smem);
  u16* const staged = (u16*)smem;
  const u32 lane = threadIdx.x;
  for (u32 i = lane; i < 256; i += 32) staged[i] = in[i];
  __syncwarp();
  u32 r[4];
  ldmatrix_x4(r, smem_address(staged + lane * 8));
  for (int m = 0; m < 4; ++m) out[lane * 4 + m] = r[m];
  ldmatrix_x4_trans(r, smem_address(staged + lane * 8));
  for (int m = 0; m < 4; ++m) out[128 + lane * 4 + m] = r[m];
}

// 16 bytes a thread, of which the last thread reads 6; also what is there before the wait.
extern "C" __global__ void copies(const unsigned char* in, unsigned char* out, unsigned char* before, u32 valid) {
  DYNAMIC_SMEM(smem);
  const u32 at = threadIdx.x * 16, bytes = at >= valid ? 0 : min(valid - at, 16u);
  cp_async_16(smem_address(smem + at), in + at, bytes);
  cp_async_commit();
  cp_async_4(smem_address(smem + blockDim.x * 16 + threadIdx.x * 4), in + threadIdx.x * 4, 4);
  cp_async_commit();
  before[threadIdx.x] = smem[at];
  cp_async_wait<1>();
  before[blockDim.x + threadIdx.x] = smem[blockDim.x * 16 + threadIdx.x * 4];
  cp_async_wait<0>();
  __syncthreads();
  // Another thread's copy.
  const u32 other = (threadIdx.x + 1) % blockDim.x;
  for (u32 i = 0; i < 16; ++i) out[other * 16 + i] = smem[other * 16 + i];
  for (u32 i = 0; i < 4; ++i) out[blockDim.x * 16 + other * 4 + i] = smem[blockDim.x * 16 + other * 4 + i];
}

// One line of results for each kind of exchange.
extern "C" __global__ void exchanges(u32* out) {
  const u32 t = threadIdx.x, n = blockDim.x, value = t * t + 1;
  out[0 * n + t] = __shfl_sync(0xffffffffu, value, 3);
  out[1 * n + t] = __shfl_up_sync(0xffffffffu, value, 2);
  out[2 * n + t] = __shfl_down_sync(0xffffffffu, value, 5);
  out[3 * n + t] = __shfl_xor_sync(0xffffffffu, value, 7);
  out[4 * n + t] = __shfl_sync(0xffffffffu, value, 1, 8);
  out[5 * n + t] = __shfl_down_sync(0xffffffffu, value, 3, 8);
  out[6 * n + t] = __ballot_sync(0xffffffffu, t % 3 == 0);
  out[7 * n + t] = (u32)__any_sync(0xffffffffu, t == 5) | (u32)__all_sync(0xffffffffu, t < n) << 1;
  // Both halves of a warp at once, each among itself.
  const u32 half = t % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  out[8 * n + t] = __shfl_xor_sync(half, value, 1);
  out[9 * n + t] = (u32)__syncthreads_count(t % 2 == 0);
  out[10 * n + t] = (u32)__syncthreads_or(t == 1) | (u32)__syncthreads_and(t != 1) << 1;
}

// The sum of each block by a tree in static shared memory, and of all blocks by atomics. Returning lanes leave the others alone.
extern "C" __global__ void sums(const u32* x, u32* block_sums, u32* total, float* float_total, u32* most) {
  __shared__ u32 partial[128];
  const u32 t = threadIdx.x, value = x[blockIdx.x * blockDim.x + t];
  partial[t] = value;
  __syncthreads();
  for (u32 stride = blockDim.x / 2; stride > 0; stride /= 2) {
    if (t < stride) partial[t] += partial[t + stride];
    __syncthreads();
  }
  atomicAdd(float_total, 1.0f);
  atomicMax(most, value);
  if (t != 0) return;
  block_sums[blockIdx.x] = partial[0];
  atomicAdd(total, partial[0]);
}

// What shared memory holds before anything was written to it.
extern "C" __global__ void untouched(u32* out) {
  DYNAMIC_SMEM(smem);
  __shared__ u32 fixed[4];
  out[0] = ((u32*)smem)[0];
  out[1] = fixed[3];
  ((u32*)smem)[0] = fixed[3] = 7;
}

extern "C" __global__ void roundings(const float* x, u32* out, int n) {
  for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
    out[i] = f32_to_f16(x[i]) | (pack_bf16(x[i], 0.0f) & 0xffffu) << 16;
    out[n + i] = to_tf32(x[i]);
    out[2 * n + i] = fma_f16x2(f32_to_f16(x[i]) * 0x10001u, 0x3c013c01u, 0xbc00bc00u);
  }
}

extern "C" __global__ void widen(u32* out) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = __float_as_uint(f16_to_f32((u16)i));
}

// What lies behind an allocation, in each type that a kernel may read it as.
extern "C" __global__ void behind(const float* x, int n, float* out) {
  out[0] = x[n];
  out[1] = f16_to_f32(*(const u16*)(x + n));
  out[2] = __uint_as_float((u32) * (const u16*)(x + n) << 16);
}

__device__ __noinline__ void use_much(float* x, int n) {
  volatile float large[1 << 20];
  large[n] = x[0];
  x[0] = large[n];
}

// How a kernel can fail, by `how`.
extern "C" __global__ void faults(float* x, int how, int n) {
  DYNAMIC_SMEM(smem);
  __shared__ float fixed[8];
  if (how == 0 && threadIdx.x < 3) __syncthreads();
  if (how == 1) x[n] = 1.0f;
  if (how == 2 && threadIdx.x == 1) *(float4*)(x + 1) = make_float4(1, 2, 3, 4);
  if (how == 3) fixed[n] = x[0];
  if (how == 4) smem[n] = 1;
  if (how == 5) cp_async_16(smem_address(smem) + (u32)n, x, 16);
  if (how == 6) *(volatile float*)(8 + (u64)n) = 1.0f;
  if (how == 7) {
    if (threadIdx.x < 16) {
      __shfl_sync(0xffffffffu, 1, 0);
    } else {
      __syncthreads();
    }
  }
  if (how == 8) x[0] = (float)(1 << (n + 28));
  // The first block's OS thread is busy until the other block's meets its fault.
  if (how == 11 && blockIdx.x == 0) {
    while (((volatile float*)x)[0] == 0.0f) {
    }
  }
  if (how == 11 && blockIdx.x == 1) *(volatile float*)(8 + (u64)n) = 1.0f;
  if (how == 10) use_much(x, n);
  if (how == 9) x[0] = (float)(0x7fffffff + n);
}
