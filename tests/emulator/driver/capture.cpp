// Capturing streams into graphs, and launching these.
#include <algorithm>

#include "driver/context.hpp"
#include "driver/stream.hpp"

namespace emulator {

struct GraphExec {
  std::vector<Operation> nodes;
  // Launches of one graph do not overlap, whatever their streams.
  std::recursive_mutex order;
};

namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

struct Graphs {
  std::mutex mutex;
  std::map<Graph*, std::unique_ptr<Graph>> graphs;
  std::map<GraphExec*, std::shared_ptr<GraphExec>> executables;
};
Graphs& graphs() {
  static auto* const all = new Graphs;
  return *all;
}

unsigned long long next_capture = 1;

}  // namespace

CUresult allowed_while_capturing() {
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  for (const auto& capture : streams().captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids = capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ? own || thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                                                                        : capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own;
    if (!forbids || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace emulator

using namespace emulator;

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  REQUIRE(mode != nullptr && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
  std::swap(thread_mode, *mode);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  CHECK(ready());
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(stream != streams().default_stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  REQUIRE(stream->capture == nullptr, CUDA_ERROR_ILLEGAL_STATE);
  const auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->id = next_capture++;
  capture->streams.push_back(stream);
  stream->capture = capture;
  stream->captured_work = stream->joined_work = 0;
  streams().captures.push_back(capture);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  CHECK(ready());
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
  const auto capture = stream->capture;
  REQUIRE(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE(capture->origin == stream.get(), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  REQUIRE(capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->thread == std::this_thread::get_id(), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  *graph = nullptr;
  bool joined = true;
  for (const auto& member : capture->streams) {
    joined = joined && (member == stream || member->joined_work == member->captured_work);
    member->capture = nullptr;
  }
  capture->ended = true;
  auto& active = streams().captures;
  active.erase(std::find(active.begin(), active.end(), capture));
  REQUIRE(!capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  REQUIRE(joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  *graph = capture->graph.get();
  const std::lock_guard<std::mutex> graphs_lock(graphs().mutex);
  graphs().graphs[*graph] = std::move(capture->graph);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  CHECK(ready());
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  REQUIRE(stream != nullptr, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(status != nullptr, CUDA_ERROR_INVALID_VALUE);
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph, void** dependencies,
                                          size_t* dependency_count) {
  CHECK(cuStreamIsCapturing(handle, status));
  const std::lock_guard<std::recursive_mutex> lock(streams().mutex);
  const auto stream = streams().find(handle);
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = stream->capture->graph.get();
  // Nodes have no handles here.
  if (dependencies != nullptr) *dependencies = nullptr;
  if (dependency_count != nullptr) *dependency_count = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph, void** dependencies,
                                          void** edges, size_t* dependency_count) {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, dependency_count);
}

EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  CHECK(ready());
  REQUIRE(graph != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  auto made = std::make_unique<Graph>();
  *graph = made.get();
  const std::lock_guard<std::mutex> lock(graphs().mutex);
  graphs().graphs[*graph] = std::move(made);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(graphs().mutex);
  return graphs().graphs.erase(graph) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// How many there are; the nodes themselves have no handles here.
EXPORT CUresult cuGraphGetNodes(CUgraph graph, void** nodes, size_t* count) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(graphs().mutex);
  const auto at = graphs().graphs.find(graph);
  REQUIRE(at != graphs().graphs.end() && count != nullptr, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(nodes == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  *count = at->second->nodes.size();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  CHECK(ready());
  REQUIRE(executable != nullptr, CUDA_ERROR_INVALID_VALUE);
  const std::lock_guard<std::mutex> lock(graphs().mutex);
  const auto at = graphs().graphs.find(graph);
  REQUIRE(at != graphs().graphs.end(), CUDA_ERROR_INVALID_VALUE);
  const auto made = std::make_shared<GraphExec>();
  made->nodes = at->second->nodes;
  graphs().executables[made.get()] = made;
  *executable = made.get();
  return CUDA_SUCCESS;
}

struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  uint64_t flags;
  CUstream hUploadStream;
  void* hErrNode_out;
  unsigned result_out;
};

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  REQUIRE(params != nullptr, CUDA_ERROR_INVALID_VALUE);
  const CUresult result = cuGraphInstantiateWithFlags(executable, graph, params->flags);
  params->hErrNode_out = nullptr;
  params->result_out = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  CHECK(ready(Call::kGraph));
  std::shared_ptr<GraphExec> found;
  {
    const std::lock_guard<std::mutex> lock(graphs().mutex);
    const auto at = graphs().executables.find(executable);
    REQUIRE(at != graphs().executables.end(), CUDA_ERROR_INVALID_HANDLE);
    found = at->second;
  }
  return enqueue(stream, [found] {
    const std::lock_guard<std::recursive_mutex> order(found->order);
    for (const Operation& node : found->nodes) node();
  });
}

EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
  {
    const std::lock_guard<std::mutex> lock(graphs().mutex);
    REQUIRE(graphs().executables.count(executable) == 1, CUDA_ERROR_INVALID_HANDLE);
  }
  return enqueue(stream, [] {});
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(graphs().mutex);
  return graphs().executables.erase(executable) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
