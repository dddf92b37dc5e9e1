#include <map>

#include "driver/api.hpp"

namespace {

struct Description {
  const char *name, *text;
};

#define DESCRIBE(error, text) {error, {#error, text}}

const std::map<CUresult, Description>& descriptions() {
  static const auto* const all = new std::map<CUresult, Description>{
      DESCRIBE(CUDA_SUCCESS, "no error"),
      DESCRIBE(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
      DESCRIBE(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
      DESCRIBE(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
      DESCRIBE(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
      DESCRIBE(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
      DESCRIBE(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
      DESCRIBE(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
      DESCRIBE(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
      DESCRIBE(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
      DESCRIBE(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
      DESCRIBE(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
      DESCRIBE(CUDA_ERROR_NOT_READY, "device not ready"),
      DESCRIBE(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
      DESCRIBE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
      DESCRIBE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
      DESCRIBE(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
      DESCRIBE(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"),
      DESCRIBE(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
      DESCRIBE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"),
  };
  return *all;
}

}  // namespace

EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  const auto at = descriptions().find(error);
  if (name == nullptr || at == descriptions().end()) return CUDA_ERROR_INVALID_VALUE;
  *name = at->second.name;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  const auto at = descriptions().find(error);
  if (text == nullptr || at == descriptions().end()) return CUDA_ERROR_INVALID_VALUE;
  *text = at->second.text;
  return CUDA_SUCCESS;
}
