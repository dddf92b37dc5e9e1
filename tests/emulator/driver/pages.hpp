// Where the driver's memory comes from.
#pragma once
#include <cstddef>

namespace emulator {

// What fresh memory is full of: NaN in every floating-point type.
constexpr unsigned char kFresh = 0xff;

// Memory full of kFresh, aligned to a page where it is large and to 512 bytes otherwise; null where there is no more.
// Large memory costs only the pages that are written to.
void* new_pages(size_t bytes);
// Gives it back: large memory is no longer mapped, so that using it is a fault; small memory is overwritten.
void free_pages(void* at, size_t bytes);

}  // namespace emulator
