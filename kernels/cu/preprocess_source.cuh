// From planes to RGB samples in shared memory. Arithmetic and names as in kernels/src/cpu/planes.rs: libjpeg's. Two
// samples go through it side by side, 16 bits each.
#pragma once
#include "preprocess.cuh"

// Sixteen pixels next to one another: a byte a sample, by channel.
struct Pixels {
  u32 word[3][4];
};

// Planes and their pitches are at multiples of 16, and all of a pitch may be read.
__device__ __forceinline__ const u8* row_of(const Picture& p, int plane, int y) {
  return (const u8*)p.plane[plane] + (u64)y * p.pitch[plane];
}

// N words in one access.
template <int N>
__device__ __forceinline__ void load_words(const u8* from, u32 (&out)[N]) {
  static_assert(N == 1 || N == 2 || N == 4, "what one access reads");
  if constexpr (N == 4) {
    uint4 v = __ldg((const uint4*)from);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
  } else if constexpr (N == 2) {
    uint2 v = __ldg((const uint2*)from);
    out[0] = v.x, out[1] = v.y;
  } else {
    out[0] = __ldg((const u32*)from);
  }
}

// Makes the bytes from the nth on what the one before is, n >= 1.
template <int N>
__device__ __forceinline__ void repeat_last(u32 (&words)[N], int n) {
  u32 last = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (n > 4 * i) last = words[i] >> (8 * (n - 4 * i < 4 ? n - 4 * i - 1 : 3));
  last = (last & 255) * 0x01010101u;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    u32 kept = n >= 4 * i + 4 ? 0xffffffffu : n <= 4 * i ? 0u : (1u << (8 * (n - 4 * i))) - 1;
    words[i] = (words[i] & kept) | (last & ~kept);
  }
}

// One component's samples of two chroma rows, those that 16 columns of luma have: N, and one more on either side.
template <int SHIFT>
struct Chroma {
  static constexpr int N = 16 >> SHIFT;
  u32 row[2][N / 4];
  u32 beside[2];  // before the first and behind the last, 16 bits each
};

// Chroma of two luma rows next to one another, the upper one odd. Where rows are interpolated, the nearer chroma row of
// one is the farther of the other. SHIFT is p.shift_x, SMOOTH whether columns are interpolated.
template <int SHIFT, bool SMOOTH>
__device__ __forceinline__ void load_chroma(const Picture& p, int x, int y, Chroma<SHIFT> (&out)[2]) {
  constexpr int N = 16 >> SHIFT;
  const int column = x >> SHIFT, n = p.chroma_width, last = p.chroma_height - 1;
  const bool two = SHIFT == 1 && p.format == kNv12;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int row = (y + i) >> p.shift_y;
    row = row < 0 ? 0 : row > last ? last : row;
    const u8* from[2] = {row_of(p, 1, row) + (column << two), two ? nullptr : row_of(p, 2, row) + column};
    if (two) {
      u32 both[4];
      load_words(from[0], both);
#pragma unroll
      for (int k = 0; k < N / 4; ++k) {
        out[0].row[i][k] = permute_bytes(both[(2 * k) % 4], both[(2 * k + 1) % 4], 0x6420);
        out[1].row[i][k] = permute_bytes(both[(2 * k) % 4], both[(2 * k + 1) % 4], 0x7531);
      }
      from[1] = from[0] + 1;
    } else {
      load_words(from[0], out[0].row[i]);
      load_words(from[1], out[1].row[i]);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (!SMOOTH) continue;
      // The last sample again where the row ends.
      const u32 before = column > 0 ? __ldg(from[c] - (1 << two)) : out[c].row[i][0] & 255;
      const u32 behind = column + N < n ? __ldg(from[c] + (N << two)) : out[c].row[i][N / 4 - 1] >> 24;
      out[c].beside[i] = before | behind << 16;
    }
  }
  if (column + N > n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u32(&row)[N / 4] = out[i / 2].row[i % 2];
      repeat_last(row, n - column);
      out[i / 2].beside[i % 2] = permute_bytes(out[i / 2].beside[i % 2], row[N / 4 - 1], 0x3710);
    }
  }
}

// The component at 16 pixels of a row (0: the upper one), in pairs: word 2 q is of the pixels 4 q and 4 q + 2, word
// 2 q + 1 of the others of these four. Each has 8 fractional bits: bytes 1 and 3 are wanted.
template <int SHIFT, bool SMOOTH>
__device__ __forceinline__ void interpolate(const Picture& p, const Chroma<SHIFT>& chroma, int row, u32 (&out)[8]) {
  constexpr u32 kBoth = 0x00010001u;
  // The upper row is odd.
  const u32 above = row ? p.far_weight : p.near_weight, below = row ? p.near_weight : p.far_weight;
  const u32 bias = p.row_bias[1 - row] * kBoth;
  auto sum = [&](u32 upper, u32 lower) { return above * upper + (below * lower + bias); };
  if constexpr (SHIFT == 1) {
    u32 sums[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const u32 selector = k % 2 ? 0x4342 : 0x4140;
      sums[k] = sum(permute_bytes(chroma.row[0][k / 2], 0, selector), permute_bytes(chroma.row[1][k / 2], 0, selector));
    }
    if constexpr (SMOOTH) {
      const u32 odd = p.odd_bias * kBoth;
      const u32 ends = sum(chroma.beside[0], chroma.beside[1]);
      u32 beside = permute_bytes(ends, sums[0], 0x5410);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        out[2 * k] = 3 * sums[k] + beside;
        beside = k < 3 ? permute_bytes(sums[k], sums[(k + 1) % 4], 0x5432) : permute_bytes(sums[k], ends, 0x7632);
        out[2 * k + 1] = 3 * sums[k] + (beside + odd);
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) out[2 * k] = out[2 * k + 1] = sums[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      // Every sample is of one pixel, or of four.
      const u32 selector = SHIFT == 0 ? (k % 2 ? 0x4341 : 0x4240) : 0x4040 + 0x0101 * (k / 2);
      const int word = SHIFT == 0 ? k / 2 : 0;
      out[k] = sum(permute_bytes(chroma.row[0][word % (4 >> SHIFT)], 0, selector),
                   permute_bytes(chroma.row[1][word % (4 >> SHIFT)], 0, selector));
    }
  }
}

// BT.601, full range, with the results of libjpeg's fixed point of 16 fractional bits. For red and blue binary16 is
// enough: 1280 + y + c t is rounded to whole numbers there, and with these constants, for every chroma sample x,
// t = fma(1024 + x, scale, offset) makes the same number of it as rounding 1.402 (x - 128) or 1.772 (x - 128) does.
struct ToColour {
  u32 scale, offset, factor;  // binary16, twice
};
constexpr ToColour kToRed = {0x3e383e38u, 0xe6ffe6ffu, 0x3b373b37u};   // 1.5546875, -1791, 0.90185546875
constexpr ToColour kToBlue = {0x3ca83ca8u, 0xe53de53du, 0x3e173e17u};  // 1.1640625, -1341, 1.5224609375

// Two of red or blue as 16 bits each. `luma` and `chroma` are binary16, 1280 + y and 1024 + x.
__device__ __forceinline__ u32 red_or_blue(const Settings& s, u32 luma, u32 chroma, ToColour to) {
  return add_cut_u8x2(fma_f16x2(fma_f16x2(chroma, to.scale, to.offset), to.factor, luma), s.minus_f16);
}

// Green likewise; `chroma_bytes` are Cb, Cr, Cb, Cr.
//
// With the weights' complements to 65536, the upper half of the sum of products is Cb + Cr too large. Taking that from
// the luma makes the lower of two halves negative, so that it borrows one from the upper one.
__device__ __forceinline__ u32 green(u32 luma, u32 cb, u32 cr, u32 chroma_bytes) {
  constexpr u32 kCb = 22554, kCr = 46802, kWeights = (65536 - kCb) | (65536 - kCr) << 16;
  constexpr u32 kBias = (1u << 15) + 128 * (kCb + kCr), kUnbias = 2 * 0x6400 - 0x6500;
  const u32 first = dot_2_low(kWeights, chroma_bytes, kBias + (kUnbias << 16));
  const u32 second = dot_2_high(kWeights, chroma_bytes, kBias + ((kUnbias + 1) << 16));
  return add_cut_u8x2(permute_bytes(first, second, 0x7632), luma - cb - cr);
}

// Colours of four pixels, the chroma as `interpolate` gives it.
__device__ __forceinline__ void colours(const Settings& s, u32 luma, const u32* cb, const u32* cr, u32& red_out, u32& green_out,
                                        u32& blue_out) {
  u32 channel[3][2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 y = permute_bytes(luma, s.f16_bytes, i ? 0x5351 : 0x5250);
    const u32 b = permute_bytes(cb[i], s.f16_bytes, 0x4341), r = permute_bytes(cr[i], s.f16_bytes, 0x4341);
    channel[0][i] = red_or_blue(s, y, r, kToRed);
    channel[1][i] = green(y, b, r, permute_bytes(cb[i], cr[i], 0x7351));
    channel[2][i] = red_or_blue(s, y, b, kToBlue);
  }
  red_out = permute_bytes(channel[0][0], channel[0][1], 0x6240);
  green_out = permute_bytes(channel[1][0], channel[1][1], 0x6240);
  blue_out = permute_bytes(channel[2][0], channel[2][1], 0x6240);
}

__device__ __forceinline__ Pixels load_rgb(const Picture& p, int x, int y) {
  Pixels out;
  u32 word[3][4] = {};
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (3 * x + 16 * i < (int)p.pitch[0]) load_words(row_of(p, 0, y) + 3 * x + 16 * i, word[i]);
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    u32 a = word[3 * q / 4][3 * q % 4], b = word[(3 * q + 1) / 4][(3 * q + 1) % 4], c = word[(3 * q + 2) / 4][(3 * q + 2) % 4];
    out.word[0][q] = permute_bytes(permute_bytes(a, b, 0x0630), c, 0x5210);
    out.word[1][q] = permute_bytes(permute_bytes(a, b, 0x0741), c, 0x6210);
    out.word[2][q] = permute_bytes(permute_bytes(a, b, 0x0052), c, 0x7410);
  }
  return out;
}

// Hands pixels x..x+15 of the rows y and y + 1 to `store(row, pixels)`; x is a multiple of 16 within the row, y is odd. What
// lies past a row's end, or is of a row that the picture has not, is arbitrary.
template <int SHIFT, bool SMOOTH, class Store>
__device__ __forceinline__ void load_ycc(const Picture& p, const Settings& s, int x, int y, Store store) {
  const u8* upper = row_of(p, 0, y < 0 ? 0 : y) + x;
  const u8* lower = row_of(p, 0, y + 1 < p.height ? y + 1 : y) + x;
  u32 luma[2][4];
  Chroma<SHIFT> chroma[2];
  if (SHIFT > 0) {
    load_words(upper, luma[0]);
    load_words(lower, luma[1]);
    load_chroma<SHIFT, SMOOTH>(p, x, y, chroma);
  }
  // One after the other, for there are not registers enough for both.
#pragma unroll 1
  for (int row = 0; row < 2; ++row) {
    // With as much chroma as luma there are not registers enough for that of both rows.
    if (SHIFT == 0) {
      load_words(row ? lower : upper, luma[0]);
      load_chroma<SHIFT, SMOOTH>(p, x, y, chroma);
    }
    u32 cb[8], cr[8];
    interpolate<SHIFT, SMOOTH>(p, chroma[0], row, cb);
    interpolate<SHIFT, SMOOTH>(p, chroma[1], row, cr);
    Pixels out;
#pragma unroll
    for (int q = 0; q < 4; ++q)
      colours(s, row && SHIFT > 0 ? luma[1][q] : luma[0][q], cb + 2 * q, cr + 2 * q, out.word[0][q], out.word[1][q], out.word[2][q]);
    store(row, out);
  }
}

template <class Store>
__device__ __forceinline__ void load_pixels(const Picture& p, const Settings& s, int x, int y, Store store) {
  if (p.format >= kPlanar) {
    if (p.smooth) return load_ycc<1, true>(p, s, x, y, store);
    if (p.shift_x == 1) return load_ycc<1, false>(p, s, x, y, store);
    if (p.shift_x == 0) return load_ycc<0, false>(p, s, x, y, store);
    return load_ycc<2, false>(p, s, x, y, store);
  }
#pragma unroll 1
  for (int row = y < 0 ? 1 : 0; row < 2 && y + row < p.height; ++row) {
    Pixels out;
    if (p.format == kRgb) {
      out = load_rgb(p, x, y + row);
    } else {
      load_words(row_of(p, 0, y + row) + x, out.word[0]);
#pragma unroll
      for (int q = 0; q < 4; ++q) out.word[1][q] = out.word[2][q] = out.word[0][q];
    }
    store(row, out);
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
#pragma unroll
  for (int q = 0; q < 4; ++q) {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      int at_x = x + 4 * q + i;
      if (at_x < s.from_x || at_x >= s.end_x) continue;
      int turned_x = p.flip_x ? p.width - 1 - at_x : at_x;
      int u = p.swap ? turned_y : turned_x, v = p.swap ? turned_x : turned_y;
      u8* at = first + (v - w.v) * p.line + (u - w.u);
#pragma unroll
      for (int c = 0; c < 3; ++c) at[c * next] = (u8)(pixels.word[c][q] >> (8 * i));
    }
  }
}

// Puts a window's samples into shared memory, a channel every `plane` bytes, in the order of the network's input. The
// window starts at a multiple of 16; up to 15 samples behind each row are written as well.
__device__ __forceinline__ void load_window(const Picture& p, const Settings& settings, const Window& w, u8* to, int plane) {
  // In registers: from shared memory they would be read again behind every sample that is written there.
  const Settings s = settings;
  const Stored area = stored(p, w);
  int aligned_x = area.from_x & ~15, first_y = ((area.from_y + 1) & ~1) - 1;
  const u32 groups = (area.end_x - aligned_x + 15) / 16;
  // The upper half of n + 1 times this is n / groups, where n and groups are small.
  const u32 inverse = 0xffffffffu / groups;
  bool straight = !p.swap && !p.flip_x;
  u8* first = to + (s.reversed ? 2 * plane : 0);
  int next = s.reversed ? -plane : plane;
  for (u32 n = threadIdx.x;; n += blockDim.x) {
    const u32 down = (u32)((u64)(n + 1) * inverse >> 32);
    const int x = aligned_x + 16 * (int)(n - down * groups), y = first_y + 2 * (int)down;
    if (y >= area.end_y) return;
    load_pixels(p, s, x, y, [&](int row, const Pixels& pixels) {
      if (y + row < area.from_y || y + row >= area.end_y) return;
      if (straight) {
        u8* at = first + ((p.flip_y ? p.height - 1 - y - row : y + row) - w.v) * p.line + (x - w.u);
#pragma unroll
        for (int c = 0; c < 3; ++c) {
          const u32(&word)[4] = pixels.word[c];
          *(uint4*)(at + c * next) = make_uint4(word[0], word[1], word[2], word[3]);
        }
      } else {
        scatter(p, w, pixels, x, y + row, first, next);
      }
    });
  }
}
