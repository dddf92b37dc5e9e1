// Functions over whole axes. TX TY element types. THREADS and PARTS as in parts.cuh; every column makes VECTOR outputs.
#include "parts.cuh"

constexpr int kKept[] = {KEPT};
constexpr int kKeptX[] = {KEPT_X};
constexpr int kReduced[] = {REDUCED};
constexpr int kReducedX[] = {REDUCED_X};

#ifdef KIND

// KEPT and REDUCED axes, from the outermost (whose length is not looked at) to the innermost, with their strides in x; COUNT
// elements are reduced to one.
enum Kind { kMean, kSum, kLargest, kSmallest };

__device__ __forceinline__ float take(float a, float b) {
  if (KIND == kLargest) return larger(a, b);
  if (KIND == kSmallest) return smaller(a, b);
  return a + b;
}

struct Take {
  __device__ __forceinline__ float operator()(float a, float b) const { return take(a, b); }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) reduce(const TX* __restrict__ x, TY* __restrict__ y, int columns) {
  wait_for_predecessor();
  launch_dependents();
  const u32 column = blockIdx.x * kColumns + own_column();
  const float infinity = __int_as_float(0x7f800000);
  float value[VECTOR];
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) value[i] = KIND == kLargest ? -infinity : KIND == kSmallest ? infinity : 0.0f;
  if (column < (u32)columns) {
    const TX* from = x + offset_of(column * VECTOR, kKept, kKeptX);
#pragma unroll 4
    for (int r = own_part(); r < COUNT; r += PARTS) {
      float v[VECTOR];
      load<TX, VECTOR>(from + offset_of(r, kReduced, kReducedX), v);
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) value[i] = take(value[i], v[i]);
    }
  }
  combine_parts(value, Take());
  if (own_part() > 0 || column >= (u32)columns) return;
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) value[i] = KIND == kMean ? value[i] / (float)COUNT : value[i];
  store(y + column * VECTOR, value);
}

#else

// A candidate for the largest value: index -1 where there is none.
struct Best {
  float value;
  int index;
};

// The better of two. A value that is no number loses.
__device__ __forceinline__ Best better(Best a, Best b) {
  if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
  if (a.value == b.value) return (a.index < b.index) != LAST ? a : b;
  return b.value > a.value ? b : a;
}

// Index of the largest value along the one axis REDUCED, of equal ones the first or (LAST = 1) the last. Where the first
// value is no number it stays, as nothing compares larger.
extern "C" __global__ void __launch_bounds__(THREADS, 1) arg_max(const TX* __restrict__ x, TY* __restrict__ y, int columns) {
  __shared__ Best shared[THREADS];
  wait_for_predecessor();
  launch_dependents();
  const u32 column = blockIdx.x * kColumns + own_column();
  Best best = {0.0f, -1};
  bool stuck = false;
  if (column < (u32)columns) {
    const TX* from = x + offset_of(column, kKept, kKeptX);
    for (int r = own_part(); r < COUNT; r += PARTS) {
      const float v = to_float(from[offset_of(r, kReduced, kReducedX)]);
      stuck = stuck || (r == 0 && v != v);
      if (v == v) best = better(best, Best{v, r});
    }
  }
  const int me = (int)threadIdx.x;
  shared[me] = best;
  __syncthreads();
  for (int half = PARTS / 2; half > 0; half /= 2) {
    if (own_part() < half) shared[me] = better(shared[me], shared[me + half * kColumns]);
    __syncthreads();
  }
  if (own_part() == 0 && column < (u32)columns) store_as(y + column, stuck ? 0.0f : (float)shared[me].index);
}

#endif
