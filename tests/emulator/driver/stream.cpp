#include "driver/stream.hpp"

#include <cstdio>
#include <cstdlib>

#include "driver/context.hpp"
#include "machine/settings.hpp"

namespace emulator {
namespace {

// Runs the first item of a stream's queue, whatever that needs first. The mutex is held.
void step(Stream& stream) {
  if (stream.queue.front().wait_for != nullptr) run_until(*stream.queue.front().wait_for);
  const Item item = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (item.run) item.run();
}

// Whether the stream belongs to the device of the current context.
bool is_here(const Stream& stream) { return stream.gpu < 0 || stream.gpu == current_gpu(); }

void drain(Stream& stream) {
  while (!stream.queue.empty()) step(stream);
}

}  // namespace

Streams& streams() {
  static auto* const state = [] {
    auto* const made = new Streams;
    made->default_stream = std::make_shared<Stream>();
    made->default_stream->blocking = true;
    made->default_stream->priority = kLeastPriority;
    return made;
  }();
  return *state;
}

std::shared_ptr<Stream> Streams::find(CUstream handle) {
  // Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD, which is the same one here.
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return default_stream;
  const auto at = all.find(handle);
  return at == all.end() ? nullptr : at->second;
}

std::shared_ptr<Event> Streams::find(CUevent handle) {
  const auto at = events.find(handle);
  return at == events.end() ? nullptr : at->second;
}

void enqueue(const std::shared_ptr<Stream>& stream, Item item, std::unique_lock<std::recursive_mutex>& lock) {
  if (!settings().lazy_streams) {
    // Whatever an event stands for ran when it was recorded: there is nothing to wait for.
    lock.unlock();
    const std::lock_guard<std::recursive_mutex> order(stream->order);
    if (item.run) item.run();
    return;
  }
  stream->queue.push_back(std::move(item));
  if (stream != streams().default_stream) return;
  // The default stream runs after all that blocking streams have, and they after it.
  for (const auto& [handle, other] : streams().all) {
    if (other->blocking) drain(*other);
  }
  drain(*stream);
}

CUresult enqueue(CUstream handle, Operation operation) {
  CHECK(ready());
  std::unique_lock<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr && is_here(*stream), CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != nullptr) {
    REQUIRE(!stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream->capture->graph->nodes.push_back(std::move(operation));
    ++stream->captured_work;
    return CUDA_SUCCESS;
  }
  if (stream == streams().default_stream) {
    for (const auto& capture : streams().captures) {
      if (!capture->origin->blocking) continue;
      capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  enqueue(stream, Item{std::move(operation), nullptr}, lock);
  return CUDA_SUCCESS;
}

void run_until(const Record& record) {
  if (!settings().lazy_streams) {
    while (!record.done) {
      const std::lock_guard<std::recursive_mutex> order(record.stream->order);
      std::this_thread::yield();
    }
    return;
  }
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  while (!record.done) {
    if (record.stream->queue.empty()) {
      std::fprintf(stderr, "emulator: an event waits for work that its stream does not have\n");
      std::abort();
    }
    step(*record.stream);
  }
}

void progress(const Record& record) {
  Stream& stream = *record.stream;
  if (stream.queue.empty()) return;
  const auto& first = stream.queue.front().wait_for;
  if (first != nullptr && !first->done) {
    progress(*first);
  } else {
    step(stream);
  }
}

CUresult synchronise(CUstream handle) {
  CHECK(ready(Call::kStream));
  std::unique_lock<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (settings().lazy_streams) {
    if (stream == streams().default_stream) {
      for (const auto& [other_handle, other] : streams().all) {
        if (other->blocking) drain(*other);
      }
    }
    drain(*stream);
    return CUDA_SUCCESS;
  }
  lock.unlock();
  const std::lock_guard<std::recursive_mutex> order(stream->order);
  return CUDA_SUCCESS;
}

void synchronise_all() {
  std::unique_lock<std::recursive_mutex> lock(streams().mutex);
  auto all = streams().all;
  all[nullptr] = streams().default_stream;
  if (!settings().lazy_streams) lock.unlock();
  for (const auto& [handle, stream] : all) {
    if (settings().lazy_streams) {
      drain(*stream);
    } else {
      const std::lock_guard<std::recursive_mutex> order(stream->order);
    }
  }
}

bool is_capturing(CUstream handle) {
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  return stream != nullptr && stream->capture != nullptr;
}

}  // namespace emulator

using namespace emulator;

EXPORT CUresult cuCtxSynchronize() {
  CHECK(ready());
  CHECK(allowed_while_capturing());
  synchronise_all();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  CHECK(ready());
  REQUIRE(handle != nullptr && flags <= 1, CUDA_ERROR_INVALID_VALUE);
  const auto stream = std::make_shared<Stream>();
  stream->blocking = flags == 0;
  stream->flags = flags;
  stream->gpu = current_gpu();
  stream->priority = std::min(std::max(priority, kGreatestPriority), kLeastPriority);
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  streams().all[stream.get()] = stream;
  *handle = stream.get();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamCreate(CUstream* handle, unsigned flags) { return cuStreamCreateWithPriority(handle, flags, kLeastPriority); }

EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
  CHECK(ready());
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto at = streams().all.find(handle);
  REQUIRE(at != streams().all.end(), CUDA_ERROR_INVALID_HANDLE);
  const auto stream = at->second;
  REQUIRE(stream->capture == nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  // What is under way still ends.
  drain(*stream);
  streams().all.erase(handle);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream handle) { return synchronise(handle); }

EXPORT CUresult cuStreamQuery(CUstream handle) {
  CHECK(ready());
  std::unique_lock<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (settings().lazy_streams) {
    if (stream->queue.empty()) return CUDA_SUCCESS;
    step(*stream);
    return CUDA_ERROR_NOT_READY;
  }
  lock.unlock();
  if (!stream->order.try_lock()) return CUDA_ERROR_NOT_READY;
  stream->order.unlock();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  CHECK(ready());
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(priority != nullptr, CUDA_ERROR_INVALID_VALUE);
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  CHECK(ready());
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext* context);
EXPORT CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  CHECK(ready());
  return cuCtxGetCurrent(context);
}

EXPORT CUresult cuLaunchHostFunc(CUstream handle, void (*function)(void*), void* data) {
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_VALUE);
  return enqueue(handle, [function, data] { function(data); });
}

EXPORT CUresult cuStreamAddCallback(CUstream handle, void (*function)(CUstream, CUresult, void*), void* data, unsigned flags) {
  REQUIRE(function != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  // Unlike a host function, a callback cannot become part of a graph.
  REQUIRE(!is_capturing(handle), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return enqueue(handle, [=] { function(handle, CUDA_SUCCESS, data); });
}
