#include "machine/block.hpp"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machine/guard.hpp"
#include "machine/settings.hpp"

namespace emulator {
namespace {

// Untouched pages cost nothing, and a page without access below each stack catches what overruns it.
constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kGuardBytes = 64 * 1024;  // a multiple of every page size

// Stacks lie a multiple of 64 KiB apart, so the parts in use, at the same place in each, would push one another out of
// the cache. They start at different places instead.
size_t used_stack_bytes(const unsigned char* stack) {
  constexpr size_t kPlaces = 61, kStep = 17 * 64;
  return kStackBytes - reinterpret_cast<uintptr_t>(stack) / kGuardBytes % kPlaces * kStep;
}

constexpr unsigned kSharedAlignment = 1024;
// What smem_address gives for the first byte: not 0, so that a forgotten address is noticed, and as aligned as the memory.
constexpr unsigned kSharedOrigin = kSharedAlignment;

constexpr unsigned char kPoison = 0xff;   // NaN in every floating-point type

thread_local BlockRunner* current_runner = nullptr;

unsigned char* map_guarded(size_t bytes) {
  void* const at = mmap(nullptr, bytes + 2 * kGuardBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    std::perror("emulator: mmap");
    std::abort();
  }
  unsigned char* const usable = static_cast<unsigned char*>(at) + kGuardBytes;
  if (mprotect(usable, bytes, PROT_READ | PROT_WRITE) != 0) {
    std::perror("emulator: mprotect");
    std::abort();
  }
  return usable;
}

void unmap_guarded(unsigned char* usable, size_t bytes) { munmap(usable - kGuardBytes, bytes + 2 * kGuardBytes); }

std::string text(Extent e) {
  return "(" + std::to_string(e.x) + ", " + std::to_string(e.y) + ", " + std::to_string(e.z) + ")";
}

struct LocalSegment {
  const void* inside;
  unsigned char* start;
  size_t bytes;
};

// Finds the thread-local segment, of the calling OS thread, that holds the address `inside`.
int find_segment(dl_phdr_info* info, size_t, void* data) {
  LocalSegment& wanted = *static_cast<LocalSegment*>(data);
  if (info->dlpi_tls_data == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
    auto* const start = static_cast<unsigned char*>(info->dlpi_tls_data);
    const size_t bytes = info->dlpi_phdr[i].p_memsz;
    if (wanted.inside >= start && wanted.inside < start + bytes) {
      wanted.start = start;
      wanted.bytes = bytes;
      return 1;
    }
  }
  return 0;
}

constexpr size_t kCoordinatesBytes = 12 * sizeof(unsigned);

LocalSegment local_segment(const Image& image) {
  LocalSegment segment{image.coordinates(), nullptr, 0};
  dl_iterate_phdr(find_segment, &segment);
  return segment;
}

}  // namespace

BlockRunner* running_block() { return current_runner; }

unsigned static_shared_bytes(const Image& image) {
  const LocalSegment segment = local_segment(image);
  return segment.bytes > kCoordinatesBytes ? static_cast<unsigned>(segment.bytes - kCoordinatesBytes) : 0;
}

BlockRunner::BlockRunner() : window_(map_guarded(kMaxSharedBytes)), random_(settings().seed) {}

BlockRunner::~BlockRunner() {
  for (unsigned char* stack : free_stacks_) unmap_guarded(stack, kStackBytes);
  unmap_guarded(window_, kMaxSharedBytes);
}

void BlockRunner::begin(const Launch& launch) {
  launch_ = launch;
  threads_ = static_cast<unsigned>(launch.block.count());
  if (fibers_.size() < threads_) fibers_.resize(threads_);
  warps_.resize((threads_ + kWarp - 1) / kWarp);
  ready_.resize(threads_);
  coordinates_ = launch.image->coordinates();
  const LocalSegment segment = local_segment(*launch.image);
  static_shared_ = segment.start;
  static_shared_bytes_ = static_cast<unsigned>(segment.bytes);
  shared_padded_bytes_ = (launch.shared_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  shared_ = window_ + kMaxSharedBytes - shared_padded_bytes_;
}

void BlockRunner::run(Extent block) {
  block_ = block;
  poison_shared();
  const unsigned coordinates[12] = {0, 0, 0, block.x, block.y, block.z,
                                    launch_.block.x, launch_.block.y, launch_.block.z,
                                    launch_.grid.x, launch_.grid.y, launch_.grid.z};
  std::memcpy(coordinates_, coordinates, sizeof coordinates);
  returned_ = barrier_arrived_ = 0;
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned lanes = std::min(kWarp, threads_ - w * kWarp);
    warps_[w].live = lanes == kWarp ? ~0u : (1u << lanes) - 1;
    warps_[w].gatherings.clear();
  }
  for (unsigned t = 0; t < threads_; ++t) {
    Fiber& fiber = fibers_[t];
    fiber.state = Fiber::State::kNew;
    fiber.thread = {t % launch_.block.x, t / launch_.block.x % launch_.block.y, t / launch_.block.x / launch_.block.y};
    fiber.groups_committed = 0;
    fiber.copies.clear();
    ready_[t] = t;
  }
  if (settings().seed != 0) {
    for (unsigned t = threads_; t > 1; --t) {
      random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(ready_[t - 1], ready_[(random_ >> 33) % t]);
    }
  }
  ready_head_ = 0;
  ready_count_ = threads_;

  current_runner = this;
  while (returned_ < threads_) {
    if (ready_count_ == 0) report_deadlock();
    const unsigned thread = ready_[ready_head_];
    ready_head_ = ready_head_ + 1 == threads_ ? 0 : ready_head_ + 1;
    --ready_count_;
    resume(thread);
  }
  check_shared();
  current_runner = nullptr;
}

void BlockRunner::resume(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  if (fiber.state == Fiber::State::kNew) {
    // Given only now: a thread that never waits leaves its stack to the next one while it is in the cache.
    fiber.stack = new_stack();
    prepare_context(fiber.context, fiber.stack, used_stack_bytes(fiber.stack), fiber_main);
  }
  fiber.state = Fiber::State::kReady;
  current_ = thread;
  coordinates_[0] = fiber.thread.x;
  coordinates_[1] = fiber.thread.y;
  coordinates_[2] = fiber.thread.z;
  running_ = true;
  switch_context(scheduler_, fiber.context);
  running_ = false;
  if (fiber.state == Fiber::State::kReturned) {
    free_stacks_.push_back(fiber.stack);
    fiber.stack = nullptr;
  }
}

void BlockRunner::fiber_main() {
  BlockRunner& runner = *current_runner;
  runner.launch_.kernel->run(runner.launch_.params);
  runner.thread_returned();
  runner.suspend(Fiber::State::kReturned);
  std::abort();
}

void BlockRunner::suspend(Fiber::State state) {
  Fiber& fiber = fibers_[current_];
  fiber.state = state;
  switch_context(fiber.context, scheduler_);
}

void BlockRunner::make_ready(unsigned thread) {
  const unsigned tail = ready_head_ + ready_count_;
  ready_[tail >= threads_ ? tail - threads_ : tail] = thread;
  ++ready_count_;
  fibers_[thread].state = Fiber::State::kReady;
}

unsigned char* BlockRunner::new_stack() {
  if (free_stacks_.empty()) return map_guarded(kStackBytes);
  unsigned char* const stack = free_stacks_.back();
  free_stacks_.pop_back();
  return stack;
}

int BlockRunner::barrier(int kind, int predicate) {
  if (barrier_arrived_ == 0) {
    barrier_kind_ = kind;
    barrier_sum_ = 0;
  }
  if (kind != barrier_kind_) fail("this thread is at another kind of __syncthreads than the rest of its block");
  ++barrier_arrived_;
  barrier_sum_ += predicate != 0;
  if (barrier_arrived_ == threads_) {
    release_barrier();
  } else {
    suspend(Fiber::State::kBarrier);
  }
  return fibers_[current_].barrier_result;
}

void BlockRunner::release_barrier() {
  const int result = barrier_kind_ == kBarrierOr    ? barrier_sum_ != 0
                     : barrier_kind_ == kBarrierAnd ? barrier_sum_ == static_cast<int>(threads_)
                                                    : barrier_sum_;
  barrier_arrived_ = 0;
  for (unsigned t = 0; t < threads_; ++t) {
    fibers_[t].barrier_result = result;
    if (t != current_) make_ready(t);
  }
}

void BlockRunner::collective(int kind, unsigned mask, void* operand) {
  const unsigned lane = current_ % kWarp, bit = 1u << lane;
  Warp& warp = warps_[current_ / kWarp];
  if (!(mask & bit)) fail("this lane is not in the mask of its own collective");
  auto at = std::find_if(warp.gatherings.begin(), warp.gatherings.end(), [&](const Gathering& g) { return g.mask == mask; });
  if (at == warp.gatherings.end()) at = warp.gatherings.insert(at, Gathering{kind, mask, 0});
  if (at->kind != kind) fail("this lane is at another collective than the rest of its warp");
  at->arrived |= bit;
  warp.operands[lane] = operand;
  if (at->arrived != (mask & warp.live)) {
    suspend(Fiber::State::kCollective);
    return;
  }
  const Gathering gathering = *at;
  warp.gatherings.erase(at);
  complete(warp, current_ - lane, gathering);
}

void BlockRunner::complete(Warp& warp, unsigned first_thread, const Gathering& gathering) {
  execute_collective(*this, gathering.kind, gathering.arrived, warp.operands);
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((gathering.arrived >> lane & 1) && first_thread + lane != current_) make_ready(first_thread + lane);
  }
}

// A lane that has returned is waited for no longer.
void BlockRunner::thread_returned() {
  ++returned_;
  const unsigned lane = current_ % kWarp;
  Warp& warp = warps_[current_ / kWarp];
  warp.live &= ~(1u << lane);
  for (size_t g = 0; g < warp.gatherings.size();) {
    const Gathering gathering = warp.gatherings[g];
    if (gathering.arrived != (gathering.mask & warp.live)) {
      ++g;
      continue;
    }
    warp.gatherings.erase(warp.gatherings.begin() + static_cast<long>(g));
    complete(warp, current_ - lane, gathering);
  }
}

unsigned BlockRunner::live_lanes() { return warps_[current_ / kWarp].live; }

unsigned char* BlockRunner::dynamic_smem() { return shared_; }

unsigned BlockRunner::smem_address(const void* pointer) {
  const auto* const at = static_cast<const unsigned char*>(pointer);
  // One past the end is an address too.
  if (at < shared_ || at > shared_ + launch_.shared_bytes) fail("smem_address of memory that is not dynamic shared memory of this launch");
  return static_cast<unsigned>(at - shared_) + kSharedOrigin;
}

unsigned char* BlockRunner::smem_pointer(unsigned address, unsigned bytes, const char* what) {
  if (address % bytes != 0) fail(std::string(what) + ": the shared address is not aligned to " + std::to_string(bytes) + " bytes");
  if (address < kSharedOrigin || address - kSharedOrigin + bytes > launch_.shared_bytes) {
    fail(std::string(what) + ": outside the launch's " + std::to_string(launch_.shared_bytes) + " bytes of shared memory, at byte " +
         std::to_string(static_cast<long>(address) - static_cast<long>(kSharedOrigin)));
  }
  return shared_ + (address - kSharedOrigin);
}

void BlockRunner::copy_async(unsigned to, const void* from, unsigned size, unsigned bytes) {
  if (bytes > size) fail("cp_async: more bytes are to be read than written");
  if (bytes != 0 && reinterpret_cast<uintptr_t>(from) % size != 0) fail("cp_async: the global address is not aligned");
  unsigned char* const target = smem_pointer(to, size, "cp_async");
  if (settings().early_copies) {
    std::memset(target, 0, size);
    std::memcpy(target, from, bytes);
    return;
  }
  Fiber& fiber = fibers_[current_];
  fiber.copies.push_back({target, from, size, bytes, fiber.groups_committed});
}

void BlockRunner::copy_commit() { ++fibers_[current_].groups_committed; }

void BlockRunner::copy_wait(int groups_under_way) {
  Fiber& fiber = fibers_[current_];
  size_t done = 0;
  for (; done < fiber.copies.size(); ++done) {
    const AsyncCopy& copy = fiber.copies[done];
    if (copy.group + static_cast<unsigned>(groups_under_way) >= fiber.groups_committed) break;
    std::memset(copy.to, 0, copy.size);
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<long>(done));
}

void BlockRunner::poison_shared() {
  if (static_shared_ != nullptr) std::memset(static_shared_, kPoison, static_shared_bytes_);
  std::memset(shared_, kPoison, launch_.shared_bytes);
  put_guard(shared_ + launch_.shared_bytes, shared_padded_bytes_ - launch_.shared_bytes);
}

void BlockRunner::check_shared() {
  const unsigned bytes = launch_.shared_bytes;
  const size_t damage = first_damage(shared_ + bytes, shared_padded_bytes_ - bytes);
  if (damage == shared_padded_bytes_ - bytes) return;
  fail("the block wrote to byte " + std::to_string(bytes + damage) + " of its " + std::to_string(bytes) + " bytes of shared memory");
}

std::string BlockRunner::place() const {
  std::string place = std::string("kernel ") + launch_.kernel->name + ", block " + text(block_);
  if (running_) place += ", thread " + text(fibers_[current_].thread);
  return place;
}

void BlockRunner::fail(const std::string& what) {
  std::fprintf(stderr, "emulator: %s: %s\n", place().c_str(), what.c_str());
  std::fflush(stderr);
  std::abort();
}

void BlockRunner::report_deadlock() {
  std::string what = "no thread can go on:";
  const auto describe = [](Fiber::State state) {
    switch (state) {
      case Fiber::State::kBarrier: return " wait at __syncthreads";
      case Fiber::State::kCollective: return " wait at a collective of their warp";
      case Fiber::State::kReturned: return " have returned";
      default: return " run";
    }
  };
  for (unsigned first = 0; first < threads_;) {
    unsigned end = first;
    while (end < threads_ && fibers_[end].state == fibers_[first].state) ++end;
    what += " threads " + text(fibers_[first].thread) + " to " + text(fibers_[end - 1].thread) + describe(fibers_[first].state) + ";";
    first = end;
  }
  what.pop_back();
  fail(what);
}

}  // namespace emulator
