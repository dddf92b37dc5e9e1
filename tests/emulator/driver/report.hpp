// Who calls and who allocates, for tests that count.
#pragma once

namespace emulator {

// Counts a call of this OS thread that needs a context.
void count_call();

// Counts that this OS thread asks for memory of the device or of the host.
void count_allocation();

}  // namespace emulator
