// Resize of rows and columns: a thread makes VECTOR channels of one output pixel.
//
// TX TY element types, CHANNELS, IN_H IN_W, OUT_H OUT_W, LINEAR 1 or 0 (nearest), OUTSIDE the value around a cropped
// picture.
#include "vector.cuh"

// a (1 - t) + b t.
__device__ __forceinline__ float mix(float a, float b, float t) { return a * (1.0f - t) + b * t; }

// `taps` has four numbers for each output row and then for each output column: the two samples, the weight of the second,
// and 1 where the output lies outside.
extern "C" __global__ void __launch_bounds__(256)
    resize(const TX* __restrict__ x, const float* __restrict__ taps, TY* __restrict__ y, int len) {
  wait_for_predecessor();
  launch_dependents();
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= (u32)len) return;
  const u32 pixel = index / (CHANNELS / VECTOR);
  float row[4], column[4], v[VECTOR];
  load<float, 4>(taps + pixel / OUT_W % OUT_H * 4, row);
  load<float, 4>(taps + (OUT_H + pixel % OUT_W) * 4, column);
  if (row[3] != 0.0f || column[3] != 0.0f) {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) v[i] = OUTSIDE;
  } else {
    const TX* from = x + pixel / (OUT_W * OUT_H) * (IN_H * IN_W * CHANNELS) + index % (CHANNELS / VECTOR) * VECTOR;
    const int above = (int)row[0] * (IN_W * CHANNELS), left = (int)column[0] * CHANNELS;
    load<TX, VECTOR>(from + above + left, v);
    if (LINEAR) {
      const int below = (int)row[1] * (IN_W * CHANNELS), right = (int)column[1] * CHANNELS;
      float above_right[VECTOR], below_left[VECTOR], below_right[VECTOR];
      load<TX, VECTOR>(from + above + right, above_right);
      load<TX, VECTOR>(from + below + left, below_left);
      load<TX, VECTOR>(from + below + right, below_right);
#pragma unroll
      for (int i = 0; i < VECTOR; ++i)
        v[i] = mix(mix(v[i], below_left[i], row[2]), mix(above_right[i], below_right[i], row[2]), column[2]);
    }
  }
  store(y + index * VECTOR, v);
}
