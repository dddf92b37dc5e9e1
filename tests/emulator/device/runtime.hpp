// Included before every kernel text: CUDA C++'s keywords, built-in variables and synchronisation for a CPU.
#pragma once
#include "abi.hpp"
#include "vectors.hpp"

// The compiler ignores these two attributes; the text after preprocessing is searched for them (nvrtc/entries.cpp).
#define __global__ __attribute__((emulator_global))
#define __launch_bounds__(...) __attribute__((emulator_launch_bounds(__VA_ARGS__)))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ __attribute__((visibility("default")))
#define __grid_constant__
// A block runs on one OS thread from its first to its last instruction, so what is local to that thread is the block's.
#define __shared__ static thread_local
#define __CUDACC__ 1
#define __CUDACC_RTC__ 1

namespace emulator {

static const Machine* machine;

// In one struct, so that the machine finds all of it, and can poison all else that is local to an OS thread.
struct Coordinates {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
static thread_local __constinit Coordinates coordinates = {};

inline void bind(const Machine* m) { machine = m; }
inline unsigned* coordinates_address() { return &coordinates.thread.x; }

template <unsigned... I>
struct Indices {};

template <auto F>
struct Entry;

template <class... Parameters, void (*F)(Parameters...)>
struct Entry<F> {
  static constexpr unsigned param_bytes[] = {sizeof(Parameters)..., 0};
  template <unsigned... I>
  static void call(void* const* params, Indices<I...>) {
    F(*static_cast<Parameters*>(params[I])...);
  }
  static void run(void* const* params) { call(params, Indices<__integer_pack(sizeof...(Parameters))...>()); }
  static constexpr Kernel kernel(const char* name, unsigned max_threads) {
    return {name, run, sizeof...(Parameters), param_bytes, max_threads};
  }
};

// The first argument of __launch_bounds__, of which there are up to three.
template <class... T>
constexpr unsigned first(unsigned x, T...) { return x; }
constexpr unsigned first() { return 0; }

}  // namespace emulator

#define threadIdx (emulator::coordinates.thread)
#define blockIdx (emulator::coordinates.block)
#define blockDim (emulator::coordinates.block_size)
#define gridDim (emulator::coordinates.grid_size)
constexpr int warpSize = 32;

static inline void __syncthreads() { emulator::machine->barrier(emulator::kBarrierPlain, 0); }
static inline int __syncthreads_or(int predicate) { return emulator::machine->barrier(emulator::kBarrierOr, predicate); }
static inline int __syncthreads_and(int predicate) { return emulator::machine->barrier(emulator::kBarrierAnd, predicate); }
static inline int __syncthreads_count(int predicate) { return emulator::machine->barrier(emulator::kBarrierCount, predicate); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { emulator::machine->collective(emulator::kSyncWarp, mask, nullptr); }
static inline unsigned __activemask() { return emulator::machine->live_lanes(); }

static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  emulator::BallotOperand operand = {predicate != 0, 0};
  emulator::machine->collective(emulator::kBallot, mask, &operand);
  return operand.result;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

namespace emulator {

inline unsigned lane() {
  const Coordinates& c = coordinates;
  return (c.thread.x + c.block_size.x * (c.thread.y + c.block_size.y * c.thread.z)) % 32;
}

template <class T>
inline T exchange(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  ShuffleOperand operand = {0, source};
  __builtin_memcpy(&operand.value, &value, sizeof(T));
  machine->collective(kShuffle, mask, &operand);
  __builtin_memcpy(&value, &operand.value, sizeof(T));
  return value;
}

}  // namespace emulator

// The lane that is read, as PTX's shfl.sync defines it: a lane out of its segment of `width` gives the own value.
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned first = emulator::lane() & ~(unsigned)(width - 1);
  return emulator::exchange(mask, value, first | ((unsigned)source & (unsigned)(width - 1)));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = emulator::lane(), first = lane & ~(unsigned)(width - 1);
  return emulator::exchange(mask, value, lane - first >= delta ? lane - delta : lane);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = emulator::lane(), last = lane | (unsigned)(width - 1);
  return emulator::exchange(mask, value, delta <= last - lane ? lane + delta : lane);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const unsigned lane = emulator::lane(), source = lane ^ (unsigned)lane_mask;
  return emulator::exchange(mask, value, source <= (lane | (unsigned)(width - 1)) ? source : lane);
}

// What -fsanitize calls: a GPU would stop at a misaligned address, and go wrong silently at the others.
namespace emulator {
struct SourceLocation {
  const char* file;
  unsigned line, column;
};
}  // namespace emulator
#define EMULATOR_REPORT(name, what, ...)                                                             \
  extern "C" __attribute__((weak, visibility("hidden"))) void __ubsan_handle_##name##_abort(         \
      emulator::SourceLocation* at, ##__VA_ARGS__) {                                                 \
    emulator::machine->fail(what, at->file, at->line);                                               \
    __builtin_unreachable();                                                                         \
  }
EMULATOR_REPORT(type_mismatch_v1, "a null pointer, or an address that is not aligned for its type", unsigned long)
EMULATOR_REPORT(out_of_bounds, "an index outside its array", unsigned long)
EMULATOR_REPORT(shift_out_of_bounds, "a shift by as many bits as there are, or more", unsigned long, unsigned long)
EMULATOR_REPORT(add_overflow, "a signed sum that overflows", unsigned long, unsigned long)
EMULATOR_REPORT(sub_overflow, "a signed difference that overflows", unsigned long, unsigned long)
EMULATOR_REPORT(mul_overflow, "a signed product that overflows", unsigned long, unsigned long)
EMULATOR_REPORT(divrem_overflow, "a division by zero, or one that overflows", unsigned long, unsigned long)
EMULATOR_REPORT(negate_overflow, "a negation that overflows", unsigned long)
#undef EMULATOR_REPORT

#include "intrinsics.hpp"
