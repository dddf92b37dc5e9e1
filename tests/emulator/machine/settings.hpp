// What the environment asks for. README.md explains the variables.
#pragma once
#include <cstddef>
#include <string>

namespace emulator {

// What is special about one device; -1: none.
struct Odd {
  int gpu;
  unsigned long long value;
};

// Other programs' use of the memory: from which allocation on, counted from 1, and how many are refused until they are gone.
struct Others {
  size_t from, refused;
};

struct Settings {
  unsigned gpus;
  // The device with so many bytes of memory.
  Odd small_gpu;
  // The device whose calls fail after so many.
  Odd failing_gpu;
  size_t memory_bytes;
  // Memory of the host that may be locked.
  size_t host_bytes;
  // The allocation that fails, counted from 1; 0: none.
  size_t failing_allocation;
  Others others;
  // KIND:N:CODE or KIND:N:CODE:GPU, the call with which the context is lost.
  std::string losing_call;
  unsigned compute_capability;
  bool lazy_streams;
  bool early_copies;
  // 0: threads and blocks start in ascending order; else in a random one of this seed.
  unsigned long long seed;
  unsigned workers;
};

// Read once, at the first call.
const Settings& settings();

}  // namespace emulator
