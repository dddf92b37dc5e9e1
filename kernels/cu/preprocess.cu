// Pictures of any sizes to a network's input: colours, turning, Pillow's two resampling passes over 8 bits, crop or
// letterbox, normalisation. The same bits as kernels/src/cpu/preprocess.rs makes of kernels/src/cpu/planes.rs' pixels.
//
// A thread block makes 16 rows (along v) of 16 to 128 columns (along u). It goes through the source rows that they need
// in strips of 32: a strip's samples become RGB in shared memory, the first pass reads them and leaves 8-bit results in
// shared memory, transposed, and the second pass adds what they contribute to the outputs. Where even a strip of the
// columns' sources is too wide for shared memory, it is read in chunks.
//
// Both passes are products of matrices of integers: 16 outputs by 32 inputs of weights, mostly zero, times 32 inputs by 8
// lines of samples. The weights have 23 bits; they are cut into three digits of radix 256, each a signed byte, and the
// three products are put together in 32 bits. All of that is exact, so it equals the plain sum.
//
// Defines: TYPE (0 fp32, 1 binary16, 2 bfloat16) of the output, PLANES (1: N, C, H, W; 0: N, H, W, C), PITCH (elements
// from pixel to pixel of N, H, W, C; those behind the third are zero).
#include "preprocess_source.cuh"

#if TYPE == 0
typedef float Element;
#elif TYPE == 1
typedef f16 Element;
#else
typedef bf16 Element;
#endif

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRows = 32;         // of a strip
constexpr int kColumnBytes = 48;  // of a column of the picture between the passes: 32 rows, apart by 12 banks
constexpr int kPrecision = 22;    // fractional bits of a weight
// Shared memory begins with the picture, the settings and the item.
constexpr int kSettingsAt = sizeof(Picture);
constexpr int kItemAt = kSettingsAt + sizeof(Settings);
constexpr int kHeaderBytes = 256;
static_assert(kItemAt + sizeof(Item) <= kHeaderBytes, "the header is too small");

// Sums of 16 outputs by 8 lines of three channels: lane 4 g + t holds outputs g, g, g + 8, g + 8 of lines 2 t, 2 t + 1,
// 2 t, 2 t + 1.
struct Sums {
  int v[3][4];
};

__device__ __forceinline__ Table table_at(u64 address, int outputs) {
  const Block* first = (const Block*)address;
  return Table{first, (const uint4*)(first + (outputs + 15) / 16)};
}

// Adds one step's products: `samples` points to input 4 t of line g, `next` bytes before the next channel's. The highest
// digit comes first; shifted by a digit, its product is what the next one's is added to. Arithmetic is modulo 2^32.
__device__ __forceinline__ void multiply(Sums& sums, const uint4* weights, const u8* samples, int next) {
  u32 b[3][2];
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    b[c][0] = *(const u32*)(samples + c * next);
    b[c][1] = *(const u32*)(samples + c * next + 16);
  }
  int products[3][4] = {};
#pragma unroll
  for (int digit = 2; digit >= 0; --digit) {
    uint4 w = __ldg(weights + digit * 32 + (threadIdx.x & 31));
    u32 a[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      if (digit > 0) {
        mma_s8_u8(products[c], a, b[c]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          products[c][i] = (int)(((u32)products[c][i] << 8) + (digit == 1 ? (u32)sums.v[c][i] : 0u));
      } else {
        mma_s8_u8(products[c], a, b[c]);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums.v[c][i] = products[c][i];
      }
    }
  }
}

// Sums of a lane on their way between strips or chunks, kept in shared memory; one half at first.
__device__ __forceinline__ void begin(Sums& sums, const int* kept, bool first) {
#pragma unroll
  for (int i = 0; i < 12; ++i) sums.v[i / 4][i % 4] = first ? 1 << (kPrecision - 1) : kept[i * 32];
}
__device__ __forceinline__ void keep(const Sums& sums, int* kept) {
#pragma unroll
  for (int i = 0; i < 12; ++i) kept[i * 32] = sums.v[i / 4][i % 4];
}

// Two finished sums as samples.
__device__ __forceinline__ u16 sample_pair(const Sums& sums, int c, int half) {
  return pack_u8(sums.v[c][2 * half] >> kPrecision, sums.v[c][2 * half + 1] >> kPrecision);
}

__device__ __forceinline__ float normalise(const Settings& s, int c, u32 sample) {
  return fmaf((float)sample, s.factor[c], s.shift[c]);
}

__device__ __forceinline__ Element* image_of(const Settings& s, const Picture& p, Element* output) {
  return output + (u64)p.slot * s.width * s.height * (PLANES ? 3 : PITCH);
}

// Writes one pixel's values.
__device__ __forceinline__ void store_pixel(const Settings& s, Element* image, int row, int column, const float (&v)[3]) {
  u64 at = (u64)row * s.width + column;
  if (PLANES) {
    u64 plane = (u64)s.width * s.height;
#pragma unroll
    for (int c = 0; c < 3; ++c) store_as(image + c * plane + at, v[c]);
    return;
  }
  Element* to = image + at * PITCH;
#if PITCH == 4 && TYPE == 0
  *(float4*)to = make_float4(v[0], v[1], v[2], 0.0f);
#elif PITCH == 4
  *(uint2*)to = make_uint2(pack(Element{}, v[0], v[1]), pack(Element{}, v[2], 0.0f));
#elif PITCH == 8 && TYPE != 0
  *(uint4*)to = make_uint4(pack(Element{}, v[0], v[1]), pack(Element{}, v[2], 0.0f), 0, 0);
#else
#pragma unroll
  for (int c = 0; c < PITCH; ++c) store_as(to + c, c < 3 ? v[c % 3] : 0.0f);
#endif
}

// Writes what a lane holds of 16 outputs along v from `v` on by 8 along u from `u` on.
__device__ __forceinline__ void store_sums(const Settings& s, const Picture& p, Element* output, const Sums& sums, int u, int v) {
  Element* image = image_of(s, p, output);
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int at_v = v + lane / 4 + 8 * half, at_u = u + 2 * (lane & 3);
    if (at_v >= p.size[1]) continue;
    float value[2][3];
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      u32 pair = sample_pair(sums, c, half);
      value[0][c] = normalise(s, c, pair & 255);
      value[1][c] = normalise(s, c, pair >> 8);
    }
    int column = p.to[0] + (p.swap_out ? at_v : at_u), row = p.to[1] + (p.swap_out ? at_u : at_v);
#if TYPE != 0 && PITCH == 4 && !PLANES
    Element* pair_at = image + ((u64)row * s.width + column) * PITCH;
    // Of an image with an odd number of pixels the next one begins in the middle of 16 bytes.
    if (!p.swap_out && at_u + 1 < p.size[0] && (u64)pair_at % 16 == 0) {
      *(uint4*)pair_at = make_uint4(pack(Element{}, value[0][0], value[0][1]), pack(Element{}, value[0][2], 0.0f),
                                     pack(Element{}, value[1][0], value[1][1]), pack(Element{}, value[1][2], 0.0f));
      continue;
    }
#endif
    if (at_u < p.size[0]) store_pixel(s, image, row, column, value[0]);
    if (at_u + 1 < p.size[0]) store_pixel(s, image, row + p.swap_out, column + 1 - p.swap_out, value[1]);
  }
}

__device__ __forceinline__ void fill_border(const Settings& s, const Picture& p, Element* output, const Item& item) {
  Element* image = image_of(s, p, output);
  int right = p.to[0] + p.size[p.swap_out];
  int from = item.count == -2 ? right : 0, end = item.count == -1 ? p.to[0] : s.width;
  float border[3] = {s.border[0], s.border[1], s.border[2]};
  for (int row = item.u; row < item.u + item.v; ++row)
    for (int column = from + (int)threadIdx.x; column < end; column += kThreads) store_pixel(s, image, row, column, border);
}

// Shared memory behind the header.
struct Memory {
  u8* start;
  int count;       // blocks side by side
  int plane;       // bytes of a channel of a strip's samples
  bool keep_down;  // sums are kept between strips

  __device__ __forceinline__ u8* samples() const { return start; }
  __device__ __forceinline__ int middle_plane() const { return 16 * count * kColumnBytes; }
  __device__ __forceinline__ u8* middle() const { return start + 3 * plane; }
  // 12 sums a lane for every unit of the second pass, then of the first one.
  __device__ __forceinline__ int* kept_down(int unit) const {
    return (int*)(middle() + 3 * middle_plane()) + unit * 12 * 32 + (threadIdx.x & 31);
  }
  __device__ __forceinline__ int* kept_across(int unit) const { return kept_down(unit + (keep_down ? 2 * count : 0)); }
};

// First pass: what a chunk of a strip's samples adds; the last chunk's results go to memory.middle(), transposed.
__device__ __forceinline__ void pass_across(const Picture& p, const Item& item, const Memory& memory, int left, int chunk,
                                            bool last, int strip_rows) {
  const int g = (threadIdx.x & 31) / 4, t = threadIdx.x & 3;
  const Table table = table_at(p.across, p.size[0]);
  for (int unit = threadIdx.x / 32; unit < item.count * (kRows / 8); unit += kWarps) {
    const int group = unit % item.count, line = unit / item.count * 8;
    if (line >= strip_rows) break;
    const Block block = table.blocks[item.u + group];
    const int first = chunk / 32, end = last || first + p.chunk / 32 > block.steps ? block.steps : first + p.chunk / 32;
    const uint4* weights = table.weights + (block.first + first) * 96;
    const u8* from = memory.samples() + (line + g) * p.line + block.start - left - chunk + 32 * first + 4 * t;
    Sums sums;
    begin(sums, memory.kept_across(unit), chunk == 0);
#pragma unroll 1
    for (int step = first; step < end; ++step) {
      multiply(sums, weights, from, memory.plane);
      weights += 96;
      from += 32;
    }
    if (!last) {
      keep(sums, memory.kept_across(unit));
      continue;
    }
    u8* to = memory.middle() + (16 * group + g) * kColumnBytes + line + 2 * t;
#pragma unroll
    for (int c = 0; c < 3; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *(u16*)(to + c * memory.middle_plane() + 8 * half * kColumnBytes) = sample_pair(sums, c, half);
    }
  }
}

// Sources of a strip, of no rows behind the last one; `several` says whether there is more than one strip. Looked up again
// where it is needed, so that it takes no registers in between.
__device__ __forceinline__ Window strip_of(const Picture& p, const Item& item, int strip, int left, int columns, bool& several) {
  const Block rows = table_at(p.down, p.size[1]).blocks[item.v];
  several = rows.steps > 1;
  const int rest = rows.extent - kRows * strip;
  return Window{left, rows.start + kRows * strip, columns, rest < kRows ? rest : kRows};
}

// Second pass: what a strip adds; the last strip's results are normalised and stored.
__device__ __forceinline__ void pass_down(const Settings& s, const Picture& p, const Item& item, const Memory& memory, int strip,
                                          bool last, Element* output) {
  const int g = (threadIdx.x & 31) / 4, t = threadIdx.x & 3;
  const Table table = table_at(p.down, p.size[1]);
  const uint4* weights = table.weights + (table.blocks[item.v].first + strip) * 96;
  for (int unit = threadIdx.x / 32; unit < 2 * item.count; unit += kWarps) {
    Sums sums;
    begin(sums, memory.kept_down(unit), strip == 0);
    multiply(sums, weights, memory.middle() + (8 * unit + g) * kColumnBytes + 4 * t, memory.middle_plane());
    if (last) {
      store_sums(s, p, output, sums, 16 * item.u + 8 * unit, 16 * item.v);
    } else {
      keep(sums, memory.kept_down(unit));
    }
  }
}

template <class T>
__device__ __forceinline__ void copy_words(u8* to, const T* from) {
  if (threadIdx.x < sizeof(T) / 4) ((u32*)to)[threadIdx.x] = __ldg((const u32*)from + threadIdx.x);
}

// Blocks a multiprocessor: where 80 registers do not do, two blocks are better than spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr int kBlocks = 3;
#else
constexpr int kBlocks = 2;
#endif

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    preprocess(const Settings* __restrict__ settings, const Picture* __restrict__ pictures, const Item* __restrict__ items,
               Element* __restrict__ output) {
  DYNAMIC_SMEM(shared);
  // From shared memory every phase reads what it needs: in registers all of it would be there all the time.
  copy_words<Picture>(shared, pictures + items[blockIdx.x].picture);
  copy_words<Settings>(shared + kSettingsAt, settings);
  copy_words<Item>(shared + kItemAt, items + blockIdx.x);
  __syncthreads();
  const Picture& p = *(const Picture*)shared;
  const Settings& s = *(const Settings*)(shared + kSettingsAt);
  const Item& item = *(const Item*)(shared + kItemAt);
  if (item.count <= 0) {
    fill_border(s, p, output, item);
    return;
  }
  const Table table = table_at(p.across, p.size[0]);
  const Block last = table.blocks[item.u + item.count - 1];
  const int left = table.blocks[item.u].start & ~7;
  const int columns = last.start + last.extent - left;
  for (int strip = 0;; ++strip) {
    Memory memory = {shared + kHeaderBytes, item.count, kRows * p.line, false};
    Window window = strip_of(p, item, strip, left, columns, memory.keep_down);
    if (strip == 0) prefetch_window(p, window);
    for (int chunk = 0; chunk < columns; chunk += p.chunk) {
      // A step may begin up to 7 columns behind its chunk's start, and then ends behind the chunk's end.
      window.u = left + chunk;
      window.columns = p.chunk + 8 < columns - chunk ? p.chunk + 8 : columns - chunk;
      load_window(p, window, s.reversed, memory.samples(), memory.plane);
      __syncthreads();
      pass_across(p, item, memory, left, chunk, chunk + p.chunk >= columns, window.rows);
      __syncthreads();
    }
    window = strip_of(p, item, strip + 1, left, columns, memory.keep_down);
    if (window.rows > 0) prefetch_window(p, window);
    pass_down(s, p, item, memory, strip, window.rows <= 0, output);
    if (window.rows <= 0) return;
  }
}
