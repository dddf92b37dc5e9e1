// Pooling, formulas of kernels/src/op.rs: a thread makes VECTOR channels of one output pixel.
//
// TX TY element types, KIND, CHANNELS, IN_H IN_W, OUT_H OUT_W, KERNEL_H KERNEL_W, STRIDE_H STRIDE_W, PAD_TOP PAD_LEFT
// PAD_BOTTOM PAD_RIGHT, DILATION_H DILATION_W.
#include "vector.cuh"

enum Kind { kMax, kAverage, kAveragePadded };

// Taps of a window, which starts at `start`, that lie before `end`; both count from the first sample of the padding.
__device__ __forceinline__ int taps_before(int start, int end, int taps, int dilation) {
  const int fit = end > start ? (end - start + dilation - 1) / dilation : 0;
  return fit < taps ? fit : taps;
}

extern "C" __global__ void __launch_bounds__(256) pool(const TX* __restrict__ x, TY* __restrict__ y, int len) {
  wait_for_predecessor();
  launch_dependents();
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= (u32)len) return;
  const int channel = (int)(index % (CHANNELS / VECTOR)) * VECTOR;
  const u32 pixel = index / (CHANNELS / VECTOR);
  const int top = (int)(pixel / OUT_W % OUT_H) * STRIDE_H, left = (int)(pixel % OUT_W) * STRIDE_W;
  const int image = (int)(pixel / (OUT_W * OUT_H)) * (IN_H * IN_W * CHANNELS);
  const int row_begin = taps_before(top, PAD_TOP, KERNEL_H, DILATION_H);
  const int row_end = taps_before(top, PAD_TOP + IN_H, KERNEL_H, DILATION_H);
  const int column_begin = taps_before(left, PAD_LEFT, KERNEL_W, DILATION_W);
  const int column_end = taps_before(left, PAD_LEFT + IN_W, KERNEL_W, DILATION_W);
  float best[VECTOR];
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) best[i] = KIND == kMax ? -__int_as_float(0x7f800000) : 0.0f;
  for (int r = row_begin; r < row_end; ++r) {
    const TX* row = x + image + (top + r * DILATION_H - PAD_TOP) * (IN_W * CHANNELS) + channel;
#pragma unroll 4
    for (int s = column_begin; s < column_end; ++s) {
      float v[VECTOR];
      load<TX, VECTOR>(row + (left + s * DILATION_W - PAD_LEFT) * CHANNELS, v);
#pragma unroll
      for (int i = 0; i < VECTOR; ++i) best[i] = KIND == kMax ? larger(best[i], v[i]) : best[i] + v[i];
    }
  }
  if (KIND != kMax) {
    const int inside = (row_end - row_begin) * (column_end - column_begin);
    const int padded = taps_before(top, PAD_TOP + IN_H + PAD_BOTTOM, KERNEL_H, DILATION_H) *
                       taps_before(left, PAD_LEFT + IN_W + PAD_RIGHT, KERNEL_W, DILATION_W);
    const int count = KIND == kAverage ? inside : padded;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) best[i] /= (float)(count > 1 ? count : 1);
  }
  store(y + index * VECTOR, best);
}
