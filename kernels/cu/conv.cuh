// What the convolution kernels share: an implicit matrix product y[m][n] = sum over d of x[m][d] w[n][d], where m counts
// output pixels of all images, n output channels of a group, and d the filter's taps and channels in the order r, s, c.
// A block computes BLOCK_M x BLOCK_N of it in steps of ROW_BYTES along d, STAGES - 1 of them on their way to shared memory.
//
// Defines: TYPE (element), OFFSET (int, or long long where x has more elements), THREADS, BLOCK_M, BLOCK_N, ROW_BYTES,
// STAGES, COPY_BYTES (what one copy of x takes: it must divide a pixel's channels), IN_H, IN_W, PIXEL (elements from one
// pixel of x to the next), CHANNELS (a group's, in x), OUT_H, OUT_W, OUT_CHANNELS (all), FEATURES (a group's), FILTER_R,
// FILTER_S, STRIDE_H, STRIDE_W, PAD_H, PAD_W, DILATION_H, DILATION_W, DEPTH (elements from one row of w to the next, the
// rows filled up with zeros), BIAS, RESIDUAL (0 or 1), ACTIVATION, ALPHA, BETA.
#pragma once
#include "activation.cuh"
#include "types.cuh"

constexpr int kElement = sizeof(TYPE);
constexpr int kStep = ROW_BYTES / kElement;
constexpr int kDepth = FILTER_R * FILTER_S * CHANNELS;
constexpr int kSteps = (kDepth + kStep - 1) / kStep;
constexpr int kTileBytes = BLOCK_M * ROW_BYTES;
constexpr int kStageBytes = (BLOCK_M + BLOCK_N) * ROW_BYTES;
constexpr int kColumnTiles = (FEATURES + BLOCK_N - 1) / BLOCK_N;
constexpr bool kPointwise = FILTER_R * FILTER_S * STRIDE_H * STRIDE_W == 1 && PAD_H + PAD_W == 0 && IN_H == OUT_H && IN_W == OUT_W;
// Which taps of a filter lie inside the picture fits into one word: 16 bits for the rows, 16 for the columns.
constexpr bool kMasks = FILTER_R <= 16 && FILTER_S <= 16;

// Exclusive or with it moves a row's 16-byte units so that the same unit of eight rows one after another lies in
// different banks.
__device__ __forceinline__ int spread(int row) { return ROW_BYTES == 128 ? row & 7 : (row >> 1) & 3; }

// Copies BYTES to shared memory, or zeros. Two bytes cannot be copied in the background.
template <int BYTES>
__device__ __forceinline__ void copy(unsigned char* to, const TYPE* from, bool inside) {
  if (BYTES == 16) cp_async_16(smem_address(to), from, inside ? 16 : 0);
  if (BYTES == 8) cp_async_8(smem_address(to), from, inside ? 8 : 0);
  if (BYTES == 4) cp_async_4(smem_address(to), from, inside ? 4 : 0);
  if (BYTES == 2) *(u16*)to = inside ? *(const u16*)from : (u16)0;
}

// A thread's share of copying a tile of ROWS rows: the same part of every kEvery-th row.
template <int ROWS, int BYTES>
struct Share {
  static constexpr int kParts = ROW_BYTES / BYTES;
  static constexpr int kEvery = THREADS / kParts;
  static constexpr int kCount = (ROWS + kEvery - 1) / kEvery;
  static_assert(THREADS % kParts == 0, "every thread copies the same part of all its rows");

  int part = threadIdx.x % kParts;
  int first = threadIdx.x / kParts;

  __device__ __forceinline__ int row(int i) const { return first + i * kEvery; }
  __device__ __forceinline__ bool exists(int i) const { return ROWS % kEvery == 0 || row(i) < ROWS; }
  __device__ __forceinline__ unsigned char* place(unsigned char* tile, int i) const {
    // Said so that the compiler sees where all rows are moved alike.
    const int byte = part * BYTES, moved = spread(kEvery % 8 == 0 ? first : row(i));
    return tile + row(i) * ROW_BYTES + ((byte >> 4 ^ moved) << 4 | (byte & 15));
  }
};

// Copies of x: the windows of this thread's output pixels, found once, so that a step costs a few instructions a pixel.
struct Windows {
  using Part = Share<BLOCK_M, COPY_BYTES>;
  Part part;
  OFFSET start[Part::kCount];  // element of x under the first tap; outside x where there is padding
  u32 inside[Part::kCount];    // kMasks: bit r and bit 16 + s are set where that row and column of taps are in the picture
  int top[Part::kCount], left[Part::kCount];

  __device__ __forceinline__ Windows(int first_pixel, int pixels, int group) {
#pragma unroll
    for (int i = 0; i < Part::kCount; ++i) {
      // Rows beyond the last pixel see nothing; their addresses stay within bounds.
      const bool exists = first_pixel + part.row(i) < pixels;
      const int m = exists ? first_pixel + part.row(i) : pixels - 1;
      if (kPointwise) {
        start[i] = (OFFSET)m * PIXEL + group * CHANNELS;
        inside[i] = exists ? 0xffffffffu : 0;
        continue;
      }
      const int image = m / (OUT_H * OUT_W), place = m % (OUT_H * OUT_W);
      const int first_row = place / OUT_W * STRIDE_H - PAD_H;
      left[i] = place % OUT_W * STRIDE_W - PAD_W;
      start[i] = (((OFFSET)image * IN_H + first_row) * IN_W + left[i]) * PIXEL + group * CHANNELS;
      top[i] = exists ? first_row : -(1 << 30);
      inside[i] = 0;
      if (!kMasks) continue;
#pragma unroll
      for (int r = 0; r < FILTER_R; ++r) inside[i] |= (u32)((u32)(top[i] + r * DILATION_H) < IN_H) << r;
#pragma unroll
      for (int s = 0; s < FILTER_S; ++s) inside[i] |= (u32)((u32)(left[i] + s * DILATION_W) < IN_W) << (16 + s);
    }
  }

  __device__ __forceinline__ bool sees(int i, int r, int s) const {
    if (kMasks) {
      const u32 bits = 1u << r | 1u << (16 + s);
      return (inside[i] & bits) == bits;
    }
    return (u32)(top[i] + r * DILATION_H) < IN_H && (u32)(left[i] + s * DILATION_W) < IN_W;
  }

  __device__ __forceinline__ void load(unsigned char* tile, const TYPE* x, int step) const {
    const int depth = step * kStep + part.part * (COPY_BYTES / kElement);
    // Where a step stays within a tap, the tap is the same for all threads.
    const int tap = CHANNELS % kStep == 0 ? step / (CHANNELS / kStep > 0 ? CHANNELS / kStep : 1) : depth / CHANNELS;
    const int r = tap / FILTER_S, s = tap % FILTER_S;
    const bool real = kDepth % kStep == 0 || depth < kDepth;
    const TYPE* from = x + ((OFFSET)(r * DILATION_H) * IN_W + s * DILATION_W) * PIXEL + (depth - tap * CHANNELS);
#pragma unroll
    for (int i = 0; i < Part::kCount; ++i) {
      if (part.exists(i)) copy<COPY_BYTES>(part.place(tile, i), from + start[i], real && sees(i, r, s));
    }
  }
};

// Copies of w.
struct Filters {
  using Part = Share<BLOCK_N, 16>;
  Part part;
  int first;  // channel of the group
  const TYPE* from;

  __device__ __forceinline__ Filters(const TYPE* w, int first_feature, int group) {
    first = first_feature + part.first;
    from = w + (long long)(group * FEATURES + first) * DEPTH + part.part * (16 / kElement);
  }

  __device__ __forceinline__ void load(unsigned char* tile, int step) const {
#pragma unroll
    for (int i = 0; i < Part::kCount; ++i) {
      const bool real = FEATURES % BLOCK_N == 0 || first + i * Part::kEvery < FEATURES;
      if (part.exists(i)) copy<16>(part.place(tile, i), from + i * Part::kEvery * DEPTH + step * kStep, real);
    }
  }
};

// Four sums on their way to the output, in shared memory: half of the eight columns from 8 * eight. Rows and halves are
// moved so that neither fragments nor whole rows meet in a bank.
__device__ __forceinline__ float4* staged(unsigned char* smem, int row, int eight, int half) {
  constexpr int kEights = BLOCK_N / 8, kMoved = kEights < 8 ? kEights - 1 : 7;
  static_assert((kEights & (kEights - 1)) == 0, "moving an index within a power of two");
  return (float4*)smem + (half * BLOCK_M + row) * kEights + (eight ^ ((row ^ half << 2) & kMoved));
}

__device__ __forceinline__ float finish(float sum, float bias, float residual) {
  if (BIAS) sum += bias;
  if (RESIDUAL) sum += residual;
  return apply<ACTIVATION>(sum, ALPHA, BETA);
}

// Eight elements as they lie in memory.
template <typename T>
struct Eight {
  uint4 words;
  __device__ __forceinline__ void get(float (&x)[8]) const {
    const float2 pairs[4] = {unpack(T(), words.x), unpack(T(), words.y), unpack(T(), words.z), unpack(T(), words.w)};
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = i % 2 == 0 ? pairs[i / 2].x : pairs[i / 2].y;
  }
  __device__ __forceinline__ void set(const float (&x)[8]) {
    words = make_uint4(pack(T(), x[0], x[1]), pack(T(), x[2], x[3]), pack(T(), x[4], x[5]), pack(T(), x[6], x[7]));
  }
};
template <>
struct Eight<float> {
  float4 halves[2];
  __device__ __forceinline__ void get(float (&x)[8]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[4 * i] = halves[i].x, x[4 * i + 1] = halves[i].y, x[4 * i + 2] = halves[i].z, x[4 * i + 3] = halves[i].w;
    }
  }
  __device__ __forceinline__ void set(const float (&x)[8]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) halves[i] = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
  }
};

// Writes the block's part of the output from the sums in shared memory.
__device__ __forceinline__ void store(unsigned char* smem, const float* bias, const TYPE* __restrict__ residual,
                                      TYPE* __restrict__ y, int first_pixel, int pixels, int first_feature, int group) {
  constexpr int kEights = BLOCK_N / 8, kRows = THREADS / kEights;
  static_assert(THREADS % kEights == 0 && BLOCK_M % kRows == 0, "every thread stores the same columns of all its rows");
  // Loads of the residual that are under way at once.
  constexpr int kAhead = BLOCK_M / kRows % 8 == 0 ? 8 : BLOCK_M / kRows % 4 == 0 ? 4 : 1;
  const int eight = threadIdx.x % kEights, feature = first_feature + eight * 8;
  if (feature >= FEATURES) return;
  const int channel = group * FEATURES + feature;
  float shift[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) shift[i] = BIAS && feature + i < FEATURES ? bias[channel + i] : 0.0f;
  for (int first = threadIdx.x / kEights; first < BLOCK_M; first += kRows * kAhead) {
    const int m = first_pixel + first;
    const long long at = (long long)m * OUT_CHANNELS + channel;
    if (FEATURES % 8 == 0) {
      Eight<TYPE> old[kAhead];
#pragma unroll
      for (int j = 0; RESIDUAL && j < kAhead; ++j) {
        if (m + j * kRows < pixels) old[j] = *(const Eight<TYPE>*)(residual + at + j * kRows * OUT_CHANNELS);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (m + j * kRows >= pixels) return;
        const float4 low = *staged(smem, first + j * kRows, eight, 0), high = *staged(smem, first + j * kRows, eight, 1);
        float sums[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}, added[8] = {};
        if (RESIDUAL) old[j].get(added);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i] = finish(sums[i], shift[i], added[i]);
        ((Eight<TYPE>*)(y + at + j * kRows * OUT_CHANNELS))->set(sums);
      }
    } else {
      for (int j = 0; j < kAhead; ++j) {
        if (m + j * kRows >= pixels) return;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (feature + i >= FEATURES) break;
          const long long element = at + j * kRows * OUT_CHANNELS + i;
          const float sum = (&staged(smem, first + j * kRows, eight, i / 4)->x)[i % 4];
          store_as(y + element, finish(sum, shift[i], RESIDUAL ? to_float(residual[element]) : 0.0f));
        }
      }
    }
  }
}
