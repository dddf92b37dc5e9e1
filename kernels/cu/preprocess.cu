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

constexpr int kThreads = 224;
constexpr int kWarps = kThreads / 32;
constexpr int kRows = 32;       // of a strip
constexpr int kUnits = 4;       // of 8 rows of a strip
constexpr int kPrecision = 22;  // fractional bits of a weight
constexpr int kHalf = 1 << (kPrecision - 1);  // what sums begin with so that they are rounded
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

// Of an axis' table.
__device__ __forceinline__ Block block_at(u64 table, int n) {
  uint4 words = __ldg((const uint4*)table + n);
  return Block{(int)words.x, (int)words.y, (int)words.z, (int)words.w};
}

// The digits of a step's weights, lowest first.
struct Weights {
  u32 digit[3][4];

  // `from` is where a lane's weights are.
  __device__ __forceinline__ explicit Weights(const uint4* from) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      uint4 w = __ldg(from + i * 32);
      digit[i][0] = w.x, digit[i][1] = w.y, digit[i][2] = w.z, digit[i][3] = w.w;
    }
  }
};

// Samples of 32 inputs by 8 lines, as operands.
typedef u32 Samples[3][2];

// Products of three channels with 16 outputs' weights, put together: `digit(products, i)` adds those of digit i, and what they
// are added to at last is `before(channel, i)`. The highest digit comes first; shifted by a digit, its product is what the
// next one's is added to. Arithmetic is modulo 2^32.
template <class Digit, class Before>
__device__ __forceinline__ void put_together(Sums& sums, Digit digit, Before before) {
  int products[3][4] = {};
  digit(products, 2);
#pragma unroll
  for (int i = 0; i < 12; ++i) products[i / 4][i % 4] = (int)((u32)products[i / 4][i % 4] * 256);
  digit(products, 1);
#pragma unroll
  for (int i = 0; i < 12; ++i)
    products[i / 4][i % 4] = (int)((u32)products[i / 4][i % 4] * 256 + (u32)before(i / 4, i % 4));
  digit(products, 0);
#pragma unroll
  for (int i = 0; i < 12; ++i) sums.v[i / 4][i % 4] = products[i / 4][i % 4];
}

// One step's, added to a number.
__device__ __forceinline__ void start(Sums& sums, const Weights& weights, const Samples& samples, int before) {
  auto digit = [&](int(&products)[3][4], int i) {
#pragma unroll
    for (int c = 0; c < 3; ++c) mma_s8_u8(products[c], weights.digit[i], samples[c]);
  };
  put_together(sums, digit, [&](int, int) { return before; });
}

// One step's, added to the sums. The weights are a lane's.
__device__ __forceinline__ void multiply(Sums& sums, const uint4* weights, const Samples& samples) {
  auto digit = [&](int(&products)[3][4], int i) {
    const uint4 w = __ldg(weights + 32 * i);
    const u32 fragment[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int c = 0; c < 3; ++c) mma_s8_u8(products[c], fragment, samples[c]);
  };
  put_together(sums, digit, [&](int c, int i) { return sums.v[c][i]; });
}

// Where a lane finds the weights of the step whose weights begin at the nth 16 bytes of an axis' table.
__device__ __forceinline__ const uint4* weights_at(u64 table, int n) {
  return (const uint4*)table + (u32)(n + (threadIdx.x & 31));
}

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

  // Values of channel i / 2 of the pixels next to one another, i % 2, in one of the two rows.
  __device__ __forceinline__ void values_of(const Sums& sums, int half, float (&to)[2][3]) const {
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      const float sample = (float)cut_u8(sums.v[i / 2][2 * half + i % 2] >> kPrecision);
      to[i % 2][i / 2] = fmaf(sample, factor[i / 2], shift[i / 2]);
    }
  }

  __device__ __forceinline__ Element* place(int tile, int half) const {
    return first + (8 * tile * (i64)step_u + 8 * half * (i64)step_v);
  }

  // The tile's `tile`th 8 along u.
  __device__ __forceinline__ void store(const Sums& sums, int tile) const {
    if (8 * tile >= left_u) return;
    const bool both = 8 * tile + 1 < left_u;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (8 * half >= left_v) break;
      float value[2][3];
      values_of(sums, half, value);
      Element* const to = place(tile, half);
      store_pixel(to, plane, value[0]);
      if (both) store_pixel(to + step_u, plane, value[1]);
    }
  }

  // Both eights.
  __device__ __forceinline__ void store(const Sums (&sums)[2]) const {
#if (TYPE == 1 || TYPE == 2) && PITCH == 4 && !PLANES
    // Two pixels together.
    if (wide && left_u > 9 && left_v > 8) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float v[2][3];
        values_of(sums[i % 2], i / 2, v);
        *(uint4*)place(i % 2, i / 2) = make_uint4(pack(Element{}, v[0][0], v[0][1]), pack(Element{}, v[0][2], 0.0f),
                                                  pack(Element{}, v[1][0], v[1][1]), pack(Element{}, v[1][2], 0.0f));
      }
      return;
    }
#endif
    store(sums[0], 0);
    store(sums[1], 1);
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
__device__ __forceinline__ u8* samples_of(const Picture& p) { return (u8*)&p + kHeaderBytes; }
// Bytes of a channel of the samples.
__device__ __forceinline__ int plane_bytes(const Picture& p) { return kRows * p.line; }
// A lane's 12 sums. Of each task the second pass has two blocks; behind those of all tasks are the first one's.
__device__ __forceinline__ int* sums_of(const Picture& p, int block) {
  return (int*)(samples_of(p) + 3 * plane_bytes(p)) + block * 12 * 32 + (threadIdx.x & 31);
}

// Sources of a strip, of no rows behind the last one.
__device__ __forceinline__ Window strip_of(const Item& item, int strip) {
  const int rest = item.rows - kRows * strip;
  return Window{item.left, item.top + kRows * strip, item.columns, rest < kRows ? rest : kRows};
}

// Steps go on from the first input: of what they leave behind the end of a chunk there may be nothing.
__device__ __forceinline__ bool is_last_chunk(const Picture& p, const Item& item) {
  return item.chunk + p.chunk + kInset >= item.columns;
}
__device__ __forceinline__ bool is_last_strip(const Item& item) { return kRows * (item.strip + 1) >= item.rows; }

// Units of 8 rows that a strip has, a bit each.
__device__ __forceinline__ u32 units_of(const Item& item, int strip) {
  const u32 units = (u32)(item.rows - kRows * strip + 7) / 8;
  return (1u << (units < kUnits ? units : kUnits)) - 1;
}

// What one warp does for a strip: 16 outputs along u, from some of the strip's units.
struct Task {
  int index;
  int part;   // of the warps that share the strip's rows
  int group;  // of 16 outputs, within the item
  u32 units;

  // ALONE: no warps share rows, and all columns are there at a time.
  template <bool ALONE>
  __device__ __forceinline__ static Task make(const Item& item, int parts, int index) {
    const u32 units = units_of(item, item.strip);
    if (ALONE) return Task{index, 0, index, units};
    const int part = (index >= item.count) + (index >= 2 * item.count) + (index >= 3 * item.count);
    const int share = parts == 1 ? kUnits : parts == 2 ? kUnits / 2 : kUnits / 4;
    return Task{index, part, index - part * item.count, units & ((1u << share) - 1) << (part * share)};
  }
};

// The first pass's results of 32 rows: by channel, the lower and the upper 8 outputs, and 16 rows.
typedef u32 Middle[3][2][2];

// The first pass' results of 16 rows, two units: `compute(sums, unit)` gives what is rounded. Those of the 16 rows before move
// up.
template <bool ALONE, class Compute>
__device__ __forceinline__ void round_rows(u32 units, Middle& middle, Compute compute) {
  u32 rows[3][2] = {};
  // The second unit's rows are the upper bytes.
#pragma unroll
  for (int unit = 1; unit >= 0; --unit) {
    if (units >> unit & 1) {
      Sums sums;
      compute(sums, unit);
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const int* v = sums.v[i / 2] + i % 2 * 2;
        rows[i / 2][i % 2] = pack_u8(v[0] >> kPrecision, v[1] >> kPrecision, rows[i / 2][i % 2]);
      }
    } else if (!ALONE) {
      // Where a warp has all of a strip's units, only the last ones are missing.
#pragma unroll
      for (int i = 0; i < 6; ++i) rows[i / 2][i % 2] <<= 16;
    }
  }
#pragma unroll
  for (int i = 0; i < 6; ++i) middle[i / 2][i % 2][0] = middle[i / 2][i % 2][1], middle[i / 2][i % 2][1] = rows[i / 2][i % 2];
}

// First pass: what a chunk of a strip's samples adds. Results where it is the last chunk.
template <bool ALONE>
__device__ __forceinline__ void pass_across(const Settings& s, const Picture& p, const Item& item, const Task& task,
                                            Middle& middle) {
  const int g = (threadIdx.x & 31) / 4, t = threadIdx.x & 3, line = p.line, plane = plane_bytes(p);
  const Block block = block_at(p.across, item.u + task.group);
  const int chunk = ALONE ? 0 : item.chunk, first = (u32)chunk / 32;
  const uint4* const weights = weights_at(p.across, block.first + 96 * first);
  const u8* samples = samples_of(p) + g * line + block.start - item.left - chunk + 32 * first + 4 * t;
  auto read = [&](Samples& to, int unit, int step) {
    const u8* from = samples + 8 * unit * line + 32 * step;
#pragma unroll
    for (int i = 0; i < 6; ++i) to[i / 2][i % 2] = *(const u32*)(from + i / 2 * plane + i % 2 * 16);
  };
  if (ALONE && block.steps == 1) {
    const Weights all(weights);
    const int half = s.half;
#pragma unroll
    for (int first = 0; first < kUnits; first += 2)
      round_rows<ALONE>(task.units >> first, middle, [&](Sums& sums, int unit) {
        Samples at;
        read(at, first + unit, 0);
        start(sums, all, at, half);
      });
    return;
  }
  const int rest = block.steps - first, whole = (u32)p.chunk / 32, steps = ALONE || is_last_chunk(p, item) || rest < whole ? rest : whole;
  // Only where warps share the rows there is more than one chunk: these sums are then of one unit.
  int* const kept = ALONE ? nullptr : sums_of(p, 2 * item.count * p.parts + task.part);
  const int before = chunk == 0 ? kHalf : 0;
  // One more bit, which is the last one after two rounds: a counter would need a register.
#pragma unroll 1
  for (u32 units = task.units | 1 << kUnits; units != 1; units >>= 2, samples += 16 * line) {
    round_rows<ALONE>(units, middle, [&](Sums& sums, int unit) {
#pragma unroll
      for (int i = 0; i < 12; ++i) sums.v[i / 4][i % 4] = before;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        Samples at;
        read(at, unit, step);
        multiply(sums, weights + 96 * step, at);
      }
      if (chunk > 0) add(sums, kept);
      if (!ALONE && !is_last_chunk(p, item)) keep(sums, kept);
    });
  }
}

// Second pass: what a strip adds to a task's outputs, which are stored, or left in shared memory for what follows.
template <bool ALONE>
__device__ __forceinline__ void pass_down(const Settings& s, const Picture& p, const Item& item, const Task& task,
                                          const Middle& middle, Element* output) {
  const Weights weights(weights_at(p.down, item.step + 96 * item.strip));
  // Of the first part; its index takes no register more.
  const int before = item.strip == 0 && task.index < item.count ? kHalf : 0;
  Sums sums[2];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const Samples samples = {{middle[0][tile][0], middle[0][tile][1]},
                             {middle[1][tile][0], middle[1][tile][1]},
                             {middle[2][tile][0], middle[2][tile][1]}};
    start(sums[tile], weights, samples, before);
    if (item.strip > 0) add(sums[tile], sums_of(p, 2 * task.index + tile));
  }
  if (ALONE && is_last_strip(item)) {
    Writer(s, p, output, 16 * (item.u + task.group), 16 * item.v).store(sums);
  } else {
    keep(sums[0], sums_of(p, 2 * task.index));
    keep(sums[1], sums_of(p, 2 * task.index + 1));
  }
}

// Both passes over what of a strip is in shared memory. Of tasks that share rows there are no more than warps (`Cut`).
template <bool ALONE>
__device__ __forceinline__ void do_tasks(const Settings& s, const Picture& p, const Item& item, Element* output) {
#pragma unroll 1
  for (int first = 0;; first += kWarps) {
    const int index = first + threadIdx.x / 32;
    if (index >= item.count * (ALONE ? 1 : p.parts)) return;
    const Task task = Task::make<ALONE>(item, p.parts, index);
    Middle middle = {};
    pass_across<ALONE>(s, p, item, task, middle);
    // So that nothing is kept in registers from one to the next.
    __syncwarp();
    if (ALONE || is_last_chunk(p, item)) pass_down<ALONE>(s, p, item, task, middle, output);
    if (!ALONE) return;
    __syncwarp();
  }
}

// Adds up what the warps that shared rows have made, and stores it.
__device__ __forceinline__ void join_parts(const Settings& s, const Picture& p, const Item& item,
                                           Element* output) {
  for (int tile = threadIdx.x / 32; tile < 2 * item.count; tile += kWarps) {
    Sums sums = {};
#pragma unroll 1
    for (int part = 0; part < p.parts; ++part) add(sums, sums_of(p, 2 * item.count * part + tile));
    Writer(s, p, output, 16 * item.u + 8 * tile, 16 * item.v).store(sums, 0);
  }
}

template <class T>
__device__ __forceinline__ void copy_words(u8* to, const T* from) {
  if (threadIdx.x < sizeof(T) / 4) ((u32*)to)[threadIdx.x] = __ldg((const u32*)from + threadIdx.x);
}

// Blocks a multiprocessor: where 72 registers do not do, two blocks are better than spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr int kBlocks = 4;
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
  while (true) {
    load_window(p, s, item.window, samples_of(p), plane_bytes(p));
    __syncthreads();
    if (p.parts == 1) {
      do_tasks<true>(s, p, item, output);
    } else {
      do_tasks<false>(s, p, item, output);
    }
    // What the next strip needs, or the block that comes when this one is done. No warp has fewer tasks than the last one.
    if (threadIdx.x / 32 == kWarps - 1) {
      if (!is_last_strip(item)) {
        if (is_last_chunk(p, item)) prefetch_window(p, strip_of(item, item.strip + 1));
      } else if (blockIdx.x + s.resident < gridDim.x) {
        const Item& next = items[blockIdx.x + s.resident];
        if (next.count > 0) prefetch_window(pictures[next.picture], strip_of(next, 0));
      }
    }
    const bool last_chunk = is_last_chunk(p, item), last = last_chunk && is_last_strip(item);
    __syncthreads();
    if (last) break;
    // In shared memory: the registers are needed for other things.
    if (threadIdx.x == 0) {
      item.strip += last_chunk;
      item.chunk = last_chunk ? 0 : item.chunk + p.chunk;
      item.window = strip_of(item, item.strip);
      item.window.u += item.chunk;
      // A step may begin up to 15 columns behind its chunk's start, and then ends behind the chunk's end.
      const int rest = item.columns - item.chunk;
      item.window.columns = p.chunk + 16 < rest ? p.chunk + 16 : rest;
    }
    __syncthreads();
  }
  if (p.parts == 1) return;
  join_parts(s, p, item, output);
}
