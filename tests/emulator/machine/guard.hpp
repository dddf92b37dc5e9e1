// What lies around memory that a kernel may use.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

// A NaN in binary16, bfloat16 and fp32 alike, so that reading it spoils a result, and yet not what memory starts with.
inline unsigned char guard_byte(const unsigned char* at) { return reinterpret_cast<uintptr_t>(at) % 2 == 0 ? 0xa5 : 0xff; }

inline void put_guard(unsigned char* at, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) at[i] = guard_byte(at + i);
}

// Returns the first byte that was written over, or `bytes`.
inline size_t first_damage(const unsigned char* at, size_t bytes) {
  size_t i = 0;
  while (i < bytes && at[i] == guard_byte(at + i)) ++i;
  return i;
}

}  // namespace emulator
