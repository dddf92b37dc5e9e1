// The best classes of each image, for the host to read: a block an image. TX element type of the scores; SCORES what they
// mean.
#include "types.cuh"

enum Scores { kLogits, kProbabilities, kSigmoid };

constexpr int kThreads = 256;
constexpr u32 kNone = 0xffffffffu;

struct Scored {
  float score;
  u32 label;
};

// True where a comes before b: higher score first, equal scores by lower class.
__device__ __forceinline__ bool before(Scored a, Scored b) {
  return a.score > b.score || (a.score == b.score && a.label < b.label);
}

struct First {
  __device__ __forceinline__ Scored operator()(Scored a, Scored b) const {
    if (a.label == kNone || b.label == kNone) return a.label == kNone ? b : a;
    return before(b, a) ? b : a;
  }
};
struct Largest {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Add {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
struct Least {
  __device__ __forceinline__ u32 operator()(u32 a, u32 b) const { return b < a ? b : a; }
};

// The values of all threads combined, for all threads.
template <class T, class Op>
__device__ __forceinline__ T combine(T value, Op op) {
  __shared__ T shared[kThreads];
  const int me = (int)threadIdx.x;
  shared[me] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (me < half) shared[me] = op(shared[me], shared[me + half]);
    __syncthreads();
  }
  value = shared[0];
  // Before another call writes there.
  __syncthreads();
  return value;
}

// x [images, classes]. A row of the result is 4 + 2 k words: how many values make the row worthless, how many lie outside
// 0..1 (of SCORES that are probabilities) and the first of these, a zero; then k pairs of class and score.
extern "C" __global__ void __launch_bounds__(kThreads, 4)
    softmax_top_k(const TX* __restrict__ x, u32* __restrict__ rows, int classes, int k) {
  wait_for_predecessor();
  launch_dependents();
  const float infinity = __int_as_float(0x7f800000);
  // What lies this far outside is no rounding error.
  const float rounding = 1e-3f;
  const TX* values = x + (u64)blockIdx.x * (u32)classes;
  u32* row = rows + (u64)blockIdx.x * (4 + 2 * (u32)k);

  u32 faults = 0, outside = 0, first_outside = kNone;
  float top = -infinity;
  for (int i = (int)threadIdx.x; i < classes; i += kThreads) {
    const float v = to_float(values[i]);
    if (SCORES == kLogits) faults += v != v || v == infinity;
    if (SCORES == kSigmoid) faults += v != v;
    if (SCORES == kProbabilities) {
      faults += v - v != 0.0f;
      if (!(v >= -rounding && v <= 1.0f + rounding)) {
        ++outside;
        first_outside = first_outside == kNone ? (u32)i : first_outside;
      }
    }
    top = fmaxf(top, v);
  }
  faults = combine(faults, Add());
  outside = combine(outside, Add());
  first_outside = combine(first_outside, Least());
  top = combine(top, Largest());
  // A softmax needs one class that is possible.
  if (SCORES == kLogits && top == -infinity) faults = (u32)classes;

  float sum = 0.0f;
  if (SCORES == kLogits) {
    for (int i = (int)threadIdx.x; i < classes; i += kThreads) sum += expf(to_float(values[i]) - top);
    sum = combine(sum, Add());
  }
  if (threadIdx.x == 0) {
    row[0] = faults;
    row[1] = outside;
    row[2] = __float_as_uint(first_outside == kNone ? 0.0f : to_float(values[first_outside]));
    row[3] = 0;
  }

  // One class a round: the best of those behind the last one.
  Scored last = {infinity, kNone};
  for (int rank = 0; rank < k; ++rank) {
    Scored best = {0.0f, kNone};
    for (int i = (int)threadIdx.x; i < classes; i += kThreads) {
      const float v = to_float(values[i]);
      float score = fminf(fmaxf(v, 0.0f), 1.0f);
      if (SCORES == kLogits) score = expf(v - top) / sum;
      if (SCORES == kSigmoid) score = 1.0f / (1.0f + expf(-v));
      const Scored next = {score, (u32)i};
      if (rank == 0 ? score == score : before(last, next)) best = First()(best, next);
    }
    best = combine(best, First());
    if (threadIdx.x == 0) {
      row[4 + 2 * rank] = best.label;
      row[5 + 2 * rank] = __float_as_uint(best.score);
    }
    last = best;
  }
}
