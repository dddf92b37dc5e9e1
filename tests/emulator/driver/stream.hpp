// Streams, events and captures: when work runs.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver/api.hpp"

namespace emulator {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

using Operation = std::function<void()>;

struct Stream;

// One call of cuEventRecord.
struct Record {
  std::atomic<bool> done{false};
  double time_ms = 0;
  std::shared_ptr<Stream> stream;
};

struct Graph {
  std::vector<Operation> nodes;
};

// Work of all streams that take part, in the order of the calls, which every order that the GPU may choose agrees with
// where the streams are joined as they must be.
struct Capture {
  Stream* origin;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  unsigned long long id;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  bool invalid = false;
  bool ended = false;
  std::vector<std::shared_ptr<Stream>> streams;
};

struct Event {
  bool timed;
  int gpu;
  std::shared_ptr<Record> record;
  // Where the last record belongs to a capture: which one, on which stream, after how much of its work.
  std::shared_ptr<Capture> capture;
  Stream* captured_on = nullptr;
  size_t captured_work = 0;
};

// A wait for a record where there is one, else work.
struct Item {
  Operation run;
  std::shared_ptr<Record> wait_for;
};

struct Stream {
  // Whether it keeps order with the default stream.
  bool blocking;
  int priority;
  unsigned flags;
  // Its device; any for the default stream.
  int gpu = -1;
  // Held while the stream's work runs, where that is at once.
  std::recursive_mutex order;
  // What has not run, in lazy order.
  std::deque<Item> queue;
  std::shared_ptr<Capture> capture;
  // Operations captured, and how many of them another stream of the capture has waited for.
  size_t captured_work = 0, joined_work = 0;
};

// What all streams share. The mutex guards it and everything above but `order` and what runs under it; in lazy order
// work runs under this mutex too.
struct Streams {
  std::recursive_mutex mutex;
  std::shared_ptr<Stream> default_stream;
  std::map<Stream*, std::shared_ptr<Stream>> all;
  std::map<Event*, std::shared_ptr<Event>> events;
  std::vector<std::shared_ptr<Capture>> captures;
  // The stream of a handle, null where it has been destroyed or never was.
  std::shared_ptr<Stream> find(CUstream handle);
  std::shared_ptr<Event> find(CUevent handle);
};
Streams& streams();

// Adds work to a stream: it runs now, or later, or at each launch of the graph that is captured.
CUresult enqueue(CUstream stream, Operation operation);
// The same with a stream already found; `lock` holds the mutex of `streams()` and is released to run the work.
void enqueue(const std::shared_ptr<Stream>& stream, Item item, std::unique_lock<std::recursive_mutex>& lock);
// Returns when everything enqueued so far has run.
CUresult synchronise(CUstream stream);
void synchronise_all();
bool is_capturing(CUstream stream);
// Runs what must have run before a record, and it.
void run_until(const Record& record);
// Runs one piece of work that stands before a record. The mutex is held.
void progress(const Record& record);

// An error where a capture forbids a call of this kind to this thread, which also spoils the capture.
CUresult allowed_while_capturing();

}  // namespace emulator
