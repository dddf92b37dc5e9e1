// Reductions by a block: THREADS threads stand in PARTS rows of COLUMNS. Each column has one result, to which every part
// contributes. The order of the terms follows from these numbers alone.
#pragma once
#include "vector.cuh"

constexpr int kColumns = THREADS / PARTS;

__device__ __forceinline__ int own_column() { return (int)threadIdx.x % kColumns; }
__device__ __forceinline__ int own_part() { return (int)threadIdx.x / kColumns; }

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ __forceinline__ float operator()(float a, float b) const { return larger(a, b); }
};
struct Smallest {
  __device__ __forceinline__ float operator()(float a, float b) const { return smaller(a, b); }
};

// The parts' values of each column combined, for all its threads. Every thread of the block calls it.
template <class Op, int N>
__device__ __forceinline__ void combine_parts(float (&value)[N], Op op) {
  __shared__ float shared[N][THREADS];
  const int me = (int)threadIdx.x;
#pragma unroll
  for (int i = 0; i < N; ++i) shared[i][me] = value[i];
  __syncthreads();
  for (int half = PARTS / 2; half > 0; half /= 2) {
    if (own_part() < half) {
#pragma unroll
      for (int i = 0; i < N; ++i) shared[i][me] = op(shared[i][me], shared[i][me + half * kColumns]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < N; ++i) value[i] = shared[i][own_column()];
  // Before another call writes there.
  __syncthreads();
}
