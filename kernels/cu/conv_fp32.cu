// Convolution in fp32, one multiplication and addition rounded once after another, in the order r, s, c whatever the tile.
// Also a matrix product with constant weights: a 1x1 filter. Defines beside those of conv.cuh: WARPS_N, BLOCKS as in
// conv_mma.cu.
//
// Registers a thread (sm_80, sm_90a, sm_120a; 3x3 with residual) and shared memory a block, none spilled:
//   BLOCK_M x BLOCK_N   128x64      64x64       32x32
//   registers           254 252 254 130 130 128 94 94 96
//   KiB                 48          32          16
#include "conv.cuh"

// A warp's lanes stand 4 x 8 and take every fourth row and every eighth column of its tile: what they read at once lies in
// different banks.
constexpr int kWarpM = BLOCK_M / (THREADS / 32 / WARPS_N), kWarpN = BLOCK_N / WARPS_N;
constexpr int kRows = kWarpM / 4, kColumns = kWarpN / 8;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    conv_fp32(const TYPE* __restrict__ x, const TYPE* __restrict__ w, const float* __restrict__ bias,
              const TYPE* __restrict__ residual, TYPE* __restrict__ y, int pixels) {
  DYNAMIC_SMEM(smem);
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
  const int row = warp / WARPS_N * kWarpM + lane / 8, column = warp % WARPS_N * kWarpN + lane % 8;
  float sums[kRows][kColumns] = {};
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    // The stage has arrived, and all warps are done with the one before.
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (step + STAGES - 1 < kSteps) {
      unsigned char* free = smem + (step + STAGES - 1) % STAGES * kStageBytes;
      windows.load(free, x, step + STAGES - 1);
      filters.load(free + kTileBytes, step + STAGES - 1);
    }
    cp_async_commit();
    const unsigned char* stage = smem + step % STAGES * kStageBytes;
#pragma unroll
    for (int unit = 0; unit < ROW_BYTES / 16; ++unit) {
      float4 b[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int at = column + j * 8;
        b[j] = *(const float4*)(stage + kTileBytes + at * ROW_BYTES + ((unit ^ spread(at)) << 4));
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int at = row + i * 4;
        const float4 a = *(const float4*)(stage + at * ROW_BYTES + ((unit ^ spread(at)) << 4));
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          sums[i][j] = fmaf(a.x, b[j].x, sums[i][j]);
          sums[i][j] = fmaf(a.y, b[j].y, sums[i][j]);
          sums[i][j] = fmaf(a.z, b[j].z, sums[i][j]);
          sums[i][j] = fmaf(a.w, b[j].w, sums[i][j]);
        }
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
      const int at = column + j * 8;
      (&staged(smem, row + i * 4, at / 8, at % 8 / 4)->x)[at % 4] = sums[i][j];
    }
  }
  __syncthreads();
  store(smem, bias, residual, y, first_pixel, pixels, first_feature, group);
}
