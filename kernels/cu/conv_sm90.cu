// Dense convolution for Hopper: y = act(x * w + bias + residual) as an implicit matrix product, M = N P Q pixels by K output
// channels, summed over taps and input channels in steps of 64 channels; binary16 or bfloat16 operands, fp32 sums.
//
// A block stays on its multiprocessor and takes every gridDim.x-th tile. One thread loads operands (x by im2col copies, or
// by plain ones where the kernel is 1x1 with stride 1), STAGES steps ahead and across tiles. One thread stores results and
// loads the residual, in slabs of TILE_M x 64 elements, of which shared memory has SLOTS: a slab arrives filled with the
// residual, becomes the result in place and leaves. Two warp groups multiply: both on one tile (GROUPS 2), or each on
// every second tile (GROUPS 1), so that one's epilogue runs under the other's products. No block-wide barrier after the
// start.
//
// Defines: ELEMENT f16 or bf16; TILE_M, TILE_N, GROUPS, STAGES, SLOTS; WEIGHTS_STAY 1: all weights are loaded once and kept;
// C_IN, K_OUT multiples of 8; IM2COL 1: KERNEL_H, KERNEL_W, OUT_H, OUT_W, STRIDE_*, PAD_*, DILATION_*, else KERNEL_* 1;
// HAS_BIAS, HAS_RESIDUAL; ACTIVATION, ALPHA, BETA. Block 384 threads; lowering: kernels/src/cuda/lower/conv_sm90.rs.
#include "activation.cuh"
#include "sm90.cuh"

constexpr int kStepC = 64;  // channels a step: 128 bytes, a row of the swizzle
constexpr int kStepsC = (C_IN + kStepC - 1) / kStepC;
constexpr int kSteps = KERNEL_H * KERNEL_W * kStepsC;
constexpr int kTilesN = (K_OUT + TILE_N - 1) / TILE_N;
constexpr int kSlabs = TILE_N / 64;
constexpr int kBlocks = TILE_M / 64 / GROUPS;  // of 64 rows, that a warp group has of a tile

constexpr u32 kXBytes = TILE_M * 128;
constexpr u32 kWBytes = TILE_N * 128;
constexpr u32 kSlabBytes = TILE_M * 128;
constexpr u32 kStageBytes = kXBytes + (WEIGHTS_STAY ? 0 : kWBytes);
constexpr u32 kStayBytes = WEIGHTS_STAY ? kTilesN * kSteps * kWBytes : 0;

// Shared memory: weights that stay, stages (x, then weights), slabs, barriers.
struct Shared {
  u32 base;
  __device__ u32 stay(int tile_n, int step) const { return base + (tile_n * kSteps + step) * kWBytes; }
  __device__ u32 x(int stage) const { return base + kStayBytes + stage * kStageBytes; }
  __device__ u32 w(int stage) const { return x(stage) + kXBytes; }
  __device__ u32 slab(int slot) const { return base + kStayBytes + STAGES * kStageBytes + slot * kSlabBytes; }
  __device__ u32 barrier(int i) const { return slab(SLOTS) + 8 * i; }
  // A stage's operands have come; were used. A slot may be written by a warp group; holds a result.
  __device__ u32 full(int stage) const { return barrier(stage); }
  __device__ u32 empty(int stage) const { return barrier(STAGES + stage); }
  __device__ u32 ready(int slot) const { return barrier(2 * STAGES + slot); }
  __device__ u32 staged(int slot) const { return barrier(2 * STAGES + SLOTS + slot); }
  // The weights that stay have come.
  __device__ u32 stayed() const { return barrier(2 * STAGES + 2 * SLOTS); }
  // A warp group with a tile of its own may wait for that tile's stages; for its slots.
  __device__ u32 stage_turn(int group) const { return barrier(2 * STAGES + 2 * SLOTS + 1 + group); }
  __device__ u32 slot_turn(int group) const { return barrier(2 * STAGES + 2 * SLOTS + 3 + group); }
};

// A place in a ring of N, and the parity of the round.
template <int N>
struct Ring {
  int index = 0;
  u32 round = 0;
  __device__ __forceinline__ void next() {
    if (++index == N) {
      index = 0;
      round ^= 1;
    }
  }
  template <int COUNT>
  __device__ __forceinline__ void skip() {
    index += COUNT % N;
    round ^= (COUNT / N) & 1;
    if (index >= N) {
      index -= N;
      round ^= 1;
    }
  }
};

// Output channels run fastest, so that the tiles in work together read the same pixels.
__device__ __forceinline__ int first_channel(int tile) { return tile % kTilesN * TILE_N; }
__device__ __forceinline__ int first_pixel(int tile) { return tile / kTilesN * TILE_M; }

// Weights of a step for TILE_N output channels, zeros behind the last channels.
__device__ __forceinline__ void load_weights(u32 to, const TensorMap* weights, u32 barrier, int step, int channel) {
  load_3d(to, weights, barrier, step % kStepsC * kStepC, step / kStepsC, channel);
}

__device__ __forceinline__ void load_operands(Shared shared, const TensorMap* x, const TensorMap* weights, int tiles) {
  // Weights do not depend on the kernel before: all, or those of the first steps, are under way while it ends.
  constexpr int kEarly = kSteps < STAGES ? kSteps : STAGES;
  if (WEIGHTS_STAY) {
    barrier_expect(shared.stayed(), kStayBytes);
    for (int tile_n = 0; tile_n < kTilesN; ++tile_n) {
      for (int step = 0; step < kSteps; ++step) {
        load_weights(shared.stay(tile_n, step), weights, shared.stayed(), step, tile_n * TILE_N);
      }
    }
  } else {
    for (int step = 0; step < kEarly; ++step) {
      barrier_expect(shared.full(step), kStageBytes);
      load_weights(shared.w(step), weights, shared.full(step), step, first_channel(blockIdx.x));
    }
  }
  wait_for_predecessor();
  Ring<STAGES> stage;
  int early = WEIGHTS_STAY ? 0 : kEarly;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int channel = first_channel(tile), pixel = first_pixel(tile);
#if IM2COL
    const int w = pixel % OUT_W * STRIDE_W - PAD_W, h = pixel / OUT_W % OUT_H * STRIDE_H - PAD_H;
    const int n = pixel / (OUT_W * OUT_H);
#endif
    for (int step = 0; step < kSteps; ++step) {
      const u32 full = shared.full(stage.index);
      if (early > 0) {
        --early;
      } else {
        barrier_wait(shared.empty(stage.index), stage.round ^ 1);
        barrier_expect(full, kStageBytes);
        if (!WEIGHTS_STAY) load_weights(shared.w(stage.index), weights, full, step, channel);
      }
      const int c = step % kStepsC * kStepC;
#if IM2COL
      const int tap = step / kStepsC;
      load_im2col(shared.x(stage.index), x, full, c, w, h, n, (u16)(tap % KERNEL_W * DILATION_W),
                  (u16)(tap / KERNEL_W * DILATION_H));
#else
      load_2d(shared.x(stage.index), x, full, c, pixel);
#endif
      stage.next();
    }
  }
  launch_dependents();
}

// The slabs of a block's tiles in the order in which they use the slots.
struct Slab {
  int tile, part;
  __device__ __forceinline__ void next() {
    if (++part == kSlabs) {
      part = 0;
      tile += gridDim.x;
    }
  }
  __device__ __forceinline__ int channel() const { return first_channel(tile) + part * 64; }
};

// Hands a slot whose slab has left to the next slab.
__device__ __forceinline__ void refill(Shared shared, int slot, Slab& next, const TensorMap* residual, int tiles) {
  if (next.tile >= tiles) return;
  if (HAS_RESIDUAL) {
    barrier_expect(shared.ready(slot), kSlabBytes);
    load_2d(shared.slab(slot), residual, shared.ready(slot), next.channel(), first_pixel(next.tile));
  } else {
    barrier_arrive(shared.ready(slot));
  }
  next.next();
}

__device__ __forceinline__ void store_results(Shared shared, const TensorMap* y, const TensorMap* residual, int tiles) {
  wait_for_predecessor();
  Slab incoming{(int)blockIdx.x, 0};
  for (int slot = 0; slot < SLOTS; ++slot) refill(shared, slot, incoming, residual, tiles);
  Ring<SLOTS> slot;
  int before = -1;
  for (Slab slab{(int)blockIdx.x, 0}; slab.tile < tiles; slab.next()) {
    barrier_wait(shared.staged(slot.index), slot.round);
    store_2d(y, shared.slab(slot.index), slab.channel(), first_pixel(slab.tile));
    // One store behind, so that the next does not wait for this one.
    if (before >= 0) {
      store_wait_read<1>();
      refill(shared, before, incoming, residual, tiles);
    }
    before = slot.index;
    slot.next();
  }
  store_wait();
}

__device__ __forceinline__ void multiply_tiles(Shared shared, const float* bias, int tiles) {
  const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  Ring<STAGES> stage;
  Ring<SLOTS> slot;
  int tile = blockIdx.x;
  if (GROUPS == 1 && group == 1) {
    tile += gridDim.x;
    stage.skip<kSteps>();
    slot.skip<kSlabs>();
  }
  // Where this group's rows of a tile begin; the row and the 16-byte piece of a slab that this lane addresses.
  const int first_row = GROUPS == 1 ? 0 : group * kBlocks * 64;
  const int row = first_row + warp * 16 + lane % 16, piece = lane / 16;
  if (WEIGHTS_STAY) barrier_wait(shared.stayed(), 0);

  // A barrier tells one round from the next, not from the one after that. So a group waits for its tile's stages once the
  // other, whose tile is before, has waited for all of its own: then they are one round behind at most. Slots likewise.
  for (u32 turn = group ^ 1; tile < tiles; tile += gridDim.x * (2 / GROUPS), turn ^= 1) {
    float sum[kBlocks][TILE_N / 2];
    int before = 0;
    if (GROUPS == 1) barrier_wait(shared.stage_turn(group), turn);
    for (int step = 0; step < kSteps; ++step) {
      barrier_wait(shared.full(stage.index), stage.round);
      const u64 a = matrix_operand(shared.x(stage.index) + first_row * 128);
      const u64 b = matrix_operand(WEIGHTS_STAY ? shared.stay(tile % kTilesN, step) : shared.w(stage.index));
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply(ELEMENT{}, sum[block], a + block * (64 * 128 >> 4) + 2 * k, b + 2 * k, step | k);
        }
      }
      products_commit();
      if (step > 0) {
        products_wait<1>();
        if (lane == 0) barrier_arrive(shared.empty(before));
      }
      before = stage.index;
      stage.next();
    }
    if (GROUPS == 1 && lane == 0) barrier_arrive(shared.stage_turn(group ^ 1));
    products_wait<0>();
    if (lane == 0) barrier_arrive(shared.empty(before));
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < TILE_N / 2; ++i) pin(sum[block][i]);
    }

    if (GROUPS == 1) barrier_wait(shared.slot_turn(group), turn);
#pragma unroll
    for (int part = 0; part < kSlabs; ++part) {
      // A lane has columns 2 (lane % 4) and the next of every 8. Ordinary loads, which stay behind the barrier before: all
      // parts' at once would not fit the registers.
      float2 offset[8];
      const int column = first_channel(tile) + part * 64 + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const bool inside = K_OUT % TILE_N == 0 || column + 8 * i < K_OUT;
        offset[i] = HAS_BIAS && inside ? *(const float2*)(bias + column + 8 * i) : make_float2(0.0f, 0.0f);
      }
      barrier_wait(shared.ready(slot.index), slot.round);
      if (GROUPS == 1 && part == kSlabs - 1 && lane == 0) barrier_arrive(shared.slot_turn(group ^ 1));
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const u32 at = shared.slab(slot.index) + (row + block * 64) * 128;
        u32 values[4][4];
        if (HAS_RESIDUAL) {
#pragma unroll
          for (int i = 0; i < 4; ++i) ldmatrix_x4(values[i], at + (((2 * i + piece) ^ (row % 8)) << 4));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            // Register j: the row (j % 2) * 8 further down, the 8 columns j / 2.
            const float* s = &sum[block][part * 32 + i * 8 + j * 2];
            float lo = s[0] + offset[2 * i + j / 2].x, hi = s[1] + offset[2 * i + j / 2].y;
            if (HAS_RESIDUAL) {
              const float2 add = unpack(ELEMENT{}, values[i][j]);
              lo += add.x;
              hi += add.y;
            }
            values[i][j] = pack(ELEMENT{}, apply<ACTIVATION>(lo, ALPHA, BETA), apply<ACTIVATION>(hi, ALPHA, BETA));
          }
          stmatrix_x4(at + (((2 * i + piece) ^ (row % 8)) << 4), values[i]);
        }
      }
      shared_fence();
      __syncwarp();
      if (lane == 0) barrier_arrive(shared.staged(slot.index));
      slot.next();
    }
    if (GROUPS == 1) {
      stage.skip<kSteps>();
      slot.skip<kSlabs>();
    }
  }
}

// `bias` may be null without HAS_BIAS; `residual` is y's map without HAS_RESIDUAL. gridDim.x <= tiles.
extern "C" __global__ void __launch_bounds__(384, 1)
    conv_sm90(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap weights,
              const __grid_constant__ TensorMap y, const __grid_constant__ TensorMap residual,
              const float* bias, int tiles) {
  DYNAMIC_SMEM(memory);
  const Shared shared{smem_address(memory)};
  if (threadIdx.x == 0) {
    prefetch_map(&x);
    prefetch_map(&weights);
    prefetch_map(&y);
    if (HAS_RESIDUAL) prefetch_map(&residual);
    for (int stage = 0; stage < STAGES; ++stage) {
      barrier_init(shared.full(stage), 1);
      barrier_init(shared.empty(stage), 4 * GROUPS);
    }
    for (int slot = 0; slot < SLOTS; ++slot) {
      barrier_init(shared.ready(slot), 1);
      barrier_init(shared.staged(slot), 4 * GROUPS);
    }
    barrier_init(shared.stayed(), 1);
    for (int group = 0; group < 2; ++group) {
      barrier_init(shared.stage_turn(group), 4);
      barrier_init(shared.slot_turn(group), 4);
    }
    barrier_init_fence();
  }
  __syncthreads();
  // 128 x 40 + 256 x 232 registers are the 384 x 168 that the launch bound leaves.
  if (threadIdx.x < 128) {
    release_registers<40>();
    if (threadIdx.x == 0) load_operands(shared, &x, &weights, tiles);
    if (threadIdx.x == 32) store_results(shared, &y, &residual, tiles);
  } else {
    claim_registers<232>();
    multiply_tiles(shared, bias, tiles);
  }
}
