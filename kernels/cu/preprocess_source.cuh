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
  return (const u8*)p.plane[plane] + (u64)(u32)y * p.pitch[plane];
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

// Makes the elements from the nth on what the one before is, n >= 1; of BITS bits each, 8 or 16.
template <int BITS, int N>
__device__ __forceinline__ void repeat_last(u32 (&words)[N], int n) {
  constexpr int kOfWord = 32 / BITS;
  constexpr u32 kMask = (1u << BITS) - 1;
  u32 last = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (n > kOfWord * i) last = words[i] >> (BITS * (n - kOfWord * i < kOfWord ? n - kOfWord * i - 1 : kOfWord - 1));
  last = (last & kMask) * (0xffffffffu / kMask);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    u32 kept = n >= kOfWord * i + kOfWord ? 0xffffffffu : n <= kOfWord * i ? 0u : (1u << (BITS * (n - kOfWord * i))) - 1;
    words[i] = (words[i] & kept) | (last & ~kept);
  }
}

// The chroma row of a luma row.
__device__ __forceinline__ int chroma_row(const Picture& p, int y) {
  const int row = y >> p.shift_y, last = p.chroma_height - 1, before_end = row < last ? row : last;
  return before_end > 0 ? before_end : 0;
}

// One component's samples of two chroma rows, those that 16 columns of luma have.
template <int SHIFT>
struct Chroma {
  static constexpr int N = 16 >> SHIFT;
  u32 row[2][N / 4];
};

// Chroma of two luma rows next to one another, the upper one odd. Where rows are interpolated, the nearer chroma row of
// one is the farther of the other. SHIFT is p.shift_x.
template <int SHIFT>
__device__ __forceinline__ void load_chroma(const Picture& p, int x, int y, Chroma<SHIFT> (&out)[2]) {
  constexpr int N = 16 >> SHIFT;
  const int column = x >> SHIFT, n = p.chroma_width;
  const bool two = SHIFT == 1 && p.format == kNv12;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = chroma_row(p, y + i);
    if (two) {
      u32 both[4];
      load_words(row_of(p, 1, row) + (u32)(2 * column), both);
#pragma unroll
      for (int k = 0; k < N / 4; ++k) {
        out[0].row[i][k] = permute_bytes(both[(2 * k) % 4], both[(2 * k + 1) % 4], 0x6420);
        out[1].row[i][k] = permute_bytes(both[(2 * k) % 4], both[(2 * k + 1) % 4], 0x7531);
      }
    } else {
      load_words(row_of(p, 1, row) + (u32)column, out[0].row[i]);
      load_words(row_of(p, 2, row) + (u32)column, out[1].row[i]);
    }
  }
  if (column + N > n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) repeat_last<8>(out[i / 2].row[i % 2], n - column);
  }
}

// The component at 16 pixels of a row (0: the upper one), where columns are not interpolated, in pairs: word 2 q is of the
// pixels 4 q and 4 q + 2, word 2 q + 1 of the others of these four. Each has 8 fractional bits: bytes 1 and 3 are wanted.
template <int SHIFT>
__device__ __forceinline__ void interpolate(const Picture& p, const Chroma<SHIFT>& chroma, int row, u32 (&out)[8]) {
  // The upper row is odd.
  const u32 above = row ? p.far_weight : p.near_weight, below = row ? p.near_weight : p.far_weight;
  const u32 bias = p.row_bias[1 - row];
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    // Every sample is of one pixel, of two, or of four.
    const u32 selector = SHIFT == 0 ? (k % 2 ? 0x4341 : 0x4240) : SHIFT == 1 ? 0x4140 + 0x0202 * (k / 2 % 2) : 0x4040 + 0x0101 * (k / 2);
    const int word = SHIFT == 0 ? k / 2 : SHIFT == 1 ? k / 4 : 0;
    const u32 upper = permute_bytes(chroma.row[0][word], 0, selector), lower = permute_bytes(chroma.row[1][word], 0, selector);
    out[k] = above * upper + (below * lower + bias);
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

// Colours of two pixels by channel, 16 bits each; `luma` is binary16, 1280 + y, `chroma` is Cb, Cr, Cb, Cr.
__device__ __forceinline__ void colours(const Settings& s, u32 luma, u32 chroma, u32 (&out)[3]) {
  const u32 cb = permute_bytes(chroma, s.f16_bytes, 0x4240), cr = permute_bytes(chroma, s.f16_bytes, 0x4341);
  out[0] = red_or_blue(s, luma, cr, kToRed);
  out[1] = green(luma, cb, cr, chroma);
  out[2] = red_or_blue(s, luma, cb, kToBlue);
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

// Pixels x..x+15 of row `row` (0: the upper one) of the rows y and y + 1; x is a multiple of 16 within the row, y is odd. What
// lies past a row's end is arbitrary.
template <int SHIFT>
__device__ __forceinline__ Pixels load_ycc(const Picture& p, const Settings& s, int x, int y, int row) {
  u32 luma[4];
  Chroma<SHIFT> chroma[2];
  load_words(row_of(p, 0, y + row) + (u32)x, luma);
  load_chroma(p, x, y, chroma);
  u32 cb[8], cr[8];
  interpolate<SHIFT>(p, chroma[0], row, cb);
  interpolate<SHIFT>(p, chroma[1], row, cr);
  Pixels out;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    u32 pair[2][3];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      colours(s, permute_bytes(luma[q], s.f16_bytes, i ? 0x5351 : 0x5250),
              permute_bytes(cb[2 * q + i], cr[2 * q + i], 0x7351), pair[i]);
#pragma unroll
    for (int c = 0; c < 3; ++c) out.word[c][q] = pair[0][c] + pair[1][c] * 256;
  }
  return out;
}

// The same of any picture whose chroma is not interpolated along rows.
__device__ __forceinline__ Pixels load_pixels(const Picture& p, const Settings& s, int x, int y, int row) {
  if (p.format >= kPlanar) {
    if (p.shift_x == 1) return load_ycc<1>(p, s, x, y, row);
    if (p.shift_x == 0) return load_ycc<0>(p, s, x, y, row);
    return load_ycc<2>(p, s, x, y, row);
  }
  if (p.format == kRgb) return load_rgb(p, x, y + row);
  Pixels out;
  load_words(row_of(p, 0, y + row) + (u32)x, out.word[0]);
#pragma unroll
  for (int q = 0; q < 4; ++q) out.word[1][q] = out.word[2][q] = out.word[0][q];
  return out;
}

// Cb and Cr of two chroma rows, those that 16 columns of luma have where there are half as many.
struct Interleaved {
  u32 row[2][4];     // Cb, Cr, Cb, Cr
  u32 beside[2][2];  // Cb and Cr of the columns before and behind, 16 bits each; arbitrary where the row ends
};

__device__ __forceinline__ Interleaved load_interleaved(const Picture& p, int x, int y) {
  Interleaved out;
  const int column = x >> 1, n = p.chroma_width;
  const bool first = x == 0, last = column + 8 >= n;
  if (p.format == kNv12) {
    const u8* plane = (const u8*)p.plane[1] + (u32)x;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u8* from = plane + (u64)(u32)chroma_row(p, y + i) * p.pitch[1];
      u32 before = 0, behind = 0;
      load_words(from, out.row[i]);
      if (!first) before = __ldg((const u16*)from - 1);
      if (!last) behind = __ldg((const u16*)from + 8);
      out.beside[i][0] = permute_bytes(before, 0, 0x4140), out.beside[i][1] = permute_bytes(behind, 0, 0x4140);
    }
  } else {
    const u8* planes[2] = {(const u8*)p.plane[1] + (u32)column, (const u8*)p.plane[2] + (u32)column};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const u32 row = (u32)chroma_row(p, y + i);
      u32 words[2][2], before[2] = {}, behind[2] = {};
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const u8* from = planes[c] + (u64)row * p.pitch[1 + c];
        load_words(from, words[c]);
        if (!first) before[c] = __ldg(from - 1);
        if (!last) behind[c] = __ldg(from + 8);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) out.row[i][k] = permute_bytes(words[0][k / 2], words[1][k / 2], k % 2 ? 0x7362 : 0x5140);
      out.beside[i][0] = before[0] + before[1] * 65536, out.beside[i][1] = behind[0] + behind[1] * 65536;
    }
  }
  if (column + 8 > n) {
    repeat_last<16>(out.row[0], n - column);
    repeat_last<16>(out.row[1], n - column);
  }
  return out;
}

// Both rows where chroma has half as many columns and they are interpolated: at once, for what they share. What is of a row
// that the picture has not is arbitrary.
// TWO_ROWS: rows are interpolated too.
template <bool TWO_ROWS>
__device__ __forceinline__ void load_smooth(const Picture& p, const Settings& s, int x, int y, Pixels (&out)[2]) {
  const int last_row = p.height - 1;
  u32 luma[2][4];
  load_words(row_of(p, 0, y > 0 ? y : 0) + (u32)x, luma[0]);
  load_words(row_of(p, 0, y < last_row ? y + 1 : last_row) + (u32)x, luma[1]);
  const Interleaved chroma = load_interleaved(p, x, y);
  // Of the nearer and the next chroma row; four of these sums are added up to 256 times a sample. Rounded are 8 / 16 in even
  // columns and 7 / 16 in odd ones, or 1 / 4 and 2 / 4.
  constexpr u32 kBoth = 0x00010001u;
  constexpr u32 near = TWO_ROWS ? 48 : 64, far = TWO_ROWS ? 16 : 0, bias = (TWO_ROWS ? 128 : 64) / 4 * kBoth;
  constexpr u32 odd = (TWO_ROWS ? 112u - 128u : 128u - 64u) * kBoth;
  // Cb and Cr of a column for each row, 16 bits each.
  auto sum = [&](u32 upper, u32 lower, u32(&to)[2]) {
    to[0] = near * upper + (far * lower + bias);
    to[1] = near * lower + (far * upper + bias);
  };
  auto column = [&](int n, u32(&to)[2]) {
    const u32 selector = n % 2 ? 0x4342 : 0x4140;
    sum(permute_bytes(chroma.row[0][n / 2], 0, selector), permute_bytes(chroma.row[1][n / 2], 0, selector), to);
  };
  u32 before[2], now[2], ends[2];
  sum(chroma.beside[0][0], chroma.beside[1][0], before);
  sum(chroma.beside[0][1], chroma.beside[1][1], ends);
  column(0, now);
  // The last sample again where the row begins or ends.
  const bool first = x == 0, last = (x >> 1) + 8 >= p.chroma_width;
#pragma unroll
  for (int row = 0; row < 2; ++row) before[row] = first ? now[row] : before[row];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    u32 chroma_of[2][2][2];  // by row; even or odd; of columns 2 q and 2 q + 1
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      u32 next[2];
      if (2 * q + i < 7) {
        column(2 * q + i + 1, next);
      } else {
        next[0] = last ? now[0] : ends[0], next[1] = last ? now[1] : ends[1];
      }
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        chroma_of[row][0][i] = 3 * now[row] + before[row];
        chroma_of[row][1][i] = 3 * now[row] + (next[row] + odd);
        before[row] = now[row], now[row] = next[row];
      }
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      // Pixels 4 q and 4 q + 2, then the others of these four.
      u32 pair[2][3];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        colours(s, permute_bytes(luma[row][q], s.f16_bytes, i ? 0x5351 : 0x5250),
                permute_bytes(chroma_of[row][i][0], chroma_of[row][i][1], 0x7531), pair[i]);
#pragma unroll
      for (int c = 0; c < 3; ++c) out[row].word[c][q] = pair[0][c] + pair[1][c] * 256;
    }
  }
}

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

// Asks for a window's samples, so that they are near by when they are read. A whole warp calls it.
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
    for (int row = threadIdx.x & 31; row < rows; row += 32)
#pragma unroll 1
      for (int at = from; at < end; at += kLine) prefetch(row_of(p, plane, first + row) + at);
  }
}

// Writes one pixel after the other to its place: for turned pictures.
__device__ __forceinline__ void scatter(const Picture& p, const Window& window, const Pixels& pixels, int x, int y, u8* first,
                                        int next) {
  // In registers: from shared memory they would be read again behind every sample that is written there.
  const Window w = window;
  const Stored s = stored(p, w);
  const int line = p.line, swap = p.swap, flip_x = p.flip_x, width = p.width;
  const int turned_y = p.flip_y ? p.height - 1 - y : y;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      int at_x = x + 4 * q + i;
      if (at_x < s.from_x || at_x >= s.end_x) continue;
      int turned_x = flip_x ? width - 1 - at_x : at_x;
      int u = swap ? turned_y : turned_x, v = swap ? turned_x : turned_y;
      u8* at = first + (v - w.v) * line + (u - w.u);
#pragma unroll
      for (int c = 0; c < 3; ++c) at[c * next] = (u8)(pixels.word[c][q] >> (8 * i));
    }
  }
}

// Puts pixels into shared memory, a channel every `plane` bytes, where their row is of the window.
__device__ __forceinline__ void put(const Picture& p, const Settings& s, const Window& w, const Pixels& pixels, int x, int y,
                                    u8* to, int plane) {
  u8* const first = to + (s.reversed ? 2 * plane : 0);
  const int next = s.reversed ? -plane : plane;
  const int turned_y = p.flip_y ? p.height - 1 - y : y;
  if (p.swap || p.flip_x) {
    const int line = p.swap ? turned_y - w.u : turned_y - w.v, lines = p.swap ? w.columns : w.rows;
    if ((u32)line < (u32)lines) scatter(p, w, pixels, x, y, first, next);
    return;
  }
  if ((u32)(turned_y - w.v) >= (u32)w.rows) return;
  u8* const at = first + ((turned_y - w.v) * p.line + (x - w.u));
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    const u32(&word)[4] = pixels.word[c];
    *(uint4*)(at + c * next) = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

// Puts a window's samples into shared memory, in the order of the network's input. The window starts at a multiple of 16;
// up to 15 samples behind each row are written as well.
__device__ __forceinline__ void load_window(const Picture& p, const Settings& s, const Window& w, u8* to, int plane) {
  // Where the first pixels are that are read, sixteen next to one another of two rows.
  auto first_x = [&](const Stored& area) { return area.from_x & ~15; };
  auto groups_of = [&](const Stored& area) { return (u32)(area.end_x - first_x(area) + 15) / 16; };
  // The upper half of n + 1 times this is n divided by their number, where both are small.
  const u32 inverse = 0xffffffffu / groups_of(stored(p, w));
#pragma unroll 1
  for (u32 n = threadIdx.x;; n += blockDim.x) {
    // Again each time, for there are not registers enough to keep it.
    const Stored area = stored(p, w);
    const u32 down = (u32)((u64)(n + 1) * inverse >> 32);
    const int x = first_x(area) + 16 * (int)(n - down * groups_of(area)), y = ((area.from_y + 1) & ~1) - 1 + 2 * (int)down;
    if (y >= area.end_y) return;
    if (p.smooth) {
      Pixels both[2];
      if (p.shift_y) {
        load_smooth<true>(p, s, x, y, both);
      } else {
        load_smooth<false>(p, s, x, y, both);
      }
      put(p, s, w, both[0], x, y, to, plane);
      put(p, s, w, both[1], x, y + 1, to, plane);
    } else {
#pragma unroll 1
      for (int row = y < 0 ? 1 : 0; row < 2 && y + row < p.height; ++row)
        put(p, s, w, load_pixels(p, s, x, y, row), x, y + row, to, plane);
    }
  }
}
