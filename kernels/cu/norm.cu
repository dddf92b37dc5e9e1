// Softmax and layer normalisation. TX TY element types, THREADS and PARTS as in parts.cuh.
#include "parts.cuh"

#ifdef SOFTMAX

// x [outer, COUNT, INNER]: e^(x - max) / sum over the middle axis, or (LOG = 1) its logarithm. Every column makes VECTOR
// neighbours along INNER; `columns` counts them over outer as well.
extern "C" __global__ void __launch_bounds__(THREADS, 1) softmax(const TX* __restrict__ x, TY* __restrict__ y, int columns) {
  wait_for_predecessor();
  launch_dependents();
  const u32 column = blockIdx.x * kColumns + own_column();
  const bool mine = column < (u32)columns;
  const u32 first = column * VECTOR / INNER * (COUNT * INNER) + column * VECTOR % INNER;
  const int end = mine ? COUNT : 0;
  float top[VECTOR], sum[VECTOR], v[VECTOR];
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) {
    top[i] = -__int_as_float(0x7f800000);
    sum[i] = 0.0f;
  }
  for (int r = own_part(); r < end; r += PARTS) {
    load<TX, VECTOR>(x + first + r * INNER, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) top[i] = larger(top[i], v[i]);
  }
  combine_parts(top, Largest());
  for (int r = own_part(); r < end; r += PARTS) {
    load<TX, VECTOR>(x + first + r * INNER, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum[i] += expf(v[i] - top[i]);
  }
  combine_parts(sum, Sum());
  for (int r = own_part(); r < end; r += PARTS) {
    load<TX, VECTOR>(x + first + r * INNER, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) v[i] = LOG ? v[i] - top[i] - logf(sum[i]) : expf(v[i] - top[i]) / sum[i];
    store(y + first + r * INNER, v);
  }
}

#else

// Rows of LEN elements, a column a row, VECTOR elements a step: (x - mean) / sqrt(variance + EPSILON) scale + bias.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    layer_norm(const TX* __restrict__ x, const TS* __restrict__ scale, const TB* __restrict__ bias, TY* __restrict__ y,
               int rows) {
  wait_for_predecessor();
  launch_dependents();
  const u32 row = blockIdx.x * kColumns + own_column();
  const int end = row < (u32)rows ? LEN : 0;
  const u32 first = row * LEN;
  float v[VECTOR];
  float sum[1] = {0.0f}, squares[1] = {0.0f};
  for (int at = own_part() * VECTOR; at < end; at += PARTS * VECTOR) {
    load<TX, VECTOR>(x + first + at, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum[0] += v[i];
  }
  combine_parts(sum, Sum());
  const float mean = sum[0] / (float)LEN;
  for (int at = own_part() * VECTOR; at < end; at += PARTS * VECTOR) {
    load<TX, VECTOR>(x + first + at, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) squares[0] += (v[i] - mean) * (v[i] - mean);
  }
  combine_parts(squares, Sum());
  const float factor = 1.0f / sqrtf(squares[0] / (float)LEN + EPSILON);
  for (int at = own_part() * VECTOR; at < end; at += PARTS * VECTOR) {
    float a[VECTOR], b[VECTOR];
    load<TX, VECTOR>(x + first + at, v);
    load<TS, VECTOR>(scale + at, a);
    load<TB, VECTOR>(bias + at, b);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) v[i] = (v[i] - mean) * factor * a[i] + b[i];
    store(y + first + at, v);
  }
}

#endif
