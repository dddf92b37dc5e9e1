// Depthwise convolution with bias, residual and activation. A thread makes COLUMNS neighbouring pixels of an output row,
// VECTOR channels of each, so that a row of the picture is read from memory once for all the taps and pixels that meet it.
//
// TX element type; IN_H IN_W, OUT_H OUT_W, KERNEL_H KERNEL_W; FEATURES output channels, MULTIPLIER of them to an input
// channel (VECTOR is 1 where that is more than one); PITCH elements from one input pixel to the next; STRIDE_H STRIDE_W,
// PAD_H PAD_W, DILATION_H DILATION_W; BIAS, RESIDUAL 1 or 0; CHUNK vectors of channels are worked on side by side, down
// the rows of a picture, before the next CHUNK. weights [KERNEL_H, KERNEL_W, FEATURES].
#include "activation.cuh"
#include "vector.cuh"

constexpr int kChunks = FEATURES / VECTOR / CHUNK;
constexpr int kAcross = (OUT_W + COLUMNS - 1) / COLUMNS;
// Where all taps of a row fit the registers, each input pixel is loaded once for all of them.
constexpr bool kShared = DILATION_W == 1 && KERNEL_W <= 7;
// Blocks of a multiprocessor that the registers must do for: the taps of wide kernels take more of them.
constexpr int kBlocks = KERNEL_W > 5 ? 3 : 4;
constexpr int kSpan = kShared ? (COLUMNS - 1) * STRIDE_W + KERNEL_W : 1;

// The channels of an input pixel, zeros outside the row.
__device__ __forceinline__ void load_pixel(const TX* row, int column, float (&v)[VECTOR]) {
  Raw<TX, VECTOR> x = {};
  if ((u32)column < IN_W) x = load_raw<TX, VECTOR>(row + column * PITCH);
  to_floats<TX, VECTOR>(x, v);
}

__device__ __forceinline__ void multiply(const float (&x)[VECTOR], const float (&w)[VECTOR], float (&sum)[VECTOR]) {
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) sum[i] = fmaf(x[i], w[i], sum[i]);
}

// The taps of one kernel row; `column` is where the first tap of the first pixel lies.
__device__ __forceinline__ void add_row(const TX* row, int column, const TX* weights, float (&sum)[COLUMNS][VECTOR]) {
  if (kShared) {
    float w[KERNEL_W][VECTOR];
#pragma unroll
    for (int s = 0; s < KERNEL_W; ++s) load<TX, VECTOR>(weights + s * FEATURES, w[s]);
#pragma unroll
    for (int j = 0; j < kSpan; ++j) {
      // Strides beyond the kernel leave pixels out.
      if (j % STRIDE_W >= KERNEL_W) continue;
      float v[VECTOR];
      load_pixel(row, column + j, v);
#pragma unroll
      for (int o = 0; o < COLUMNS; ++o) {
        const int s = j - o * STRIDE_W;
        if (s >= 0 && s < KERNEL_W) multiply(v, w[s], sum[o]);
      }
    }
  } else {
    for (int s = 0; s < KERNEL_W; ++s) {
      float w[VECTOR], v[VECTOR];
      load<TX, VECTOR>(weights + s * FEATURES, w);
#pragma unroll
      for (int o = 0; o < COLUMNS; ++o) {
        load_pixel(row, column + o * STRIDE_W + s * DILATION_W, v);
        multiply(v, w, sum[o]);
      }
    }
  }
}

// Bias, residual, activation; `at` is the element of the output.
__device__ __forceinline__ void finish(float (&sum)[VECTOR], const float* bias, const TX* residual, TX* y, int channel,
                                       u32 at) {
  float v[VECTOR];
  if (BIAS) {
    load<float, VECTOR>(bias + channel, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum[i] += v[i];
  }
  if (RESIDUAL) {
    load<TX, VECTOR>(residual + at, v);
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum[i] += v[i];
  }
#pragma unroll
  for (int i = 0; i < VECTOR; ++i) sum[i] = apply<ACTIVATION>(sum[i], ALPHA, BETA);
  store(y + at, sum);
}

// `items` are the pieces of work of one thread each; a block takes `rounds` times as many as it has threads, neighbours, so
// that rows which several kernel rows meet stay in its cache.
extern "C" __global__ void __launch_bounds__(128, kBlocks)
    depthwise(const TX* __restrict__ x, const TX* __restrict__ weights, const float* __restrict__ bias,
              const TX* __restrict__ residual, TX* __restrict__ y, int items, int rounds) {
  wait_for_predecessor();
  launch_dependents();
  for (int round = 0; round < rounds; ++round) {
    u32 item = (blockIdx.x * rounds + round) * blockDim.x + threadIdx.x;
    if (item >= (u32)items) return;
    const int vector = (int)(item % CHUNK);
    item /= CHUNK;
    const int q = (int)(item % kAcross) * COLUMNS;
    item /= kAcross;
    const int p = (int)(item % OUT_H);
    item /= OUT_H;
    const int channel = ((int)(item % kChunks) * CHUNK + vector) * VECTOR;
    const u32 image = item / kChunks;

    float sum[COLUMNS][VECTOR] = {};
    const TX* picture = x + image * (IN_H * IN_W * PITCH) + channel / MULTIPLIER;
#pragma unroll(KERNEL_H <= 3 ? KERNEL_H : 1)
    for (int r = 0; r < KERNEL_H; ++r) {
      const int h = p * STRIDE_H - PAD_H + r * DILATION_H;
      if ((u32)h >= IN_H) continue;
      const TX* taps = weights + r * (KERNEL_W * FEATURES) + channel;
      add_row(picture + h * (IN_W * PITCH), q * STRIDE_W - PAD_W, taps, sum);
    }
#pragma unroll
    for (int o = 0; o < COLUMNS; ++o) {
      const u32 pixel = (image * OUT_H + p) * OUT_W + q + o;
      if (q + o < OUT_W) finish(sum[o], bias, residual, y, channel, pixel * FEATURES + channel);
    }
  }
}
