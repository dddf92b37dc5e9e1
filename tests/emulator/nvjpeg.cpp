// Stand-in for libnvjpeg.so.13 on the CPU, with the functions that `sys` binds. Decodes with libjpeg into the planes as
// stored, which is what nvJPEG's output "YUV" is. Device memory of the emulator is host memory.
//
// It is as unhelpful as the real one may be: the engines clobber their planes at once, whatever the stream still has to
// do, and the picture is there only when the stream has come so far; a state that is used while its work runs, or after a
// failure without being set up again, fails.
//
// The environment variable EMULATED_NVJPEG makes it fail as GPUs and drivers do: `no-engines`, `skip-last` (the last
// picture of an engines' batch is reported as decoded and is not), `skip-chroma` (of that one only luma is written),
// `fail-batches`, `little-memory` (for two pictures at once), `fail-from:N` (the N-th call that decodes fails, and every
// later one), `no-states` (no decoder can be made), `states-from:N` (for the first N decoders there is no memory),
// `short-thread:N` (of the threads that make decoders the N-th never finds memory for one), `failing-thread:N` (it fails at all of
// them), `handles-from:N` (for the first N handles there is no memory).

#include "notes.hpp"
#include "nvjpeg/decode.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace {

enum Backend { DEFAULT = 0, HYBRID = 1, GPU_HYBRID = 2, HARDWARE = 3 };
enum Output { UNCHANGED = 0, YUV = 1, Y = 2 };

using Stream = void*;

struct Handle { int backend; };
struct Decoder { int backend; };
struct Params { int output = UNCHANGED; };
struct Parsed { Header header; const uint8_t* data = nullptr; size_t length = 0; };
struct DeviceBuffer { Picture picture; };
struct PinnedBuffer { Picture picture; std::atomic<int> readers{0}; };

struct State {
  int batch = 0;
  int output = YUV;
  bool failed = false;
  PinnedBuffer* pinned = nullptr;
  DeviceBuffer* device = nullptr;
  std::atomic<int> running{0};
};

struct Image { uint8_t* channel[4]; size_t pitch[4]; };

bool told(const char* what) {
  const char* list = std::getenv("EMULATED_NVJPEG");
  return list && std::strcmp(list, what) == 0;
}

Status misuse(const char* what) {
  std::fprintf(stderr, "emulated nvJPEG: %s\n", what);
  return INTERNAL_ERROR;
}

// N where EMULATED_NVJPEG is NAME:N, else 0.
unsigned long long number(const char* name) {
  const char* const list = std::getenv("EMULATED_NVJPEG");
  const size_t length = std::strlen(name);
  const bool named = list && std::strncmp(list, name, length) == 0 && list[length] == ':';
  return named ? std::strtoull(list + length + 1, nullptr, 10) : 0;
}

// Whether this call, one of those that `fail-from` counts, fails.
bool fails() {
  static const unsigned long long first = number("fail-from");
  static std::atomic<unsigned long long> calls{0};
  return first != 0 && ++calls >= first;
}

// Runs when the stream comes to it, or at once where no emulated driver is loaded. Fails where that has lost its context.
Status enqueue(Stream stream, std::function<void()> work) {
  using Launch = int (*)(Stream, void (*)(void*), void*);
  static const auto launch = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return driver ? reinterpret_cast<Launch>(dlsym(driver, "cuLaunchHostFunc")) : nullptr;
  }();
  auto* boxed = new std::function<void()>(std::move(work));
  const auto run = [](void* pointer) {
    std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()>*>(pointer));
    (*function)();
  };
  if (!launch) {
    run(boxed);
  } else if (launch(stream, run, boxed) != 0) {
    delete boxed;
    return EXECUTION_FAILED;
  }
  return SUCCESS;
}

// The same for work that uses something until it is done.
Status enqueue(Stream stream, std::atomic<int>& users, std::function<void()> work) {
  ++users;
  const Status status = enqueue(stream, [&users, work = std::move(work)] {
    work();
    --users;
  });
  if (status != SUCCESS) --users;
  return status;
}

int written(const Picture& picture, int output) { return output == Y ? 1 : picture.header.components; }

void write(const Picture& picture, int output, const Image& image) {
  for (int c = 0; c < written(picture, output); ++c) {
    const Plane size = picture.header.planes[c];
    for (unsigned y = 0; y < size.height; ++y) {
      std::memcpy(image.channel[c] + y * image.pitch[c], &picture.samples[c][size_t(y) * size.width], size.width);
    }
  }
}

void clobber(const Picture& picture, int output, const Image& image) {
  for (int c = 0; c < written(picture, output); ++c) {
    const Plane size = picture.header.planes[c];
    for (unsigned y = 0; y < size.height; ++y) std::memset(image.channel[c] + y * image.pitch[c], 0xA5, size.width);
  }
}

bool on_engines(const Header& header) {
  return !header.progressive && header.one_scan && header.subsampling != CSS_411 && header.subsampling != CSS_410 &&
           header.subsampling != CSS_410V && header.subsampling != CSS_UNKNOWN;
}

bool by_kernels(const Header& header) { return header.subsampling != CSS_UNKNOWN; }

Status decode_batch(Handle* handle, State* state, const uint8_t* const* data, const size_t* lengths, Image* images,
                    Stream stream) {
  const bool engines = handle->backend == HARDWARE;
  if (fails()) return EXECUTION_FAILED;
  if (told("little-memory") && state->batch > 2) return ALLOCATOR_FAILURE;
  auto pictures = std::make_shared<std::vector<Picture>>(state->batch);
  for (int i = 0; i < state->batch; ++i) {
    Picture& picture = (*pictures)[i];
    if (Status status = read_header(data[i], lengths[i], picture.header)) return status;
    const bool taken = engines ? on_engines(picture.header) : by_kernels(picture.header);
    if (!taken) return JPEG_NOT_SUPPORTED;
    if (Status status = decode_picture(data[i], lengths[i], picture)) return status;
  }
  if (engines && told("fail-batches")) return EXECUTION_FAILED;
  if (engines && told("skip-last")) pictures->pop_back();
  std::vector<Image> copy(images, images + pictures->size());
  if (engines) {
    for (size_t i = 0; i < copy.size(); ++i) clobber((*pictures)[i], state->output, copy[i]);
  }
  const bool skip_chroma = engines && told("skip-chroma");
  // The engines copy the files when their turn comes: who lets go of them before has pictures of something else.
  std::vector<std::pair<const uint8_t*, size_t>> files;
  const char* order = std::getenv("OCELLUS_EMULATOR_ORDER");
  if (engines && order && std::strcmp(order, "lazy") == 0) {
    for (size_t i = 0; i < copy.size(); ++i) files.emplace_back(data[i], lengths[i]);
  }
  return enqueue(stream, state->running, [pictures, copy, files, output = state->output, skip_chroma] {
    for (size_t i = 0; i < copy.size(); ++i) {
      if (!files.empty() && decode_picture(files[i].first, files[i].second, (*pictures)[i]) != SUCCESS) continue;
      write((*pictures)[i], skip_chroma && i + 1 == copy.size() ? Y : output, copy[i]);
    }
  });
}

template <typename T, typename... Arguments>
Status make(T** out, Arguments... arguments) {
  if (!out) return INVALID_PARAMETER;
  *out = new T{arguments...};
  return SUCCESS;
}

template <typename T>
Status destroy(T* object) {
  if (!object) return INVALID_PARAMETER;
  delete object;
  return SUCCESS;
}

Status make_state(State** state, const char* which) {
  static const unsigned long long refused = number("states-from");
  static std::atomic<unsigned long long> made{0};
  note("nvjpeg-state", which);
  static std::atomic<unsigned long long> threads{0};
  thread_local const unsigned long long thread = ++threads;
  if (told("no-states") || thread == number("failing-thread")) return INTERNAL_ERROR;
  if (made++ < refused || thread == number("short-thread")) {
    note("nvjpeg-refused", which);
    return ALLOCATOR_FAILURE;
  }
  return make(state);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// By this symbol tests know whom they talk to.
extern const int emulated_nvjpeg = 1;

Status nvjpegGetProperty(int type, int* value) {
  const int version[] = {13, 0, 4};
  if (type < 0 || type > 2 || !value) return INVALID_PARAMETER;
  *value = version[type];
  return SUCCESS;
}

Status nvjpegCreateEx(int backend, void*, void*, unsigned, Handle** handle) {
  if (backend < DEFAULT || backend > HARDWARE) return INVALID_PARAMETER;
  if (backend == HARDWARE && told("no-engines")) return ARCH_MISMATCH;
  static const unsigned long long refused = number("handles-from");
  static std::atomic<unsigned long long> asked{0};
  if (asked++ < refused) return ALLOCATOR_FAILURE;
  constexpr const char* kNames[] = {"default", "hybrid", "gpu-hybrid", "hardware"};
  note("nvjpeg-handle", kNames[backend]);
  return make(handle, backend);
}
Status nvjpegDestroy(Handle* handle) { return destroy(handle); }
Status nvjpegSetDeviceMemoryPadding(size_t, Handle* handle) { return handle ? SUCCESS : INVALID_PARAMETER; }
Status nvjpegSetPinnedMemoryPadding(size_t, Handle* handle) { return handle ? SUCCESS : INVALID_PARAMETER; }

// Those of an H200 (GH100).
Status nvjpegGetHardwareDecoderInfo(Handle* handle, unsigned* engines, unsigned* cores_per_engine) {
  if (!handle) return INVALID_PARAMETER;
  *engines = told("no-engines") ? 0 : 7;
  *cores_per_engine = told("no-engines") ? 0 : 1;
  return SUCCESS;
}

Status nvjpegJpegStreamCreate(Handle*, Parsed** stream) { return make(stream); }
Status nvjpegJpegStreamDestroy(Parsed* stream) { return destroy(stream); }
Status nvjpegJpegStreamParse(Handle*, const uint8_t* data, size_t length, int, int, Parsed* stream) {
  stream->data = data;
  stream->length = length;
  return read_header(data, length, stream->header);
}
// Nothing can be decoded from it.
Status nvjpegJpegStreamParseHeader(Handle*, const uint8_t* data, size_t length, Parsed* stream) {
  stream->data = nullptr;
  stream->length = 0;
  return read_header(data, length, stream->header);
}
Status nvjpegJpegStreamGetComponentsNum(Parsed* stream, unsigned* count) {
  *count = stream->header.components;
  return SUCCESS;
}
Status nvjpegJpegStreamGetComponentDimensions(Parsed* stream, unsigned component, unsigned* width, unsigned* height) {
  if (component >= unsigned(stream->header.components)) return INVALID_PARAMETER;
  *width = stream->header.planes[component].width;
  *height = stream->header.planes[component].height;
  return SUCCESS;
}

Status nvjpegDecodeParamsCreate(Handle*, Params** params) { return make(params); }
Status nvjpegDecodeParamsDestroy(Params* params) { return destroy(params); }
Status nvjpegDecodeParamsSetOutputFormat(Params* params, int output) {
  params->output = output;
  return SUCCESS;
}

Status nvjpegJpegStateCreate(Handle*, State** state) { return make_state(state, "batch"); }
Status nvjpegJpegStateDestroy(State* state) {
  if (state && state->running) return misuse("a state is destroyed while its work runs");
  return destroy(state);
}
Status nvjpegDecodeBatchedInitialize(Handle*, State* state, int batch, int, int output) {
  if (batch < 1 || (output != YUV && output != Y && output != UNCHANGED)) return INVALID_PARAMETER;
  if (state->running) return misuse("a state is set up while its work runs");
  state->batch = batch;
  state->output = output;
  state->failed = false;
  return SUCCESS;
}
Status nvjpegDecodeBatchedPreAllocate(Handle*, State* state, int batch, int width, int height, int, int) {
  return state->batch > 0 && batch > 0 && width > 0 && height > 0 ? SUCCESS : INVALID_PARAMETER;
}
Status nvjpegDecodeBatchedSupportedEx(Handle* handle, Parsed* stream, Params*, int* unsupported) {
  if (handle->backend != HARDWARE) return IMPLEMENTATION_NOT_SUPPORTED;
  *unsupported = !on_engines(stream->header);
  return SUCCESS;
}
Status nvjpegDecodeBatched(Handle* handle, State* state, const uint8_t* const* data, const size_t* lengths,
                           Image* images, Stream stream) {
  if (state->running) return misuse("a state is used while its work runs");
  if (state->failed || state->batch == 0) return misuse("a state is used without being set up (again)");
  const Status status = decode_batch(handle, state, data, lengths, images, stream);
  state->failed = status != SUCCESS;
  return status;
}

Status nvjpegDecoderCreate(Handle*, int backend, Decoder** decoder) {
  if (backend != HYBRID && backend != GPU_HYBRID) return INVALID_PARAMETER;
  return make(decoder, backend);
}
Status nvjpegDecoderDestroy(Decoder* decoder) { return destroy(decoder); }
Status nvjpegDecoderStateCreate(Handle*, Decoder*, State** state) { return make_state(state, "single"); }
Status nvjpegDecoderJpegSupported(Decoder* decoder, Parsed* stream, Params*, int* unsupported) {
  const bool codes = decoder->backend == HYBRID || (!stream->header.progressive && stream->header.one_scan);
  *unsupported = !(codes && by_kernels(stream->header));
  return SUCCESS;
}

Status nvjpegBufferPinnedCreate(Handle*, void*, PinnedBuffer** buffer) {
  *buffer = new PinnedBuffer;
  return SUCCESS;
}
Status nvjpegBufferPinnedDestroy(PinnedBuffer* buffer) { return destroy(buffer); }
Status nvjpegBufferDeviceCreate(Handle*, void*, DeviceBuffer** buffer) { return make(buffer); }
Status nvjpegBufferDeviceDestroy(DeviceBuffer* buffer) { return destroy(buffer); }
Status nvjpegStateAttachPinnedBuffer(State* state, PinnedBuffer* buffer) {
  state->pinned = buffer;
  return SUCCESS;
}
Status nvjpegStateAttachDeviceBuffer(State* state, DeviceBuffer* buffer) {
  state->device = buffer;
  return SUCCESS;
}

Status nvjpegDecodeJpegHost(Handle*, Decoder*, State* state, Params*, Parsed* stream) {
  PinnedBuffer* pinned = state->pinned;
  if (!pinned || !state->device) return misuse("a state without buffers");
  if (fails()) return EXECUTION_FAILED;
  if (pinned->readers) return misuse("a pinned buffer is filled while it is read");
  pinned->picture.header = stream->header;
  return decode_picture(stream->data, stream->length, pinned->picture);
}
Status nvjpegDecodeJpegTransferToDevice(Handle*, Decoder*, State* state, Parsed*, Stream stream) {
  if (state->running) return misuse("a state is used while its work runs");
  if (fails()) return EXECUTION_FAILED;
  PinnedBuffer* const pinned = state->pinned;
  ++pinned->readers;
  const Status status = enqueue(stream, state->running, [pinned, device = state->device] {
    device->picture = pinned->picture;
    --pinned->readers;
  });
  if (status != SUCCESS) --pinned->readers;
  return status;
}
Status nvjpegDecodeJpegDevice(Handle*, Decoder*, State* state, Image* image, Stream stream) {
  if (fails()) return EXECUTION_FAILED;
  return enqueue(stream, state->running, [device = state->device, copy = *image] { write(device->picture, YUV, copy); });
}

}  // extern "C"
#pragma GCC visibility pop
