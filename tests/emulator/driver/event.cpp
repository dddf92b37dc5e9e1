#include <chrono>

#include "driver/context.hpp"
#include "driver/stream.hpp"
#include "machine/settings.hpp"

using namespace emulator;

namespace {

constexpr unsigned kDisableTiming = 2;
constexpr unsigned kKnownEventFlags = 7;  // blocking synchronisation, no timing, between processes

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The event of a handle that may be asked whether it has come.
CUresult find_askable(CUevent handle, std::shared_ptr<Record>& record) {
  CHECK(ready(Call::kEvent));
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto event = streams().find(handle);
  REQUIRE(event != nullptr, CUDA_ERROR_INVALID_HANDLE);
  if (event->capture != nullptr) {
    event->capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  record = event->record;
  return CUDA_SUCCESS;
}

}  // namespace

EXPORT CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  CHECK(ready());
  REQUIRE(handle != nullptr && (flags & ~kKnownEventFlags) == 0, CUDA_ERROR_INVALID_VALUE);
  const auto event = std::make_shared<Event>();
  event->timed = (flags & kDisableTiming) == 0;
  event->gpu = current_gpu();
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  streams().events[event.get()] = event;
  *handle = event.get();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent handle) {
  CHECK(ready());
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  return streams().events.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  CHECK(ready(Call::kRecord));
  std::unique_lock<std::recursive_mutex> lock(streams().mutex);
  const auto event = streams().find(handle);
  const auto stream = streams().find(stream_handle);
  REQUIRE(event != nullptr && stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(stream->gpu < 0 || stream->gpu == event->gpu, CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture != nullptr) {
    REQUIRE(!stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    event->capture = stream->capture;
    event->captured_on = stream.get();
    event->captured_work = stream->captured_work;
    return CUDA_SUCCESS;
  }
  const auto record = std::make_shared<Record>();
  record->stream = stream;
  event->record = record;
  event->capture = nullptr;
  enqueue(stream, Item{[record] {
            record->time_ms = now_ms();
            record->done = true;
          }, nullptr}, lock);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  // An external record would become a node of a graph.
  REQUIRE(flags == 0 || !is_capturing(stream), CUDA_ERROR_NOT_SUPPORTED);
  return cuEventRecord(event, stream);
}

EXPORT CUresult cuEventQuery(CUevent handle) {
  std::shared_ptr<Record> record;
  CHECK(find_askable(handle, record));
  if (record == nullptr || record->done) return CUDA_SUCCESS;
  if (settings().lazy_streams) {
    const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
    progress(*record);
  }
  return CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent handle) {
  std::shared_ptr<Record> record;
  CHECK(find_askable(handle, record));
  if (record != nullptr) run_until(*record);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  std::shared_ptr<Record> start, end;
  CHECK(find_askable(start_handle, start));
  CHECK(find_askable(end_handle, end));
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  REQUIRE(milliseconds != nullptr, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(start != nullptr && end != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(streams().find(start_handle)->timed && streams().find(end_handle)->timed, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(start->done && end->done, CUDA_ERROR_NOT_READY);
  *milliseconds = static_cast<float>(end->time_ms - start->time_ms);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) { return cuEventElapsedTime_v2(milliseconds, start, end); }

EXPORT CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  CHECK(ready(Call::kEvent));
  std::unique_lock<std::recursive_mutex> lock(streams().mutex);
  const auto event = streams().find(handle);
  const auto stream = streams().find(stream_handle);
  REQUIRE(event != nullptr && stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(flags == 0, CUDA_ERROR_NOT_SUPPORTED);
  if (event->capture == nullptr) {
    if (event->record == nullptr) return CUDA_SUCCESS;
    // A graph cannot wait for what happened outside it.
    if (stream->capture != nullptr) {
      stream->capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    enqueue(stream, Item{nullptr, event->record}, lock);
    return CUDA_SUCCESS;
  }
  REQUIRE(!event->capture->ended, CUDA_ERROR_CAPTURED_EVENT);
  REQUIRE(stream != streams().default_stream, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  REQUIRE(stream->capture == nullptr || stream->capture == event->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  if (stream->capture == nullptr) {
    stream->capture = event->capture;
    stream->captured_work = stream->joined_work = 0;
    event->capture->streams.push_back(stream);
  }
  if (event->captured_on != stream.get()) event->captured_on->joined_work = std::max(event->captured_on->joined_work, event->captured_work);
  return CUDA_SUCCESS;
}
