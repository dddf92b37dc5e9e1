// Transposed convolution: each output pixel gathers the input pixels that meet it.
//
// TX element type; CHANNELS of the input, FEATURES of the output, GROUPS; IN_H IN_W, OUT_H OUT_W, KERNEL_H KERNEL_W,
// STRIDE_H STRIDE_W, PAD_H PAD_W, DILATION_H DILATION_W; BIAS 1 or 0; a thread makes VECTOR output channels of one pixel,
// which lie in one group. weights [KERNEL_H, KERNEL_W, CHANNELS / GROUPS, FEATURES].
#include "activation.cuh"
#include "vector.cuh"

constexpr int kDepth = CHANNELS / GROUPS;

// Input index that tap `tap` takes to output index `out`; negative where there is none.
__device__ __forceinline__ int source(int out, int tap, int stride, int pad, int dilation, int size) {
  const int at = out + pad - tap * dilation;
  return at >= 0 && at % stride == 0 && at / stride < size ? at / stride : -1;
}

extern "C" __global__ void __launch_bounds__(256)
    conv_transpose(const TX* __restrict__ x, const TX* __restrict__ weights, const float* __restrict__ bias,
                   TX* __restrict__ y, int len) {
  wait_for_predecessor();
  launch_dependents();
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= (u32)len) return;
  const int k = (int)(index % (FEATURES / VECTOR)) * VECTOR;
  const u32 pixel = index / (FEATURES / VECTOR);
  const int q = (int)(pixel % OUT_W), p = (int)(pixel / OUT_W % OUT_H);
  const TX* picture = x + pixel / (OUT_W * OUT_H) * (IN_H * IN_W * CHANNELS) + k / (FEATURES / GROUPS) * kDepth;
  float sum[VECTOR] = {};
  for (int r = 0; r < KERNEL_H; ++r) {
    const int h = source(p, r, STRIDE_H, PAD_H, DILATION_H, IN_H);
    for (int s = 0; s < KERNEL_W && h >= 0; ++s) {
      const int w = source(q, s, STRIDE_W, PAD_W, DILATION_W, IN_W);
      if (w < 0) continue;
      const TX* from = picture + (h * IN_W + w) * CHANNELS;
      const TX* matrix = weights + (r * KERNEL_W + s) * (kDepth * FEATURES) + k;
#pragma unroll 4
      for (int c = 0; c < kDepth; ++c) {
        float v[VECTOR];
        load<TX, VECTOR>(matrix + c * FEATURES, v);
        const float a = to_float(from[c]);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) sum[i] = fmaf(a, v[i], sum[i]);
      }
    }
  }
  if (BIAS) {
    float v[VECTOR];
    load<float, VECTOR>(bias + k, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum[i] += v[i];
  }
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) sum[i] = apply<ACTIVATION>(sum[i], ALPHA, BETA);
  store(y + index * VECTOR, sum);
}
