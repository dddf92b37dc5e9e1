// Devices, their primary contexts and the stack of current contexts.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "driver/context.hpp"
#include "driver/report.hpp"
#include "driver/memory.hpp"
#include "driver/stream.hpp"
#include "machine/launch.hpp"
#include "machine/settings.hpp"
#include "notes.hpp"

struct CUctx_st {
  int gpu = 0;
  std::mutex mutex;
  unsigned references = 0;
  unsigned flags = 0;
  std::map<int, size_t> limits = {{0, 1024}, {1, 1 << 20}, {2, 8 << 20}, {5, 64}, {6, 0}};
};

namespace {

std::atomic<bool> initialised{false};
thread_local std::vector<CUcontext> current;

// One for each device.
std::vector<CUctx_st*>& contexts() {
  static auto* const all = [] {
    auto* const made = new std::vector<CUctx_st*>;
    for (unsigned gpu = 0; gpu < emulator::settings().gpus; ++gpu) {
      made->push_back(new CUctx_st);
      made->back()->gpu = static_cast<int>(gpu);
    }
    return made;
  }();
  return *all;
}

CUctx_st& primary(CUdevice device) { return *contexts().at(static_cast<size_t>(device)); }

bool is_context(CUcontext context) { return std::find(contexts().begin(), contexts().end(), context) != contexts().end(); }

CUresult check_device(CUdevice device) {
  REQUIRE(initialised, CUDA_ERROR_NOT_INITIALIZED);
  return device >= 0 && device < static_cast<int>(contexts().size()) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// By the numbers of CUdevice_attribute. What is not here is 0: a feature that the device lacks.
const std::map<int, int>& attributes() {
  using namespace emulator;
  static const auto* const all = new std::map<int, int>{
      {1, 1024},                                                  // MAX_THREADS_PER_BLOCK
      {2, 1024}, {3, 1024}, {4, 64},                              // MAX_BLOCK_DIM_X, Y, Z
      {5, 0x7fffffff}, {6, 65535}, {7, 65535},                    // MAX_GRID_DIM_X, Y, Z
      {8, kDefaultSharedBytes},                                   // MAX_SHARED_MEMORY_PER_BLOCK
      {9, 65536},                                                 // TOTAL_CONSTANT_MEMORY
      {10, 32},                                                   // WARP_SIZE
      {11, 0x7fffffff},                                           // MAX_PITCH
      {12, 65536}, {82, 65536},                                   // MAX_REGISTERS_PER_BLOCK, PER_MULTIPROCESSOR
      {13, 1410000}, {36, 1215000},                               // CLOCK_RATE, MEMORY_CLOCK_RATE, kHz
      {14, 512},                                                  // TEXTURE_ALIGNMENT
      {15, 1}, {40, 3},                                           // GPU_OVERLAP, ASYNC_ENGINE_COUNT
      {16, 108},                                                  // MULTIPROCESSOR_COUNT
      {19, 1}, {41, 1}, {91, 1}, {99, 1},                         // CAN_MAP_HOST_MEMORY, UNIFIED_ADDRESSING, host registration
      {31, 1},                                                    // CONCURRENT_KERNELS
      {33, 1},                                                    // PCI_BUS_ID
      {37, 5120},                                                 // GLOBAL_MEMORY_BUS_WIDTH, bits
      {38, 40 << 20},                                             // L2_CACHE_SIZE
      {39, kMaxThreadsPerMultiprocessor},                         // MAX_THREADS_PER_MULTIPROCESSOR
      {75, static_cast<int>(settings().compute_capability / 10)}, // COMPUTE_CAPABILITY_MAJOR
      {76, static_cast<int>(settings().compute_capability % 10)}, // COMPUTE_CAPABILITY_MINOR
      {78, 1},                                                    // STREAM_PRIORITIES_SUPPORTED
      {79, 1}, {80, 1},                                           // GLOBAL_L1_CACHE_SUPPORTED, LOCAL_L1_CACHE_SUPPORTED
      {81, static_cast<int>(shared_bytes_per_multiprocessor())},  // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
      {97, static_cast<int>(shared_bytes_optin())},               // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
      {106, 32},                                                  // MAX_BLOCKS_PER_MULTIPROCESSOR
      {111, 1024},                                                // RESERVED_SHARED_MEMORY_PER_BLOCK
      {115, 1},                                                   // MEMORY_POOLS_SUPPORTED
  };
  return *all;
}

}  // namespace

namespace emulator {

CUresult ready() {
  REQUIRE(initialised, CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(!current.empty() && current.back() != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  if (current.back()->references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  count_call();
  CHECK(lost());
  return gpu_lost(current_gpu());
}

int current_gpu() { return current.empty() || current.back() == nullptr ? 0 : current.back()->gpu; }

unsigned shared_bytes_per_multiprocessor() {
  switch (settings().compute_capability) {
    case 75: return 64 * 1024;
    case 86: case 89: case 120: return 100 * 1024;
    case 80: case 87: return 164 * 1024;
    default: return 228 * 1024;
  }
}

// One KiB is the system's.
unsigned shared_bytes_optin() { return shared_bytes_per_multiprocessor() - (settings().compute_capability == 75 ? 0 : 1024); }

}  // namespace emulator

EXPORT CUresult cuInit(unsigned flags) {
  REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
  emulator::report_faults();
  // What the driver looks at when it starts.
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  note("queues", queues == nullptr ? "default" : queues);
  initialised = true;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int* version) {
  REQUIRE(version != nullptr, CUDA_ERROR_INVALID_VALUE);
  *version = 13000;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int* count) {
  REQUIRE(initialised, CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(count != nullptr, CUDA_ERROR_INVALID_VALUE);
  *count = static_cast<int>(contexts().size());
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  REQUIRE(device != nullptr, CUDA_ERROR_INVALID_VALUE);
  CHECK(check_device(ordinal));
  *device = ordinal;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE(name != nullptr && length > 0, CUDA_ERROR_INVALID_VALUE);
  constexpr char kName[] = "Ocellus emulator";
  const size_t bytes = std::min<size_t>(static_cast<size_t>(length) - 1, sizeof kName - 1);
  std::memcpy(name, kName, bytes);
  name[bytes] = '\0';
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE(uuid != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::memcpy(uuid->bytes, "ocellus-emulator", 16);
  uuid->bytes[15] = static_cast<unsigned char>('r' + device);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

EXPORT CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  CHECK(check_device(device));
  constexpr char kId[] = "0000:01:00.0";
  REQUIRE(id != nullptr && length >= static_cast<int>(sizeof kId), CUDA_ERROR_INVALID_VALUE);
  std::memcpy(id, kId, sizeof kId);
  id[6] = static_cast<char>('1' + device);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE(bytes != nullptr, CUDA_ERROR_INVALID_VALUE);
  *bytes = emulator::memory_bytes(device);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE(value != nullptr && attribute > 0, CUDA_ERROR_INVALID_VALUE);
  const auto at = attributes().find(attribute);
  *value = at == attributes().end() ? 0 : at->second;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  CHECK(check_device(device));
  REQUIRE(context != nullptr, CUDA_ERROR_INVALID_VALUE);
  const std::lock_guard<std::mutex> lock(primary(device).mutex);
  ++primary(device).references;
  *context = &primary(device);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  CHECK(check_device(device));
  const std::lock_guard<std::mutex> lock(primary(device).mutex);
  REQUIRE(primary(device).references > 0, CUDA_ERROR_INVALID_CONTEXT);
  if (--primary(device).references == 0) {
    // The context is destroyed, and with it all that was allocated in it.
    emulator::synchronise_all();
    emulator::memory().free_all(device);
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  CHECK(check_device(device));
  const std::lock_guard<std::mutex> lock(primary(device).mutex);
  if (flags != nullptr) *flags = primary(device).flags;
  if (active != nullptr) *active = primary(device).references > 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  CHECK(check_device(device));
  const std::lock_guard<std::mutex> lock(primary(device).mutex);
  primary(device).flags = flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  REQUIRE(initialised, CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(context == nullptr || is_context(context), CUDA_ERROR_INVALID_CONTEXT);
  if (!current.empty()) current.pop_back();
  if (context != nullptr) current.push_back(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  REQUIRE(initialised, CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(context != nullptr, CUDA_ERROR_INVALID_VALUE);
  *context = current.empty() ? nullptr : current.back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  REQUIRE(initialised, CUDA_ERROR_NOT_INITIALIZED);
  REQUIRE(is_context(context), CUDA_ERROR_INVALID_CONTEXT);
  current.push_back(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  REQUIRE(!current.empty(), CUDA_ERROR_INVALID_CONTEXT);
  if (context != nullptr) *context = current.back();
  current.pop_back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  CHECK(emulator::ready());
  REQUIRE(device != nullptr, CUDA_ERROR_INVALID_VALUE);
  *device = emulator::current_gpu();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetFlags(unsigned* flags) {
  CHECK(emulator::ready());
  REQUIRE(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
  *flags = current.back()->flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetFlags(unsigned flags) {
  CHECK(emulator::ready());
  current.back()->flags = flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  REQUIRE(version != nullptr, CUDA_ERROR_INVALID_VALUE);
  *version = 3020;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CHECK(emulator::ready());
  if (least != nullptr) *least = emulator::kLeastPriority;
  if (greatest != nullptr) *greatest = emulator::kGreatestPriority;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetLimit(size_t* value, int limit) {
  CHECK(emulator::ready());
  const std::lock_guard<std::mutex> lock(current.back()->mutex);
  const auto at = current.back()->limits.find(limit);
  REQUIRE(value != nullptr && at != current.back()->limits.end(), CUDA_ERROR_INVALID_VALUE);
  *value = at->second;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
  CHECK(emulator::ready());
  const std::lock_guard<std::mutex> lock(current.back()->mutex);
  const auto at = current.back()->limits.find(limit);
  REQUIRE(at != current.back()->limits.end(), CUDA_ERROR_INVALID_VALUE);
  at->second = value;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCacheConfig(int) { return emulator::ready(); }

EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, uint64_t, int* status) {
  REQUIRE(symbol != nullptr && function != nullptr, CUDA_ERROR_INVALID_VALUE);
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&cuInit), &self);
  void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  // The names that a caller gives are without the version that the exported ones end in.
  for (const char* suffix : {"_v2", ""}) {
    *function = dlsym(library, (std::string(symbol) + suffix).c_str());
    if (*function != nullptr) break;
  }
  dlclose(library);
  if (status != nullptr) *status = *function == nullptr ? 1 : 0;
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
