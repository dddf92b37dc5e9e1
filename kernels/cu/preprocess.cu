// Pictures of any sizes to a network's input: colours, turning, Pillow's two resampling passes over 8 bits, crop or
// letterbox, normalisation. The same bits as kernels/src/cpu/preprocess.rs makes of kernels/src/cpu/planes.rs' pixels.
//
// A thread block makes 16 rows (along v) of up to 256 columns (along u). It goes through the source rows that they need in
// strips of 32: a strip's samples become RGB in shared memory, then each warp makes 16 columns of them. The first pass's
// results, 8 bits each, stay in the registers of the lanes that the second pass needs them in, which adds what they
// contribute to the outputs. Where a block has few columns, because each of them has many sources, warps share a strip's
// rows. Where even the sources of 16 columns are too wide for shared memory, they are read in chunks.
//
// Both passes are products of matrices of integers: 16 outputs by 32 inputs of weights, mostly zero, times 32 inputs by 8
// lines of samples. The weights have 23 bits; they are cut into three digits of radix 256, each a signed byte, and the
// three products are put together in 32 bits. All of that is exact, so it equals the plain sum.
//
// Defines: TYPE (0 fp32, 1 binary16, 2 bfloat16, 3 signed bytes) of the output, PLANES (1: N, C, H, W; 0: N, H, W, C), PITCH (elements
// from pixel to pixel of N, H, W, C; those behind the third are zero).
#include "preprocess_source.cuh"

#if TYPE == 0
typedef float Element;
#elif TYPE == 1
typedef f16 Element;
#elif TYPE == 2
typedef bf16 Element;
#else
typedef s8 Element;
#endif

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRows = 32;       // of a strip
constexpr int kUnits = 4;       // of 8 rows of a strip
constexpr int kPrecision = 22;  // fractional bits of a weight
constexpr int kInset = 12;      // most columns that an item begins before its first input: multiples of 16 and 4
// Shared memory begins with the picture, the settings and the item.
constexpr int kSettingsAt = sizeof(Picture);
constexpr int kItemAt = kSettingsAt + sizeof(Settings);
constexpr int kHeaderBytes = 320;
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

__device__ __forceinline__ Block block_at(const Table& table, int n) {
  uint4 words = __ldg((const uint4*)table.blocks + n);
  return Block{(int)words.x, (int)words.y, (int)words.z, (int)words.w};
}

// The digits of a step's weights, lowest first.
struct Weights {
  u32 digit[3][4];

  __device__ __forceinline__ explicit Weights(const uint4* from) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      uint4 w = __ldg(from + i * 32 + (threadIdx.x & 31));
      digit[i][0] = w.x, digit[i][1] = w.y, digit[i][2] = w.z, digit[i][3] = w.w;
    }
  }
};

// One step's products with 32 samples of 8 lines, three channels, added to what `before(channel, i)` gives. The highest digit
// comes first; shifted by a digit, its product is what the next one's is added to. Arithmetic is modulo 2^32.
template <class Before>
__device__ __forceinline__ void start(Sums& sums, const Weights& weights, const u32 (&samples)[3][2], Before before) {
  int products[3][4] = {};
#pragma unroll
  for (int c = 0; c < 3; ++c) mma_s8_u8(products[c], weights.digit[2], samples[c]);
#pragma unroll
  for (int i = 0; i < 12; ++i) products[i / 4][i % 4] = (int)((u32)products[i / 4][i % 4] * 256);
#pragma unroll
  for (int c = 0; c < 3; ++c) mma_s8_u8(products[c], weights.digit[1], samples[c]);
#pragma unroll
  for (int i = 0; i < 12; ++i)
    sums.v[i / 4][i % 4] = (int)((u32)products[i / 4][i % 4] * 256 + (u32)before(i / 4, i % 4));
#pragma unroll
  for (int c = 0; c < 3; ++c) mma_s8_u8(sums.v[c], weights.digit[0], samples[c]);
}

// The same, added to the sums.
__device__ __forceinline__ void multiply(Sums& sums, const Weights& weights, const u32 (&samples)[3][2]) {
  const Sums before = sums;
  start(sums, weights, samples, [&](int c, int i) { return before.v[c][i]; });
}

// What sums begin with so that they are rounded.
__device__ __forceinline__ int half_of_one(bool rounds) { return rounds ? 1 << (kPrecision - 1) : 0; }

// Sums of a lane on their way between strips, chunks or warps, in shared memory.
__device__ __forceinline__ void add(Sums& sums, const int* kept) {
#pragma unroll
  for (int i = 0; i < 12; ++i) sums.v[i / 4][i % 4] += kept[i * 32];
}
__device__ __forceinline__ void keep(const Sums& sums, int* kept) {
#pragma unroll
  for (int i = 0; i < 12; ++i) kept[i * 32] = sums.v[i / 4][i % 4];
}

// A pixel as signed bytes, the fourth one zero.
__device__ __forceinline__ u32 bytes_of(const float (&v)[3]) {
  return (u8)f32_to_s8(v[0]) | (u8)f32_to_s8(v[1]) << 8 | (u8)f32_to_s8(v[2]) << 16;
}

// Writes one pixel's values; channels lie `plane` elements apart in N, C, H, W.
__device__ __forceinline__ void store_pixel(Element* to, u32 plane, const float (&v)[3]) {
#if PLANES
#pragma unroll
  for (int c = 0; c < 3; ++c) store_as(to + c * (u64)plane, v[c]);
#elif PITCH == 4 && TYPE == 0
  *(float4*)to = make_float4(v[0], v[1], v[2], 0.0f);
#elif PITCH == 4 && TYPE == 3
  *(u32*)to = bytes_of(v);
#elif PITCH == 4
  *(uint2*)to = make_uint2(pack(Element{}, v[0], v[1]), pack(Element{}, v[2], 0.0f));
#elif PITCH == 8 && TYPE == 3
  *(uint2*)to = make_uint2(bytes_of(v), 0);
#elif PITCH == 8 && TYPE != 0
  *(uint4*)to = make_uint4(pack(Element{}, v[0], v[1]), pack(Element{}, v[2], 0.0f), 0, 0);
#else
#pragma unroll
  for (int c = 0; c < PITCH; ++c) store_as(to + c, c < 3 ? v[c % 3] : 0.0f);
#endif
}

// Writes what lanes hold of 16 outputs along v by 8 along u.
struct Writer {
  float factor[3], shift[3];
  Element* first;      // the lane's output of the first 8 along u
  int step_u, step_v;  // elements from output to output
  int left_u, left_v;  // outputs there are from the lane's first one on
  u32 plane;
  bool wide;  // pixels next to one another along u are written together

  // For outputs from `u` and `v` on.
  __device__ __forceinline__ Writer(const Settings& s, const Picture& p, Element* output, int u, int v) {
    u += 2 * (threadIdx.x & 3), v += (threadIdx.x & 31) / 4;
#pragma unroll
    for (int c = 0; c < 3; ++c) factor[c] = s.factor[c], shift[c] = s.shift[c];
    step_u = p.step[0], step_v = p.step[1];
    left_u = p.size[0] - u, left_v = p.size[1] - v;
    plane = (u32)s.width * s.height;
    first = output + p.first + ((i64)u * step_u + (i64)v * step_v);
    // Of an image with an odd number of pixels the next one begins in the middle of 16 bytes.
    wide = step_u == PITCH && (u64)first % 16 == 0;
  }

  // The tile's `tile`th 8 along u.
  __device__ __forceinline__ void store(const Sums& sums, int tile) const {
    if (8 * tile >= left_u) return;
    const bool both = 8 * tile + 1 < left_u;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (8 * half >= left_v) break;
      float value[2][3];
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const float sample = (float)cut_u8(sums.v[i / 2][2 * half + i % 2] >> kPrecision);
        value[i % 2][i / 2] = fmaf(sample, factor[i / 2], shift[i / 2]);
      }
      Element* to = first + (8 * tile * (i64)step_u + 8 * half * (i64)step_v);
#if (TYPE == 1 || TYPE == 2) && PITCH == 4 && !PLANES
      if (both && wide) {
        *(uint4*)to = make_uint4(pack(Element{}, value[0][0], value[0][1]), pack(Element{}, value[0][2], 0.0f),
                                 pack(Element{}, value[1][0], value[1][1]), pack(Element{}, value[1][2], 0.0f));
        continue;
      }
#endif
      store_pixel(to, plane, value[0]);
      if (both) store_pixel(to + step_u, plane, value[1]);
    }
  }
};

__device__ __forceinline__ void fill_border(const Settings& s, const Picture& p, Element* output, const Item& item) {
  Element* image = output + p.image;
  int from = item.count == -2 ? p.columns[1] : 0, end = item.count == -1 ? p.columns[0] : s.width;
  float border[3] = {s.border[0], s.border[1], s.border[2]};
  for (int row = item.u; row < item.u + item.v; ++row)
    for (int column = from + (int)threadIdx.x; column < end; column += kThreads)
      store_pixel(image + ((u64)row * s.width + column) * (PLANES ? 1 : PITCH), (u32)s.width * s.height, border);
}

// Shared memory behind the header: a strip's samples, then sums.
struct Memory {
  u8* samples;
  int plane;  // bytes of a channel of the samples

  // 12 sums a lane. Of each task the second pass has two blocks; behind those of all tasks are the first one's.
  __device__ __forceinline__ int* sums(int block) const {
    return (int*)(samples + 3 * plane) + block * 12 * 32 + (threadIdx.x & 31);
  }
};

// Sources of a strip, of no rows behind the last one.
__device__ __forceinline__ Window strip_of(const Item& item, int strip) {
  const int rest = item.rows - kRows * strip;
  return Window{item.left, item.top + kRows * strip, item.columns, rest < kRows ? rest : kRows};
}

// What one warp does for a strip: 16 outputs along u, from some of the strip's units of 8 rows.
struct Task {
  int index;
  int part;
  int group;  // of 16 outputs, within the item
  int units;  // a bit each

  __device__ __forceinline__ Task(const Item& item, int parts, int index)
      : index(index), part((index >= item.count) + (index >= 2 * item.count) + (index >= 3 * item.count)) {
    group = index - part * item.count;
    int share = kUnits / parts;
    units = ((1 << share) - 1) << (part * share) & ((1 << (strip_of(item, item.strip).rows + 7) / 8) - 1);
  }
};

// The first pass's results of 32 rows: by channel, the lower and the upper 8 outputs, and 16 rows.
typedef u32 Middle[3][2][2];

// First pass: what a chunk of a strip's samples adds. Results where it is the last chunk.
__device__ __forceinline__ void pass_across(const Picture& p, const Item& item, const Memory& memory, const Task& task,
                                            bool last, Middle& middle) {
  const int g = (threadIdx.x & 31) / 4, t = threadIdx.x & 3, line = p.line, plane = memory.plane;
  const Table table = table_at(p.across, p.size[0]);
  const Block block = block_at(table, item.u + task.group);
  const int chunk = item.chunk, first = chunk / 32, rest = block.steps - first, whole = p.chunk / 32;
  const int steps = last || rest < whole ? rest : whole;
  const uint4* const weights = table.weights + (block.first + first) * 96;
  const u8* const samples = memory.samples + g * line + block.start - item.left - chunk + 32 * first + 4 * t;
  // Only where warps share the rows there is more than one chunk: these sums are then of one unit.
  int* const kept = memory.sums(2 * item.count * p.parts + task.part);
  const int before = half_of_one(chunk == 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 rows[3][2] = {};
    // The second unit's rows are the upper bytes.
#pragma unroll
    for (int unit = 2 * half + 1; unit >= 2 * half; --unit) {
      Sums sums = {};
      if (task.units >> unit & 1) {
        const uint4* w = weights;
        const u8* from = samples + 8 * unit * line;
        auto read = [&](u32(&to)[3][2]) {
#pragma unroll
          for (int i = 0; i < 6; ++i) to[i / 2][i % 2] = *(const u32*)(from + i / 2 * plane + i % 2 * 16);
        };
        u32 at[3][2];
        read(at);
        start(sums, Weights(w), at, [&](int, int) { return before; });
#pragma unroll 1
        for (int step = 1; step < steps; ++step) {
          w += 96, from += 32;
          read(at);
          multiply(sums, Weights(w), at);
        }
        if (chunk > 0) add(sums, kept);
        if (!last) keep(sums, kept);
      }
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const int* v = sums.v[i / 2] + i % 2 * 2;
        rows[i / 2][i % 2] = pack_u8(v[0] >> kPrecision, v[1] >> kPrecision, rows[i / 2][i % 2]);
      }
    }
#pragma unroll
    for (int i = 0; i < 6; ++i) middle[i / 2][i % 2][half] = rows[i / 2][i % 2];
  }
}

// Second pass: what a strip adds to a task's outputs, which are stored, or left in shared memory for what follows.
__device__ __forceinline__ void pass_down(const Settings& s, const Picture& p, const Item& item, const Memory& memory,
                                          const Task& task, const Middle& middle, bool stores, Element* output) {
  const Table table = table_at(p.down, p.size[1]);
  const Weights weights(table.weights + (item.step + item.strip) * 96);
  const int before = half_of_one(item.strip == 0 && task.part == 0);
  Sums sums[2];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const u32 samples[3][2] = {{middle[0][tile][0], middle[0][tile][1]},
                               {middle[1][tile][0], middle[1][tile][1]},
                               {middle[2][tile][0], middle[2][tile][1]}};
    start(sums[tile], weights, samples, [&](int, int) { return before; });
    if (item.strip > 0) add(sums[tile], memory.sums(2 * task.index + tile));
  }
  if (stores) {
    const Writer writer(s, p, output, 16 * (item.u + task.group), 16 * item.v);
    writer.store(sums[0], 0);
    writer.store(sums[1], 1);
  } else {
    keep(sums[0], memory.sums(2 * task.index));
    keep(sums[1], memory.sums(2 * task.index + 1));
  }
}

// Adds up what the warps that shared rows have made, and stores it.
__device__ __forceinline__ void join_parts(const Settings& s, const Picture& p, const Item& item, const Memory& memory,
                                           Element* output) {
  for (int tile = threadIdx.x / 32; tile < 2 * item.count; tile += kWarps) {
    Sums sums = {};
#pragma unroll 1
    for (int part = 0; part < p.parts; ++part) add(sums, memory.sums(2 * item.count * part + tile));
    Writer(s, p, output, 16 * item.u + 8 * tile, 16 * item.v).store(sums, 0);
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
  Item& item = *(Item*)(shared + kItemAt);
  if (item.count <= 0) {
    fill_border(s, p, output, item);
    return;
  }
  const Memory memory = {shared + kHeaderBytes, kRows * p.line};
  while (true) {
    Window window = strip_of(item, item.strip);
    // A step may begin up to 15 columns behind its chunk's start, and then ends behind the chunk's end.
    const int rest = item.columns - item.chunk;
    window.u += item.chunk;
    window.columns = p.chunk + 16 < rest ? p.chunk + 16 : rest;
    load_window(p, s, window, memory.samples, memory.plane);
    __syncthreads();
    // Steps go on from the first input: of what they leave behind the end of a chunk there may be nothing.
    const bool last_chunk = item.chunk + p.chunk + kInset >= item.columns;
    const bool last_strip = kRows * (item.strip + 1) >= item.rows;
    if (last_chunk && !last_strip) prefetch_window(p, strip_of(item, item.strip + 1));
    for (int index = threadIdx.x / 32; index < item.count * p.parts; index += kWarps) {
      const Task task(item, p.parts, index);
      Middle middle;
      pass_across(p, item, memory, task, last_chunk, middle);
      if (last_chunk) pass_down(s, p, item, memory, task, middle, last_strip && p.parts == 1, output);
    }
    if (last_chunk && last_strip) break;
    __syncthreads();
    // In shared memory: the registers are needed for other things.
    if (threadIdx.x == 0) {
      item.strip += last_chunk;
      item.chunk = last_chunk ? 0 : item.chunk + p.chunk;
    }
    __syncthreads();
  }
  if (p.parts == 1) return;
  __syncthreads();
  join_parts(s, p, item, memory, output);
}
