// Devices that differ: one with less memory, one that fails.
#include <atomic>

#include "driver/context.hpp"
#include "machine/settings.hpp"

namespace emulator {

size_t memory_bytes(int gpu) {
  const Odd& small = settings().small_gpu;
  return gpu == small.gpu ? static_cast<size_t>(small.value) : settings().memory_bytes;
}

CUresult gpu_lost(int gpu) {
  // CUDA_ERROR_ILLEGAL_ADDRESS, which stays.
  constexpr auto kError = static_cast<CUresult>(700);
  static std::atomic<unsigned long long> calls{0};
  const Odd& failing = settings().failing_gpu;
  return gpu == failing.gpu && ++calls > failing.value ? kError : CUDA_SUCCESS;
}

}  // namespace emulator
