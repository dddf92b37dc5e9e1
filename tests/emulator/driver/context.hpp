// Device and contexts: what every other call asks first.
#pragma once
#include "driver/api.hpp"

namespace emulator {

// CUDA_SUCCESS where cuInit was called and this OS thread has a context.
CUresult ready();

// Kinds of calls that OCELLUS_EMULATOR_FAIL can name; README.md has the names.
enum class Call { kAllocate, kCopy, kDownload, kEvent, kFill, kFree, kGraph, kHostAllocate, kHostFree, kLaunch, kLoad, kRecord, kStream, kUpload };

// The same for a call that counts: with the one that the environment names the context is lost, and with it this call and
// every later one that asks for a context, whoever makes it, as after a kernel's wild access.
CUresult ready(Call call);

// The error of a lost context, else CUDA_SUCCESS.
CUresult lost();

// The device of this OS thread's context, 0 where it has none.
int current_gpu();

// Memory of a device.
size_t memory_bytes(int gpu);

// The error of a device that the environment lets fail, counting this call, else CUDA_SUCCESS.
CUresult gpu_lost(int gpu);

// Shared memory that a block may have: without asking, at most, and on one multiprocessor.
constexpr unsigned kDefaultSharedBytes = 48 * 1024;
unsigned shared_bytes_optin();
unsigned shared_bytes_per_multiprocessor();

constexpr unsigned kMaxThreadsPerMultiprocessor = 2048;

}  // namespace emulator

// Returns from a function of the interface with the first error.
#define CHECK(expression)                                      \
  do {                                                         \
    if (const CUresult checked = (expression)) return checked; \
  } while (false)
#define REQUIRE(condition, error)  \
  do {                             \
    if (!(condition)) return error; \
  } while (false)
