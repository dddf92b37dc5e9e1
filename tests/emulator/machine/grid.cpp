// A grid's blocks, spread over OS threads that live as long as the process.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "machine/block.hpp"
#include "machine/settings.hpp"

namespace emulator {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

// Blocks are taken by whoever is free: who comes late finds none and goes.
struct Work {
  Launch launch;
  unsigned long long blocks, stride;
  std::atomic<unsigned long long> next{0}, done{0};
  std::mutex mutex;
  std::condition_variable finished;
};

class Runners {
 public:
  std::unique_ptr<BlockRunner> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return std::make_unique<BlockRunner>();
    auto runner = std::move(idle_.back());
    idle_.pop_back();
    return runner;
  }
  void give_back(std::unique_ptr<BlockRunner> runner) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(runner));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockRunner>> idle_;
};

// Never destroyed, like the OS threads that use it: a kernel may run while the process exits.
Runners& runners() {
  static auto* const all = new Runners;
  return *all;
}

// A fault that is a stack's overflow can only be handled on another stack.
void have_fault_stack() {
  stack_t present{};
  if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
  static thread_local char memory[64 * 1024];
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = sizeof memory;
  sigaltstack(&stack, nullptr);
}

void run_blocks(Work& work) {
  unsigned long long i = work.next.fetch_add(1);
  // Without a block of one's own the grid may already have ended, and its module be gone.
  if (i >= work.blocks) return;
  have_fault_stack();
  auto runner = runners().take();
  runner->begin(work.launch);
  for (; i < work.blocks; i = work.next.fetch_add(1)) {
    // The stride has no factor in common with the number of blocks, so every block is visited once.
    const auto block = static_cast<unsigned long long>(static_cast<unsigned __int128>(i) * work.stride % work.blocks);
    const Extent& grid = work.launch.grid;
    runner->run({static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
                 static_cast<unsigned>(block / grid.x / grid.y)});
    if (work.done.fetch_add(1) + 1 == work.blocks) {
      const std::lock_guard<std::mutex> lock(work.mutex);
      work.finished.notify_all();
    }
  }
  runners().give_back(std::move(runner));
}

class Workers {
 public:
  Workers() {
    for (unsigned i = 1; i < settings().workers; ++i) std::thread([this] { loop(); }).detach();
  }
  void offer(const std::shared_ptr<Work>& work, unsigned long long times) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (unsigned long long i = 0; i < times; ++i) queue_.push_back(work);
    }
    wanted_.notify_all();
  }

 private:
  [[noreturn]] void loop() {
    // Signals that a program waits for must reach its own threads, and a fault the one that made it.
    sigset_t others;
    sigfillset(&others);
    for (const int fault : kFaults) sigdelset(&others, fault);
    pthread_sigmask(SIG_BLOCK, &others, nullptr);
    for (;;) {
      std::shared_ptr<Work> work;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wanted_.wait(lock, [this] { return !queue_.empty(); });
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      run_blocks(*work);
    }
  }

  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<std::shared_ptr<Work>> queue_;
};

Workers& workers() {
  static auto* const all = new Workers;
  return *all;
}

unsigned long long common_divisor(unsigned long long a, unsigned long long b) { return b == 0 ? a : common_divisor(b, a % b); }

struct sigaction previous[NSIG];

void on_fault(int signal, siginfo_t* info, void* context) {
  // The process is about to end: what is not safe in a handler is worth the message.
  if (BlockRunner* const block = running_block()) {
    std::fprintf(stderr, "emulator: %s: %s at address %p\n", block->place().c_str(), strsignal(signal), info->si_addr);
    std::fflush(stderr);
    sigaction(signal, &previous[signal], nullptr);
    ::signal(signal, SIG_DFL);
    return;
  }
  const struct sigaction& then = previous[signal];
  if ((then.sa_flags & SA_SIGINFO) != 0) {
    then.sa_sigaction(signal, info, context);
  } else if (then.sa_handler != SIG_DFL && then.sa_handler != SIG_IGN) {
    then.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);
  }
}

}  // namespace

void run_grid(const Launch& launch) {
  const auto work = std::make_shared<Work>();
  work->launch = launch;
  work->blocks = launch.grid.count();
  work->stride = 1;
  if (settings().seed != 0) {
    work->stride = settings().seed % work->blocks | 1;
    while (common_divisor(work->blocks, work->stride) != 1) work->stride += 2;
  }
  const unsigned long long others = std::min<unsigned long long>(work->blocks, settings().workers) - 1;
  if (others > 0) workers().offer(work, others);
  run_blocks(*work);
  std::unique_lock<std::mutex> lock(work->mutex);
  work->finished.wait(lock, [&] { return work->done.load() == work->blocks; });
}

void report_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const int signal : kFaults) {
      struct sigaction action{};
      action.sa_sigaction = on_fault;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigaction(signal, &action, &previous[signal]);
    }
  });
}

namespace {

BlockRunner& here() { return *running_block(); }

void fail(const char* what, const char* file, unsigned line) {
  here().fail(file != nullptr ? std::string(what) + " (" + file + ":" + std::to_string(line) + ")" : std::string(what));
}

}  // namespace

const Machine kMachine = {
    [](int kind, int predicate) { return here().barrier(kind, predicate); },
    [](int kind, unsigned mask, void* operand) { here().collective(kind, mask, operand); },
    [] { return here().dynamic_smem(); },
    [](const void* pointer) { return here().smem_address(pointer); },
    [](unsigned to, const void* from, unsigned size, unsigned bytes) { here().copy_async(to, from, size, bytes); },
    [] { here().copy_commit(); },
    [](int groups_under_way) { here().copy_wait(groups_under_way); },
    [] { return here().live_lanes(); },
    fail,
};

}  // namespace emulator
