// What the environment asks for. README.md explains the variables.
#pragma once
#include <cstddef>

namespace emulator {

struct Settings {
  size_t memory_bytes;
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
