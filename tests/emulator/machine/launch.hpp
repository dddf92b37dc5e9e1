// Running a grid: what the driver asks of the machine.
#pragma once
#include "device/abi.hpp"

namespace emulator {

struct Extent {
  unsigned x, y, z;
  unsigned long long count() const { return 1ull * x * y * z; }
};

struct Launch {
  const Image* image;
  const Kernel* kernel;
  Extent grid, block;
  unsigned shared_bytes;
  void* const* params;
};

// The functions that a kernel's object is bound to.
extern const Machine kMachine;

// Runs all blocks, on several OS threads, and returns when the last has ended.
void run_grid(const Launch& launch);

// Bytes of a module's variables that are __shared__ without being dynamic.
unsigned static_shared_bytes(const Image& image);

// From now on a fault inside a kernel is reported with kernel, block and thread before the process ends.
void report_faults();

}  // namespace emulator
