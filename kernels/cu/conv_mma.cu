// Convolution on the tensor cores by mma.sync: fp16 and bf16 in steps of 16, fp32 rounded to TF32 in steps of 8 (32 bytes
// either way), fp32 sums in the order r, s, c whatever the tile. Also a matrix product with constant weights: a 1x1 filter.
// Defines beside those of conv.cuh: WARPS_N (warps side by side along n), BLOCKS (of this kernel on a multiprocessor, at
// least).
//
// Registers a thread (sm_80, sm_90a, sm_120a; fp16 3x3 with residual) and shared memory a block, none spilled:
//   BLOCK_M x BLOCK_N   128x128     256x64      128x64      128x32      64x64       64x32       32x32
//   registers           250 248 252 254 254 255 164 166 168 112 118 124 122 124 128 96 94 96    63 64 70
//   KiB                 64          80          48          40          64          60          48
// At the 62 % of the tensor cores' rate that mma.sync is said to reach on Hopper a warp's 64 x 64 take nearly all of the 128
// bytes a clock of shared memory; smaller shares are bound by it.
#include "conv.cuh"

constexpr int kWarpM = BLOCK_M / (THREADS / 32 / WARPS_N), kWarpN = BLOCK_N / WARPS_N;
constexpr int kRows = kWarpM / 16, kColumns = kWarpN / 8, kSlices = ROW_BYTES / 32;
static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "whole fragments");

__device__ __forceinline__ void mma(f16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_f16(d, a, b); }
__device__ __forceinline__ void mma(bf16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_bf16(d, a, b); }
__device__ __forceinline__ void mma(float, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) { mma_tf32(d, a, b); }

// A warp's operands for a slice of 32 bytes along the depth.
struct Fragments {
  u32 a[kRows][4], b[kColumns][2];
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    conv_mma(const TYPE* __restrict__ x, const TYPE* __restrict__ w, const float* __restrict__ bias,
             const TYPE* __restrict__ residual, TYPE* __restrict__ y, int pixels) {
  DYNAMIC_SMEM(smem);
  // Tiles of the same pixels one after another: their x is in the cache.
  const int first_pixel = blockIdx.x / kColumnTiles * BLOCK_M, first_feature = blockIdx.x % kColumnTiles * BLOCK_N;
  const int group = blockIdx.z;

  const Filters filters(w, first_feature, group);
  for (int step = 0; step < STAGES - 1 && step < kSteps; ++step) {
    filters.load(smem + step * kStageBytes + kTileBytes, step);
  }
  const Windows windows(first_pixel, pixels, group);
  wait_for_predecessor();
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < kSteps) windows.load(smem + step * kStageBytes, x, step);
    cp_async_commit();
  }

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / WARPS_N * kWarpM, column = warp % WARPS_N * kWarpN;
  // Rows and units that this lane names to ldmatrix: of x rows 0..15 and units 0, 1; of w rows 0..7, 8..15 with both units.
  const int a_row = row + lane % 16, b_row = column + (lane & 7) + (lane >> 4) * 8;
  const int a_first = a_row * ROW_BYTES, a_unit = lane >> 4 ^ spread(a_row);
  const int b_first = kTileBytes + b_row * ROW_BYTES, b_unit = (lane >> 3 & 1) ^ spread(b_row);

  float sums[kRows][kColumns][4] = {};
  Fragments fragments[2];
  const auto read = [&](Fragments& to, const unsigned char* stage, int slice) {
    const unsigned char* a = stage + a_first + ((a_unit ^ slice * 2) << 4);
    const unsigned char* b = stage + b_first + ((b_unit ^ slice * 2) << 4);
#pragma unroll
    for (int i = 0; i < kRows; ++i) ldmatrix_x4(to.a[i], smem_address(a + i * 16 * ROW_BYTES));
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      u32 pair[4];
      ldmatrix_x4(pair, smem_address(b + j * 8 * ROW_BYTES));
      to.b[j][0] = pair[0], to.b[j][1] = pair[1], to.b[j + 1][0] = pair[2], to.b[j + 1][1] = pair[3];
    }
    if (kElement == 4) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) to.a[i][e] = to_tf32(__uint_as_float(to.a[i][e]));
      }
    }
  };

  cp_async_wait<STAGES - 2>();
  __syncthreads();
  read(fragments[0], smem, 0);
  int stage = 0, free = (STAGES - 1) * kStageBytes;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      if (slice == kSlices - 1) {
        // The next stage has arrived, and all warps have read this one to its end.
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        stage = stage == (STAGES - 1) * kStageBytes ? 0 : stage + kStageBytes;
      }
      read(fragments[(slice + 1) % 2], smem + stage, (slice + 1) % kSlices);
      if (slice == 0) {
        if (step + STAGES - 1 < kSteps) {
          windows.load(smem + free, x, step + STAGES - 1);
          filters.load(smem + free + kTileBytes, step + STAGES - 1);
        }
        cp_async_commit();
        free = free == (STAGES - 1) * kStageBytes ? 0 : free + kStageBytes;
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) mma(TYPE(), sums[i][j], fragments[slice % 2].a[i], fragments[slice % 2].b[j]);
      }
    }
  }
  launch_dependents();

  // The sums take the stages' place: no copy may be under way, no warp reading.
  cp_async_wait<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = row + i * 16 + half * 8 + lane / 4;
        float2* to = (float2*)staged(smem, at, column / 8 + j, lane % 4 / 2) + lane % 2;
        *to = make_float2(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
      }
    }
  }
  __syncthreads();
  store(smem, bias, residual, y, first_pixel, pixels, first_feature, group);
}
