// Copies and fills.
#include <cstring>
#include <memory>
#include <vector>

#include "driver/context.hpp"
#include "driver/memory.hpp"
#include "driver/stream.hpp"
#include "machine/settings.hpp"

using namespace emulator;

namespace {

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

// Whether the current device can reach so many bytes.
bool known(CUdeviceptr at, size_t bytes) {
  Allocation allocation;
  return memory().find(pointer(at), bytes, nullptr, &allocation) && (allocation.kind != MemoryKind::kDevice || allocation.gpu == current_gpu());
}
bool pinned(const void* at, size_t bytes) { return memory().find(at, bytes, nullptr, nullptr); }

CUresult copy_async(void* to, const void* from, size_t bytes, CUstream stream) {
  return enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}

// The synchronous forms work on the default stream.
CUresult synchronous(CUresult enqueued) {
  CHECK(enqueued);
  return synchronise(nullptr);
}

CUresult set(CUdeviceptr to, size_t pitch, unsigned value, size_t element_bytes, size_t width, size_t height, CUstream stream) {
  CHECK(ready(Call::kFill));
  REQUIRE(to % element_bytes == 0, CUDA_ERROR_INVALID_VALUE);
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  REQUIRE(height == 1 || pitch >= width * element_bytes, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(known(to, pitch * (height - 1) + width * element_bytes), CUDA_ERROR_INVALID_VALUE);
  return enqueue(stream, [=] {
    for (size_t y = 0; y < height; ++y) {
      auto* const row = static_cast<unsigned char*>(pointer(to)) + y * pitch;
      for (size_t x = 0; x < width; ++x) std::memcpy(row + x * element_bytes, &value, element_bytes);
    }
  });
}

// One side of a copy of rectangles.
CUresult side(CUmemorytype type, const void* host, CUdeviceptr device, size_t x_bytes, size_t y, size_t pitch, const CUDA_MEMCPY2D& copy,
              unsigned char** start) {
  REQUIRE(type != CU_MEMORYTYPE_ARRAY, CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE(copy.Height == 1 || pitch >= x_bytes + copy.WidthInBytes, CUDA_ERROR_INVALID_VALUE);
  *start = static_cast<unsigned char*>(type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host) : pointer(device)) + y * pitch + x_bytes;
  const size_t bytes = pitch * (copy.Height - 1) + copy.WidthInBytes;
  REQUIRE(type == CU_MEMORYTYPE_HOST || memory().find(*start, bytes, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

}  // namespace

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  CHECK(ready(Call::kUpload));
  if (bytes == 0) return CUDA_SUCCESS;
  REQUIRE(from != nullptr && known(to, bytes), CUDA_ERROR_INVALID_VALUE);
  if (settings().lazy_streams && !pinned(from, bytes) && !is_capturing(stream)) {
    // Pageable memory has been read when the call returns.
    const auto* const first = static_cast<const unsigned char*>(from);
    const auto staged = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
    return enqueue(stream, [=] { std::memcpy(pointer(to), staged->data(), bytes); });
  }
  return copy_async(pointer(to), from, bytes, stream);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CHECK(ready(Call::kDownload));
  if (bytes == 0) return CUDA_SUCCESS;
  REQUIRE(to != nullptr && known(from, bytes), CUDA_ERROR_INVALID_VALUE);
  CHECK(copy_async(to, pointer(from), bytes, stream));
  // Pageable memory has been written when the call returns.
  if (settings().lazy_streams && !pinned(to, bytes) && !is_capturing(stream)) return synchronise(stream);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CHECK(ready(Call::kCopy));
  if (bytes == 0) return CUDA_SUCCESS;
  REQUIRE(known(to, bytes) && known(from, bytes), CUDA_ERROR_INVALID_VALUE);
  return enqueue(stream, [=] { std::memmove(pointer(to), pointer(from), bytes); });
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  CHECK(allowed_while_capturing());
  return synchronous(cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr));
}
EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  CHECK(allowed_while_capturing());
  return synchronous(cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr));
}
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CHECK(allowed_while_capturing());
  return synchronous(cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr));
}

// Any of host and device on either side, told apart by the address.
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CHECK(ready());
  if (!known(from, bytes)) return cuMemcpyHtoDAsync_v2(to, pointer(from), bytes, stream);
  if (!known(to, bytes)) return cuMemcpyDtoHAsync_v2(pointer(to), from, bytes, stream);
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CHECK(allowed_while_capturing());
  return synchronous(cuMemcpyAsync(to, from, bytes, nullptr));
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  CHECK(ready());
  REQUIRE(copy != nullptr, CUDA_ERROR_INVALID_VALUE);
  if (copy->WidthInBytes == 0 || copy->Height == 0) return CUDA_SUCCESS;
  unsigned char *from = nullptr, *to = nullptr;
  CHECK(side(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcXInBytes, copy->srcY, copy->srcPitch, *copy, &from));
  CHECK(side(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstXInBytes, copy->dstY, copy->dstPitch, *copy, &to));
  return enqueue(stream, [from, to, copy = *copy] {
    for (size_t y = 0; y < copy.Height; ++y) std::memmove(to + y * copy.dstPitch, from + y * copy.srcPitch, copy.WidthInBytes);
  });
}
EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  CHECK(allowed_while_capturing());
  return synchronous(cuMemcpy2DAsync_v2(copy, nullptr));
}
EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return cuMemcpy2D_v2(copy); }

#define EMULATOR_SET(name, type, value)                                                                                       \
  EXPORT CUresult cuMemset##name##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {                          \
    return set(to, 0, value, sizeof(type), count, 1, stream);                                                                 \
  }                                                                                                                           \
  EXPORT CUresult cuMemset##name##_v2(CUdeviceptr to, type value, size_t count) {                                             \
    CHECK(allowed_while_capturing());                                                                                         \
    return synchronous(cuMemset##name##Async(to, value, count, nullptr));                                                     \
  }                                                                                                                           \
  EXPORT CUresult cuMemsetD2##name##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) { \
    return set(to, pitch, value, sizeof(type), width, height, stream);                                                        \
  }                                                                                                                           \
  EXPORT CUresult cuMemsetD2##name##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {              \
    CHECK(allowed_while_capturing());                                                                                         \
    return synchronous(cuMemsetD2##name##Async(to, pitch, value, width, height, nullptr));                                    \
  }
EMULATOR_SET(D8, unsigned char, value)
EMULATOR_SET(D16, unsigned short, value)
EMULATOR_SET(D32, unsigned int, value)
#undef EMULATOR_SET
