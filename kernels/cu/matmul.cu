// Batched products of two activations, in fp32: y [batch, m, n] = a [batch, m, k] b [batch, k, n]. TA TB TY element types.
// A block makes a square of 64 x 64 sums, a thread 4 x 4 of them.
#include "types.cuh"

constexpr int kSide = 64;
constexpr int kDepth = 16;
constexpr int kOwn = 4;
constexpr int kThreads = (kSide / kOwn) * (kSide / kOwn);

// `matrix_a` and `matrix_b` are the elements from one matrix to the next, 0 for the same matrix throughout.
extern "C" __global__ void __launch_bounds__(kThreads)
    matmul(const TA* __restrict__ a, const TB* __restrict__ b, TY* __restrict__ y, int m, int n, int k, int matrix_a,
           int matrix_b) {
  // a transposed, so that a thread's rows lie side by side. The odd row length spreads the writes over the banks.
  __shared__ float tile_a[kDepth][kSide + 1];
  __shared__ float tile_b[kDepth][kSide];
  wait_for_predecessor();
  launch_dependents();
  const u32 across = ((u32)n + kSide - 1) / kSide, down = ((u32)m + kSide - 1) / kSide;
  const u32 batch = blockIdx.x / (across * down);
  const int row0 = (int)(blockIdx.x / across % down) * kSide, column0 = (int)(blockIdx.x % across) * kSide;
  a += batch * matrix_a;
  b += batch * matrix_b;
  y += batch * (u32)m * (u32)n;
  const int me = (int)threadIdx.x;
  const int row = me / (kSide / kOwn) * kOwn, column = me % (kSide / kOwn) * kOwn;
  float sum[kOwn][kOwn] = {};
  for (int k0 = 0; k0 < k; k0 += kDepth) {
#pragma unroll
    for (int i = me; i < kSide * kDepth; i += kThreads) {
      const int r = i / kDepth, depth = i % kDepth;
      const bool inside = row0 + r < m && k0 + depth < k;
      tile_a[depth][r] = inside ? to_float(a[(row0 + r) * k + k0 + depth]) : 0.0f;
    }
#pragma unroll
    for (int i = me; i < kSide * kDepth; i += kThreads) {
      const int depth = i / kSide, c = i % kSide;
      const bool inside = column0 + c < n && k0 + depth < k;
      tile_b[depth][c] = inside ? to_float(b[(k0 + depth) * n + column0 + c]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kDepth; ++depth) {
      float u[kOwn], v[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        u[i] = tile_a[depth][row + i];
        v[i] = tile_b[depth][column + i];
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int r = row0 + row + i, c = column0 + column + j;
      if (r < m && c < n) store_as(y + r * n + c, sum[i][j]);
    }
  }
}
