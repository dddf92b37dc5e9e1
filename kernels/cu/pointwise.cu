// Element-wise functions: y = ACTIVATION(FUNCTION(a, b, c)), operands broadcast by strides, and conversion of an image's
// element type and pitch.
//
// pointwise: TA TB TC TY element types, OPERANDS how many of a, b, c there are, DIMS the lengths of the axes from the
// outermost (which is not looked at) to the innermost, STRIDES_A STRIDES_B STRIDES_C the operands' strides along them,
// VECTOR elements a thread: it divides the innermost length where there is more than one axis, and every stride but the
// innermost ones, which are 0 or 1 where VECTOR > 1.
#include "activation.cuh"
#include "vector.cuh"

enum Combination {
  kFirst, kAdd, kSub, kMul, kDiv, kMin, kMax, kPow, kPRelu, kScaleShift, kQuantize, kDequantize, kCast,
};

__device__ __forceinline__ float clamped(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

template <int F>
__device__ __forceinline__ float combine(float a, float b, float c, float low, float high) {
  if (F == kAdd) return a + b;
  if (F == kSub) return a - b;
  if (F == kMul) return a * b;
  if (F == kDiv) return a / b;
  if (F == kMin) return smaller(a, b);
  if (F == kMax) return larger(a, b);
  if (F == kPow) return b == 2.0f ? a * a : powf(a, b);
  if (F == kPRelu) return a >= 0.0f ? a : a * b;
  if (F == kScaleShift) return a * b + c;
  if (F == kQuantize) return clamped(rintf(a / b) + c, low, high);
  if (F == kDequantize) return (a - c) * b;
  if (F == kCast) return a != a ? 0.0f : clamped(truncf(a), low, high);
  return a;
}

#ifdef FUNCTION

constexpr int kDims[] = {DIMS};
constexpr int kStridesA[] = {STRIDES_A};
constexpr int kStridesB[] = {STRIDES_B};
constexpr int kStridesC[] = {STRIDES_C};
constexpr int kRank = sizeof(kDims) / sizeof(int);

// N elements of an operand from output element `index` on.
template <int N, class T>
__device__ __forceinline__ void read(const T* operand, u32 index, const int (&strides)[kRank], float (&to)[N]) {
  const T* from = operand + offset_of(index, kDims, strides);
  if (strides[kRank - 1] == 1) return load<T, N>(from, to);
  const float x = to_float(*from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = x;
}

template <int N>
__device__ __forceinline__ void run(const TA* a, const TB* b, const TC* c, TY* y, u32 index) {
  float u[N], v[N] = {}, w[N] = {};
  read(a, index, kStridesA, u);
  if (OPERANDS > 1) read(b, index, kStridesB, v);
  if (OPERANDS > 2) read(c, index, kStridesC, w);
#pragma unroll
  for (int i = 0; i < N; ++i) u[i] = apply<ACTIVATION>(combine<FUNCTION>(u[i], v[i], w[i], LOW, HIGH), ALPHA, BETA);
  store(y + index, u);
}

extern "C" __global__ void __launch_bounds__(256)
    pointwise(const TA* __restrict__ a, const TB* __restrict__ b, const TC* __restrict__ c, TY* __restrict__ y, int len) {
  wait_for_predecessor();
  launch_dependents();
  const u32 index = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (index + VECTOR <= (u32)len) return run<VECTOR>(a, b, c, y, index);
  // Only a single axis can end inside a vector.
  for (u32 i = index; i < (u32)len; ++i) run<1>(a, b, c, y, i);
}

#else

// convert: pixels of CHANNELS elements of type TX, PITCH_X elements apart, to type TY, PITCH_Y apart, zeros behind the
// channels. VECTOR, which divides PITCH_Y, elements a thread.
extern "C" __global__ void __launch_bounds__(256)
    convert(const TX* __restrict__ x, TY* __restrict__ y, int len) {
  wait_for_predecessor();
  launch_dependents();
  const u32 index = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (index >= (u32)len) return;
  const u32 pixel = index / PITCH_Y, channel = index % PITCH_Y;
  float v[VECTOR];
#pragma unroll
  for (u32 i = 0; i < VECTOR; ++i) v[i] = channel + i < CHANNELS ? to_float(x[pixel * PITCH_X + channel + i]) : 0.0f;
  store(y + index, v);
}

#endif
