// From planes to RGB samples in shared memory. Arithmetic and names as in kernels/src/cpu/planes.rs: libjpeg's.
#pragma once
#include "preprocess.cuh"

// Eight pixels next to one another: a byte a sample, by channel.
struct Pixels {
  u32 lo[3];
  u32 hi[3];
};

__device__ __forceinline__ int byte_of(u32 word, int i) { return (word >> (8 * i)) & 255; }

// Samples x..x+3 of a row of n, the last one repeated.
__device__ __forceinline__ u32 load_4(const u8* row, int x, int n, int vector) {
  if (vector && x + 4 <= n) return __ldg((const u32*)(row + x));
  u32 word = 0;
#pragma unroll 1
  for (int i = 0; i < 4; ++i) word |= (u32)__ldg(row + (x + i < n ? x + i : n - 1)) << (8 * i);
  return word;
}

__device__ __forceinline__ const u8* row_of(const Picture& p, int plane, int y) {
  return (const u8*)p.plane[plane] + (u64)y * p.pitch[plane];
}

// Cb in the low half, Cr in the high one.
__device__ __forceinline__ u32 chroma_sample(const Picture& p, int row, int column) {
  if (p.format == kNv12) {
    const u8* at = row_of(p, 1, row) + 2 * column;
    return __ldg(at) | (u32)__ldg(at + 1) << 16;
  }
  return __ldg(row_of(p, 1, row) + column) | (u32)__ldg(row_of(p, 2, row) + column) << 16;
}

// Chroma samples of N columns from `column` on, a multiple of N, to out[1..N]. The last of the row is repeated.
template <int N>
__device__ __forceinline__ void chroma_samples(const Picture& p, int row, int column, u32 (&out)[N + 2]) {
  if constexpr (N >= 4) {
    if (p.vector && column + N <= p.chroma_width) {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        u32 cb, cr;
        if (p.format == kNv12) {
          const u32* at = (const u32*)(row_of(p, 1, row) + 2 * (column + i));
          u32 lo = __ldg(at), hi = __ldg(at + 1);
          cb = permute_bytes(lo, hi, 0x6420);
          cr = permute_bytes(lo, hi, 0x7531);
        } else {
          cb = __ldg((const u32*)(row_of(p, 1, row) + column + i));
          cr = __ldg((const u32*)(row_of(p, 2, row) + column + i));
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) out[1 + i + k] = permute_bytes(cb, cr, 0x0400 + 0x0101 * k) & 0x00ff00ff;
      }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    int at = column + i;
    out[1 + i] = chroma_sample(p, row, at < p.chroma_width ? at : p.chroma_width - 1);
  }
}

// Chroma of two luma rows next to one another, the upper one odd: samples of column x / 2^SHIFT - 1 + i. Where rows are
// interpolated, the nearer chroma row of one is the farther of the other. SHIFT is p.shift_x.
template <int SHIFT>
struct Chroma {
  static constexpr int N = 8 >> SHIFT;
  u32 upper[N + 2], lower[N + 2];
  bool smooth;

  __device__ __forceinline__ void load(const Picture& p, int x, int y) {
    int last = p.chroma_height - 1, first = y >> p.shift_y, second = (y + 1) >> p.shift_y;
    first = first < 0 ? 0 : first;
    second = second < last ? second : last;
    chroma_samples<N>(p, first, x >> SHIFT, upper);
    chroma_samples<N>(p, second, x >> SHIFT, lower);
    smooth = SHIFT == 1 && p.smooth;
    if (!smooth) return;
    int before = (x >> SHIFT) - 1, behind = (x >> SHIFT) + N;
    before = before < 0 ? 0 : before;
    behind = behind < p.chroma_width ? behind : p.chroma_width - 1;
    upper[0] = chroma_sample(p, first, before);
    upper[N + 1] = chroma_sample(p, first, behind);
    lower[0] = chroma_sample(p, second, before);
    lower[N + 1] = chroma_sample(p, second, behind);
  }

  // Cb and Cr of the pixels x..x+7 of a row (0: upper): bytes 1 and 3 of each word. Sums have 8 fractional bits in the
  // end; Cb and Cr do not disturb one another, each stays below 2^16.
  __device__ __forceinline__ void interpolate(const Picture& p, int row, u32 (&out)[8]) const {
    constexpr u32 kBoth = 0x00010001u;
    u32 near = p.near_weight, far = p.far_weight;
    u32 sum[N + 2];
#pragma unroll
    for (int i = 0; i < N + 2; ++i) {
      if (!smooth && (i == 0 || i == N + 1)) continue;
      sum[i] = near * (row ? lower[i] : upper[i]) + far * (row ? upper[i] : lower[i]);
    }
    if (smooth) {
      u32 even_bias = p.column_bias[0] * kBoth, odd_bias = p.column_bias[1] * kBoth;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        out[2 * i % 8] = 3 * sum[i + 1] + (sum[i] + even_bias);
        out[(2 * i + 1) % 8] = 3 * sum[i + 1] + (sum[i + 2] + odd_bias);
      }
    } else {
      // The upper row is odd.
      u32 bias = p.row_bias[1 - row] * kBoth;
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] = sum[1 + (i >> SHIFT)] + bias;
    }
  }
};

// BT.601, full range, 16 fractional bits.
__device__ __forceinline__ void colours(u32 luma, const u32* chroma, u32& red, u32& green, u32& blue) {
  constexpr int kHalf = 1 << 15, kRed = 91881, kGreenCb = 22554, kGreenCr = 46802, kBlue = 116130;
  int r[4], g[4], b[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    int y = byte_of(luma, i), cb = byte_of(chroma[i], 1), cr = byte_of(chroma[i], 3);
    r[i] = y + ((kRed * cr + (kHalf - 128 * kRed)) >> 16);
    g[i] = y + ((kHalf + 128 * (kGreenCb + kGreenCr) - kGreenCb * cb - kGreenCr * cr) >> 16);
    b[i] = y + ((kBlue * cb + (kHalf - 128 * kBlue)) >> 16);
  }
  red = pack_u8(r[0], r[1], r[2], r[3]);
  green = pack_u8(g[0], g[1], g[2], g[3]);
  blue = pack_u8(b[0], b[1], b[2], b[3]);
}

__device__ __forceinline__ Pixels load_rgb(const Picture& p, int x, int y) {
  const u8* row = row_of(p, 0, y);
  Pixels out;
  u32 word[6];
#pragma unroll
  for (int i = 0; i < 6; ++i) word[i] = load_4(row, 3 * x + 4 * i, 3 * p.width, p.vector);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 a = word[3 * half], b = word[3 * half + 1], c = word[3 * half + 2];
    u32* to = half ? out.hi : out.lo;
    to[0] = permute_bytes(permute_bytes(a, b, 0x0630), c, 0x5210);
    to[1] = permute_bytes(permute_bytes(a, b, 0x0741), c, 0x6210);
    to[2] = permute_bytes(permute_bytes(a, b, 0x0052), c, 0x7410);
  }
  return out;
}

__device__ __forceinline__ void load_luma(const Picture& p, int x, int y, u32 (&luma)[2]) {
  const u8* row = row_of(p, 0, y);
  luma[0] = load_4(row, x, p.width, p.vector);
  luma[1] = load_4(row, x + 4, p.width, p.vector);
}

// Hands pixels x..x+7 of those of the rows y and y + 1 that are `wanted` to `store(row, pixels)`; x is a multiple of 8
// within the row, y is odd. What lies past a row's end is arbitrary.
template <int SHIFT, class Store>
__device__ __forceinline__ void load_ycc(const Picture& p, int x, int y, const bool (&wanted)[2], Store store) {
  u32 luma[2][2] = {};
  if (wanted[0]) load_luma(p, x, y, luma[0]);
  if (wanted[1]) load_luma(p, x, y + 1, luma[1]);
  Chroma<SHIFT> chroma;
  chroma.load(p, x, y);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    if (!wanted[row]) continue;
    u32 both[8];
    chroma.interpolate(p, row, both);
    Pixels out;
    colours(luma[row][0], both, out.lo[0], out.lo[1], out.lo[2]);
    colours(luma[row][1], both + 4, out.hi[0], out.hi[1], out.hi[2]);
    store(row, out);
  }
}

template <class Store>
__device__ __forceinline__ void load_pixels(const Picture& p, int x, int y, const bool (&wanted)[2], Store store) {
  if (p.format >= kPlanar) {
    if (p.shift_x == 1) return load_ycc<1>(p, x, y, wanted, store);
    if (p.shift_x == 0) return load_ycc<0>(p, x, y, wanted, store);
    return load_ycc<2>(p, x, y, wanted, store);
  }
#pragma unroll 1
  for (int row = wanted[0] ? 0 : 1; row < (wanted[1] ? 2 : 1); ++row) {
    if (p.format == kRgb) {
      store(row, load_rgb(p, x, y + row));
    } else {
      u32 luma[2];
      load_luma(p, x, y + row, luma);
      store(row, Pixels{{luma[0], luma[0], luma[0]}, {luma[1], luma[1], luma[1]}});
    }
  }
}

// A rectangle of samples: columns u, rows v.
struct Window {
  int u, v;
  int columns, rows;
};

// Where a window lies in the picture as it is stored.
struct Stored {
  int from_x, end_x;
  int from_y, end_y;
};

__device__ __forceinline__ Stored stored(const Picture& p, const Window& w) {
  int x = p.swap ? w.v : w.u, y = p.swap ? w.u : w.v;
  int columns = p.swap ? w.rows : w.columns, rows = p.swap ? w.columns : w.rows;
  if (p.flip_x) x = p.width - x - columns;
  if (p.flip_y) y = p.height - y - rows;
  return Stored{x, x + columns, y, y + rows};
}

// Asks for a window's samples, so that they are near by when they are read.
__device__ __forceinline__ void prefetch_window(const Picture& p, const Window& w) {
  constexpr int kLine = 128;
  Stored s = stored(p, w);
  int planes = p.format == kPlanar ? 3 : p.format == kNv12 ? 2 : 1;
#pragma unroll 1
  for (int plane = 0; plane < planes; ++plane) {
    int shift_x = plane ? p.shift_x : 0, shift_y = plane ? p.shift_y : 0;
    int bytes = p.format == kRgb ? 3 : plane && p.format == kNv12 ? 2 : 1;
    int from = (s.from_x >> shift_x) * bytes, end = ((s.end_x - 1) >> shift_x) * bytes + bytes;
    int first = s.from_y >> shift_y, rows = ((s.end_y - 1) >> shift_y) - first + 1;
    for (int row = threadIdx.x; row < rows; row += blockDim.x)
#pragma unroll 1
      for (int at = from; at < end; at += kLine) prefetch(row_of(p, plane, first + row) + at);
  }
}

// Writes one pixel after the other to its place: for turned pictures.
__device__ __forceinline__ void scatter(const Picture& p, const Window& w, const Pixels& pixels, int x, int y, u8* first,
                                        int next) {
  Stored s = stored(p, w);
  int turned_y = p.flip_y ? p.height - 1 - y : y;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    if (x + i < s.from_x || x + i >= s.end_x) continue;
    int turned_x = p.flip_x ? p.width - 1 - x - i : x + i;
    int u = p.swap ? turned_y : turned_x, v = p.swap ? turned_x : turned_y;
    int at = (v - w.v) * p.line + (u - w.u);
#pragma unroll
    for (int c = 0; c < 3; ++c) first[at + c * next] = (u8)byte_of(i < 4 ? pixels.lo[c] : pixels.hi[c], i & 3);
  }
}

// Puts a window's samples into shared memory, a channel every `plane` bytes, in the order of the network's input. The
// window starts at a multiple of 8; up to 7 samples behind each row are written as well.
__device__ __forceinline__ void load_window(const Picture& p, const Window& w, int reversed, u8* to, int plane) {
  Stored s = stored(p, w);
  int aligned_x = s.from_x & ~7, first_y = ((s.from_y + 1) & ~1) - 1;
  int groups = (s.end_x - aligned_x + 7) / 8;
  int across = (int)threadIdx.x % groups, down = (int)threadIdx.x / groups;
  int step_across = (int)blockDim.x % groups, step_down = (int)blockDim.x / groups;
  bool straight = !p.swap && !p.flip_x;
  u8* first = to + (reversed ? 2 * plane : 0);
  int next = reversed ? -plane : plane;
  while (first_y + 2 * down < s.end_y) {
    int x = aligned_x + 8 * across, y = first_y + 2 * down;
    const bool wanted[2] = {y >= s.from_y, y + 1 < s.end_y};
    load_pixels(p, x, y, wanted, [&](int row, const Pixels& pixels) {
      if (straight) {
        int at = ((p.flip_y ? p.height - 1 - y - row : y + row) - w.v) * p.line + (x - w.u);
#pragma unroll
        for (int c = 0; c < 3; ++c) *(uint2*)(first + at + c * next) = make_uint2(pixels.lo[c], pixels.hi[c]);
      } else {
        scatter(p, w, pixels, x, y + row, first, next);
      }
    });
    across += step_across;
    down += step_down;
    if (across >= groups) {
      across -= groups;
      ++down;
    }
  }
}
