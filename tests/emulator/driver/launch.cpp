// Functions: their attributes, their limits, their launches.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "driver/memory.hpp"
#include "driver/module.hpp"
#include "driver/stream.hpp"
#include "machine/settings.hpp"

using namespace emulator;

namespace {

// By the numbers of CUfunction_attribute.
enum FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedSizeBytes = 1,
  kConstSizeBytes = 2,
  kLocalSizeBytes = 3,
  kNumRegs = 4,
  kPtxVersion = 5,
  kBinaryVersion = 6,
  kCacheModeCa = 7,
  kMaxDynamicSharedSizeBytes = 8,
  kPreferredSharedMemoryCarveout = 9,
  kClusterSizeMustBeSet = 10,
  kNonPortableClusterSizeAllowed = 14,
};

// What most kernels use; real ones need a real compiler.
constexpr int kRegisters = 64;

unsigned max_threads(const Function& function) {
  const unsigned bound = function.kernel->max_threads;
  return bound == 0 ? 1024 : std::min(bound, 1024u);
}

CUresult check_limits(const Function& function, const Extent& grid, const Extent& block, unsigned shared_bytes) {
  REQUIRE(grid.x > 0 && grid.x <= 0x7fffffffu && grid.y > 0 && grid.y <= 65535 && grid.z > 0 && grid.z <= 65535, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(block.x > 0 && block.x <= 1024 && block.y > 0 && block.y <= 1024 && block.z > 0 && block.z <= 64, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(block.count() <= max_threads(function), CUDA_ERROR_INVALID_VALUE);
  REQUIRE(shared_bytes <= static_cast<unsigned>(function.max_dynamic_shared_bytes), CUDA_ERROR_INVALID_VALUE);
  const unsigned limit = function.max_dynamic_shared_bytes > static_cast<int>(kDefaultSharedBytes) ? shared_bytes_optin() : kDefaultSharedBytes;
  REQUIRE(shared_bytes + function.module->static_shared_bytes <= limit, CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

// The values that the caller's pointers point at now: they may be gone when the launch runs.
class Parameters {
 public:
  Parameters(const Kernel& kernel, void* const* params) {
    constexpr size_t kAlignment = 16;
    std::vector<size_t> offsets;
    size_t bytes = 0;
    for (unsigned i = 0; i < kernel.param_count; ++i) {
      offsets.push_back(bytes);
      bytes += (kernel.param_bytes[i] + kAlignment - 1) / kAlignment * kAlignment;
    }
    values_.resize(bytes / kAlignment);
    for (unsigned i = 0; i < kernel.param_count; ++i) {
      pointers_.push_back(reinterpret_cast<unsigned char*>(values_.data()) + offsets[i]);
      std::memcpy(pointers_.back(), params[i], kernel.param_bytes[i]);
    }
  }
  void* const* pointers() const { return pointers_.data(); }

 private:
  struct alignas(16) Slot {
    unsigned char bytes[16];
  };
  std::vector<Slot> values_;
  std::vector<void*> pointers_;
};

// Ends the process where a parameter is an address of another device.
void check_owners(const Kernel& kernel, void* const* params) {
  for (unsigned i = 0; i < kernel.param_count; ++i) {
    void* at = nullptr;
    if (kernel.param_bytes[i] != sizeof at) continue;
    std::memcpy(&at, params[i], sizeof at);
    Allocation allocation;
    if (!memory().find(at, 0, nullptr, &allocation) || allocation.kind != MemoryKind::kDevice || allocation.gpu == current_gpu()) continue;
    std::fprintf(stderr, "emulator: parameter %u of %s is memory of GPU %d, launched on GPU %d\n", i, kernel.name, allocation.gpu, current_gpu());
    std::fflush(stderr);
    std::abort();
  }
}

CUresult launch(CUfunction handle, Extent grid, Extent block, unsigned shared_bytes, CUstream stream, void* const* params, void* const* extra) {
  CHECK(ready(Call::kLaunch));
  const auto function = find_function(handle);
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(extra == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE(function->kernel->param_count == 0 || params != nullptr, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(function->module->gpu == current_gpu(), CUDA_ERROR_INVALID_CONTEXT);
  check_owners(*function->kernel, params);
  CHECK(check_limits(*function, grid, block, shared_bytes));
  const auto parameters = std::make_shared<Parameters>(*function->kernel, params);
  return enqueue(stream, [=] {
    run_grid({function->module->image, function->kernel, grid, block, shared_bytes, parameters->pointers()});
    memory().check_guards(function->kernel->name);
  });
}

int blocks_per_multiprocessor(const Function& function, int threads, size_t dynamic_shared_bytes) {
  constexpr unsigned kMaxBlocks = 32, kReservedSharedBytes = 1024, kMaxWarps = kMaxThreadsPerMultiprocessor / 32;
  const unsigned warps = (static_cast<unsigned>(threads) + 31) / 32;
  const size_t shared = dynamic_shared_bytes + function.module->static_shared_bytes + kReservedSharedBytes;
  return static_cast<int>(std::min<size_t>({kMaxBlocks, kMaxWarps / warps, shared_bytes_per_multiprocessor() / shared}));
}

}  // namespace

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, CUstream stream, void** params, void** extra) {
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream, params, extra);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params, void** extra) {
  REQUIRE(config != nullptr && (config->numAttrs == 0 || config->attrs != nullptr), CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    int value = 0;
    std::memcpy(&value, attribute.value, sizeof value);
    // Blocks run one after another here, so those of a grid cannot wait for each other.
    REQUIRE(attribute.id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE || value == 0, CUDA_ERROR_NOT_SUPPORTED);
    const bool needs_hopper = attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION || attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    REQUIRE(!needs_hopper || settings().compute_capability >= 90, CUDA_ERROR_NOT_SUPPORTED);
  }
  return launch(function, {config->gridDimX, config->gridDimY, config->gridDimZ}, {config->blockDimX, config->blockDimY, config->blockDimZ},
                config->sharedMemBytes, config->hStream, params, extra);
}

EXPORT CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction handle) {
  CHECK(ready());
  const auto function = find_function(handle);
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(value != nullptr, CUDA_ERROR_INVALID_VALUE);
  const int version = static_cast<int>(function->module->image->compute_capability);
  switch (attribute) {
    case kMaxThreadsPerBlock: *value = static_cast<int>(max_threads(*function)); return CUDA_SUCCESS;
    case kSharedSizeBytes: *value = static_cast<int>(function->module->static_shared_bytes); return CUDA_SUCCESS;
    case kNumRegs: *value = kRegisters; return CUDA_SUCCESS;
    case kPtxVersion: case kBinaryVersion: *value = version; return CUDA_SUCCESS;
    case kMaxDynamicSharedSizeBytes: *value = function->max_dynamic_shared_bytes; return CUDA_SUCCESS;
    case kPreferredSharedMemoryCarveout: *value = -1; return CUDA_SUCCESS;
    case kConstSizeBytes: case kLocalSizeBytes: case kCacheModeCa: *value = 0; return CUDA_SUCCESS;
    default: *value = 0; return attribute <= kNonPortableClusterSizeAllowed + 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
}

EXPORT CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
  CHECK(ready());
  const auto function = find_function(handle);
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  switch (attribute) {
    case kMaxDynamicSharedSizeBytes:
      REQUIRE(value >= 0 && static_cast<unsigned>(value) + function->module->static_shared_bytes <= shared_bytes_optin(), CUDA_ERROR_INVALID_VALUE);
      function->max_dynamic_shared_bytes = value;
      return CUDA_SUCCESS;
    case kPreferredSharedMemoryCarveout: return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case kNonPortableClusterSizeAllowed: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

EXPORT CUresult cuFuncSetCacheConfig(CUfunction handle, int) {
  CHECK(ready());
  return find_function(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuFuncGetName(const char** name, CUfunction handle) {
  CHECK(ready());
  const auto function = find_function(handle);
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(name != nullptr, CUDA_ERROR_INVALID_VALUE);
  *name = function->kernel->name;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncLoad(CUfunction handle) {
  CHECK(ready());
  return find_function(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads, size_t shared_bytes, unsigned) {
  CHECK(ready());
  const auto function = find_function(handle);
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(blocks != nullptr && threads > 0, CUDA_ERROR_INVALID_VALUE);
  const bool fits = static_cast<unsigned>(threads) <= max_threads(*function) && shared_bytes <= shared_bytes_optin();
  *blocks = fits ? blocks_per_multiprocessor(*function, threads, shared_bytes) : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared_bytes, 0);
}

EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int) {
  CHECK(ready());
  const auto function = find_function(handle);
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(bytes != nullptr && blocks > 0, CUDA_ERROR_INVALID_VALUE);
  const size_t share = shared_bytes_per_multiprocessor() / static_cast<size_t>(blocks);
  const size_t taken = 1024 + function->module->static_shared_bytes;
  *bytes = share > taken ? std::min<size_t>(share - taken, shared_bytes_optin()) : 0;
  return CUDA_SUCCESS;
}
