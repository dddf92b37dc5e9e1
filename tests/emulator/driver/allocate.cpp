// The interface to memory: allocation, pools, host memory, questions about pointers.
#include <algorithm>
#include <memory>
#include <set>

#include "driver/context.hpp"
#include "driver/memory.hpp"
#include "driver/stream.hpp"
#include "machine/settings.hpp"

using namespace emulator;

namespace {

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }
CUdeviceptr address(const void* at) { return reinterpret_cast<CUdeviceptr>(at); }

struct Pools {
  std::mutex mutex;
  std::map<Pool*, std::unique_ptr<Pool>> made;
  Pool* current = &default_pool();
  // Destroyed while memory of theirs is in use, which stays valid.
  std::vector<std::unique_ptr<Pool>> destroyed;
  bool has(Pool* pool) { return pool == &default_pool() || made.count(pool) == 1; }
};
Pools& pools() {
  static auto* const all = new Pools;
  return *all;
}

CUresult allocate_from(Pool* pool, CUdeviceptr* to, size_t bytes, CUstream stream) {
  CHECK(ready(Call::kAllocate));
  REQUIRE(to != nullptr && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  // Would become a node of the graph.
  REQUIRE(!is_capturing(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  void* const at = memory().allocate(MemoryKind::kDevice, bytes, 0, pool);
  REQUIRE(at != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  *to = address(at);
  return CUDA_SUCCESS;
}

}  // namespace

EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  CHECK(ready());
  REQUIRE(free != nullptr && total != nullptr, CUDA_ERROR_INVALID_VALUE);
  *total = memory_bytes(current_gpu());
  *free = memory().free_bytes(current_gpu());
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* to, size_t bytes) {
  CHECK(ready(Call::kAllocate));
  CHECK(allowed_while_capturing());
  REQUIRE(to != nullptr && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  void* const at = memory().allocate(MemoryKind::kDevice, bytes);
  REQUIRE(at != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  *to = address(at);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* to, size_t* pitch, size_t width_bytes, size_t height, unsigned element_bytes) {
  REQUIRE(pitch != nullptr && (element_bytes == 4 || element_bytes == 8 || element_bytes == 16), CUDA_ERROR_INVALID_VALUE);
  constexpr size_t kPitchAlignment = 512;
  *pitch = (width_bytes + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  return cuMemAlloc_v2(to, *pitch * height);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at) {
  CHECK(ready(Call::kFree));
  if (at == 0) return CUDA_SUCCESS;
  CHECK(allowed_while_capturing());
  // Waits for the device, as the real one does.
  synchronise_all();
  return memory().free(pointer(at), MemoryKind::kDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr* to, size_t bytes, CUstream stream) {
  Pool* pool = nullptr;
  {
    const std::lock_guard<std::mutex> lock(pools().mutex);
    pool = pools().current;
  }
  return allocate_from(pool, to, bytes, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* to, size_t bytes, CUmemoryPool pool, CUstream stream) {
  {
    const std::lock_guard<std::mutex> lock(pools().mutex);
    REQUIRE(pools().has(pool), CUDA_ERROR_INVALID_VALUE);
  }
  return allocate_from(pool, to, bytes, stream);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) {
  CHECK(ready(Call::kFree));
  if (at == 0) return CUDA_SUCCESS;
  REQUIRE(!is_capturing(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  void* start = nullptr;
  Allocation allocation;
  REQUIRE(memory().find(pointer(at), 0, &start, &allocation) && start == pointer(at) && allocation.kind == MemoryKind::kDevice,
          CUDA_ERROR_INVALID_VALUE);
  return enqueue(stream, [at] { memory().free(pointer(at), MemoryKind::kDevice); });
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const void* properties) {
  CHECK(ready());
  REQUIRE(pool != nullptr && properties != nullptr, CUDA_ERROR_INVALID_VALUE);
  auto made = std::make_unique<Pool>();
  *pool = made.get();
  const std::lock_guard<std::mutex> lock(pools().mutex);
  pools().made[*pool] = std::move(made);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(pools().mutex);
  const auto at = pools().made.find(pool);
  REQUIRE(at != pools().made.end(), CUDA_ERROR_INVALID_VALUE);
  if (pools().current == pool) pools().current = &default_pool();
  pools().destroyed.push_back(std::move(at->second));
  pools().made.erase(at);
  return CUDA_SUCCESS;
}

namespace {
constexpr int kReservedNow = 5, kReservedMost = 6, kUsedNow = 7, kUsedMost = 8;
constexpr int kLastFlag = 3;  // the attributes up to here are ints, the others 64-bit counts
}  // namespace

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(pools().mutex);
  REQUIRE(pools().has(pool) && value != nullptr && attribute >= 1 && attribute <= kUsedMost, CUDA_ERROR_INVALID_VALUE);
  if (attribute == kUsedMost) {
    pool->most_used_bytes = pool->used_bytes;
  } else {
    pool->attributes[attribute] = attribute <= kLastFlag ? *static_cast<unsigned*>(value) : *static_cast<uint64_t*>(value);
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(pools().mutex);
  REQUIRE(pools().has(pool) && value != nullptr && attribute >= 1 && attribute <= kUsedMost, CUDA_ERROR_INVALID_VALUE);
  if (attribute <= kLastFlag) {
    *static_cast<unsigned*>(value) = static_cast<unsigned>(pool->attributes[attribute]);
  } else if (attribute == kReservedNow || attribute == kUsedNow) {
    *static_cast<uint64_t*>(value) = pool->used_bytes;
  } else if (attribute == kReservedMost || attribute == kUsedMost) {
    *static_cast<uint64_t*>(value) = pool->most_used_bytes;
  } else {
    *static_cast<uint64_t*>(value) = pool->attributes[attribute];
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(pools().mutex);
  return pools().has(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  REQUIRE(device >= 0 && device < static_cast<int>(settings().gpus), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(pool != nullptr, CUDA_ERROR_INVALID_VALUE);
  *pool = &default_pool();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  REQUIRE(device >= 0 && device < static_cast<int>(settings().gpus), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(pool != nullptr, CUDA_ERROR_INVALID_VALUE);
  const std::lock_guard<std::mutex> lock(pools().mutex);
  *pool = pools().current;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  REQUIRE(device >= 0 && device < static_cast<int>(settings().gpus), CUDA_ERROR_INVALID_DEVICE);
  const std::lock_guard<std::mutex> lock(pools().mutex);
  REQUIRE(pools().has(pool), CUDA_ERROR_INVALID_VALUE);
  pools().current = pool;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostAlloc(void** to, size_t bytes, unsigned flags) {
  CHECK(ready(Call::kHostAllocate));
  CHECK(allowed_while_capturing());
  constexpr unsigned kKnownFlags = 7;  // portable, mapped, write-combined
  REQUIRE(to != nullptr && bytes > 0 && (flags & ~kKnownFlags) == 0, CUDA_ERROR_INVALID_VALUE);
  *to = memory().allocate(MemoryKind::kHost, bytes, flags);
  return *to != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORT CUresult cuMemAllocHost_v2(void** to, size_t bytes) { return cuMemHostAlloc(to, bytes, 0); }

EXPORT CUresult cuMemFreeHost(void* at) {
  CHECK(ready(Call::kHostFree));
  synchronise_all();
  return memory().free(at, MemoryKind::kHost) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) {
  CHECK(ready());
  REQUIRE(at != nullptr && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  return memory().register_range(at, bytes, MemoryKind::kRegistered, flags) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

EXPORT CUresult cuMemHostUnregister(void* at) {
  CHECK(ready());
  synchronise_all();
  return memory().unregister(at) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* to, void* at, unsigned flags) {
  CHECK(ready());
  Allocation allocation;
  REQUIRE(to != nullptr && flags == 0 && memory().find(at, 0, nullptr, &allocation), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(allocation.kind == MemoryKind::kHost || allocation.kind == MemoryKind::kRegistered, CUDA_ERROR_INVALID_VALUE);
  *to = address(at);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetFlags(unsigned* flags, void* at) {
  CHECK(ready());
  Allocation allocation;
  REQUIRE(flags != nullptr && memory().find(at, 0, nullptr, &allocation), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(allocation.kind == MemoryKind::kHost, CUDA_ERROR_INVALID_VALUE);
  *flags = allocation.flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, size_t* bytes, CUdeviceptr at) {
  CHECK(ready());
  void* first = nullptr;
  Allocation allocation;
  REQUIRE(memory().find(pointer(at), 0, &first, &allocation), CUDA_ERROR_INVALID_VALUE);
  if (start != nullptr) *start = address(first);
  if (bytes != nullptr) *bytes = allocation.bytes;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* context);
EXPORT CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr at) {
  CHECK(ready());
  void* start = nullptr;
  Allocation allocation;
  REQUIRE(value != nullptr && memory().find(pointer(at), 0, &start, &allocation), CUDA_ERROR_INVALID_VALUE);
  const bool on_device = allocation.kind == MemoryKind::kDevice || allocation.kind == MemoryKind::kModule;
  switch (attribute) {
    case 1: return cuCtxGetCurrent(static_cast<CUcontext*>(value));                                                     // CONTEXT
    case 2: *static_cast<unsigned*>(value) = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST; return CUDA_SUCCESS;  // MEMORY_TYPE
    case 3: *static_cast<CUdeviceptr*>(value) = at; return CUDA_SUCCESS;                                                // DEVICE_POINTER
    case 4:                                                                                                             // HOST_POINTER
      REQUIRE(!on_device, CUDA_ERROR_INVALID_VALUE);
      *static_cast<CUdeviceptr*>(value) = at;
      return CUDA_SUCCESS;
    case 8: *static_cast<bool*>(value) = false; return CUDA_SUCCESS;                       // IS_MANAGED
    case 9: *static_cast<int*>(value) = 0; return CUDA_SUCCESS;                            // DEVICE_ORDINAL
    case 11: *static_cast<CUdeviceptr*>(value) = address(start); return CUDA_SUCCESS;      // RANGE_START_ADDR
    case 12: *static_cast<size_t*>(value) = allocation.bytes; return CUDA_SUCCESS;         // RANGE_SIZE
    case 13: *static_cast<bool*>(value) = true; return CUDA_SUCCESS;                       // MAPPED
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

EXPORT CUresult cuPointerGetAttributes(unsigned count, const int* attributes, void** values, CUdeviceptr at) {
  REQUIRE(attributes != nullptr && values != nullptr, CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < count; ++i) CHECK(cuPointerGetAttribute(values[i], attributes[i], at));
  return CUDA_SUCCESS;
}

// Of this emulator only: what has been allocated, on the device and the host, and not freed.
EXPORT size_t ocellusEmulatorAllocations() { return memory().allocations(); }
