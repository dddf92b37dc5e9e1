// Operators that only move elements, from type TX to type TY.
#include "vector.cuh"

#if defined(GATHER)

// y[element of STRIDES_Y from START_Y on] = x[element of STRIDES_X from START_X on] for every index of the axes DIMS, from
// the outermost (whose length is not looked at) to the innermost. VECTOR elements a thread: it divides the innermost length
// where there is more than one axis, the starts and every stride but the innermost ones, which are 1 where VECTOR > 1.
constexpr int kDims[] = {DIMS};
constexpr int kStridesX[] = {STRIDES_X};
constexpr int kStridesY[] = {STRIDES_Y};

template <int N>
__device__ __forceinline__ void move(const TX* x, TY* y, u32 index) {
  float v[N];
  load<TX, N>(x + START_X + offset_of(index, kDims, kStridesX), v);
  store(y + START_Y + offset_of(index, kDims, kStridesY), v);
}

extern "C" __global__ void __launch_bounds__(256) gather(const TX* __restrict__ x, TY* __restrict__ y, int len) {
  wait_for_predecessor();
  launch_dependents();
  const u32 index = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (index + VECTOR <= (u32)len) return move<VECTOR>(x, y, index);
  for (u32 i = index; i < (u32)len; ++i) move<1>(x, y, i);
}

#elif defined(TRANSPOSE)

// Squares of two axes through shared memory, so that both sides are read and written in the order of their addresses: rows
// lie side by side in x, columns in y. All other axes are OUTER, with their strides in x and in y; COLUMN_X and ROW_Y are
// the strides of the two axes on the side where they are not 1.
constexpr int kTile = 32;
constexpr int kOuter[] = {OUTER};
constexpr int kOuterX[] = {OUTER_X};
constexpr int kOuterY[] = {OUTER_Y};

extern "C" __global__ void __launch_bounds__(256)
    transpose(const TX* __restrict__ x, TY* __restrict__ y, int rows, int columns) {
  __shared__ float tile[kTile][kTile + 1];
  wait_for_predecessor();
  launch_dependents();
  const u32 across = ((u32)columns + kTile - 1) / kTile, down = ((u32)rows + kTile - 1) / kTile;
  const u32 outer = blockIdx.x / (across * down);
  const int row0 = (int)(blockIdx.x / across % down) * kTile, column0 = (int)(blockIdx.x % across) * kTile;
  const TX* from = x + offset_of(outer, kOuter, kOuterX);
  TY* to = y + offset_of(outer, kOuter, kOuterY);
  const int lane = (int)threadIdx.x % kTile, line = (int)threadIdx.x / kTile;
#pragma unroll
  for (int i = line; i < kTile; i += 256 / kTile) {
    const int row = row0 + lane, column = column0 + i;
    if (row < rows && column < columns) tile[i][lane] = to_float(from[row + column * (COLUMN_X)]);
  }
  __syncthreads();
#pragma unroll
  for (int i = line; i < kTile; i += 256 / kTile) {
    const int row = row0 + i, column = column0 + lane;
    if (row < rows && column < columns) store_as(to + row * (ROW_Y) + column, tile[lane][i]);
  }
}

#elif defined(PAD)

// Axes DIMS of the output, of which the outermost length is not looked at; INPUT of the input (an axis that is not padded
// may give any larger number), BEFORE samples in front, STRIDES_X. VECTOR elements a thread: it divides the innermost
// length, which is not padded where VECTOR > 1.
enum Fill { kConstant, kReflect, kEdge };
constexpr int kDims[] = {DIMS};
constexpr int kInput[] = {INPUT};
constexpr int kBefore[] = {BEFORE};
constexpr int kStridesX[] = {STRIDES_X};
constexpr int kRank = sizeof(kDims) / sizeof(int);

extern "C" __global__ void __launch_bounds__(256) pad(const TX* __restrict__ x, TY* __restrict__ y, int len) {
  wait_for_predecessor();
  launch_dependents();
  const u32 index = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR;
  if (index >= (u32)len) return;
  u32 rest = index;
  int from = 0;
  bool inside = true;
#pragma unroll
  for (int axis = kRank - 1; axis >= 0; --axis) {
    int at = (int)(axis > 0 ? rest % (u32)kDims[axis] : rest) - kBefore[axis];
    const int last = kInput[axis] - 1;
    if (axis > 0) rest /= (u32)kDims[axis];
    if (FILL == kConstant) inside = inside && at >= 0 && at <= last;
    if (FILL == kReflect) at = at < 0 ? -at : at > last ? 2 * last - at : at;
    if (FILL == kEdge) at = at < 0 ? 0 : at > last ? last : at;
    from += at * kStridesX[axis];
  }
  float v[VECTOR];
  if (inside) {
    load<TX, VECTOR>(x + from, v);
  } else {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) v[i] = VALUE;
  }
  store(y + index, v);
}

#endif
