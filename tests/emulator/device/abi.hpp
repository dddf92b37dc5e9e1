// What a compiled kernel and the machine that runs it say to one another. No includes: it is part of every kernel.
#pragma once

namespace emulator {

// Raised with every change below, so that an object of another version is refused, not run.
constexpr unsigned kAbiVersion = 2;

enum Barrier : int { kBarrierPlain, kBarrierOr, kBarrierAnd, kBarrierCount };

enum Collective : int {
  kSyncWarp,         // no operand
  kShuffle,          // ShuffleOperand
  kBallot,           // BallotOperand
  kLdmatrix,         // LdmatrixOperand
  kLdmatrixTrans,    // LdmatrixOperand
  kMmaF16,           // MmaOperand
  kMmaBf16,          // MmaOperand
  kMmaTf32,          // MmaOperand
  kMmaS8U8,          // MmaOperand
};

// `source` is the lane whose value is wanted; `value` goes in as this lane's and comes back as that one's.
struct ShuffleOperand {
  unsigned long long value;
  unsigned source;
};

// Bit l of `result` is the predicate of lane l.
struct BallotOperand {
  unsigned predicate;
  unsigned result;
};

struct LdmatrixOperand {
  unsigned row;
  unsigned matrix[4];
};

// `d` are four floats, or four ints where the operands are bytes.
struct MmaOperand {
  const unsigned* a;
  const unsigned* b;
  void* d;
};

// What the machine does for a running thread.
struct Machine {
  // Returns the reduction over the block's predicates that the kind names.
  int (*barrier)(int kind, int predicate);
  void (*collective)(int kind, unsigned mask, void* operand);
  unsigned char* (*dynamic_smem)();
  unsigned (*smem_address)(const void* pointer);
  void (*copy_async)(unsigned to, const void* from, unsigned size, unsigned bytes);
  void (*copy_commit)();
  void (*copy_wait)(int groups_under_way);
  // Lanes of this warp that have not returned.
  unsigned (*live_lanes)();
  // Ends the process, naming kernel, block and thread.
  void (*fail)(const char* what, const char* file, unsigned line);
};

// One entry point.
struct Kernel {
  const char* name;
  void (*run)(void* const* params);
  unsigned param_count;
  const unsigned* param_bytes;
  // Of __launch_bounds__; 0 where there are none.
  unsigned max_threads;
};

// The one symbol that a compiled kernel exports, `emulator_image`.
struct Image {
  unsigned abi_version;
  // 80 for sm_80.
  unsigned compute_capability;
  void (*bind)(const Machine*);
  // This OS thread's threadIdx, blockIdx, blockDim and gridDim, three words each.
  unsigned* (*coordinates)();
  const Kernel* kernels;
  unsigned kernel_count;
};

}  // namespace emulator
