// One block at a time: its threads as fibers, its shared memory, its barriers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "machine/launch.hpp"
#include "machine/switch.hpp"

namespace emulator {

constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxSharedBytes = 228 * 1024;

struct AsyncCopy {
  unsigned char* to;
  const void* from;
  unsigned size, bytes;
  unsigned group;
};

struct Fiber {
  enum class State { kNew, kReady, kBarrier, kCollective, kReturned };
  Context context;
  unsigned char* stack = nullptr;
  State state = State::kNew;
  Extent thread{};
  int barrier_result = 0;
  unsigned groups_committed = 0;
  std::vector<AsyncCopy> copies;
};

// Lanes that wait for one another; all named the same mask.
struct Gathering {
  int kind;
  unsigned mask, arrived;
};

struct Warp {
  unsigned live = 0;
  void* operands[kWarp] = {};
  std::vector<Gathering> gatherings;
};

// What an OS thread needs to run blocks. Used by one OS thread at a time.
class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // To be called by the OS thread that runs the blocks which follow.
  void begin(const Launch& launch);
  void run(Extent block);

  // Of the thread that runs now.
  int barrier(int kind, int predicate);
  void collective(int kind, unsigned mask, void* operand);
  unsigned char* dynamic_smem();
  unsigned smem_address(const void* pointer);
  unsigned char* smem_pointer(unsigned address, unsigned bytes, const char* what);
  void copy_async(unsigned to, const void* from, unsigned size, unsigned bytes);
  void copy_commit();
  void copy_wait(int groups_under_way);
  unsigned live_lanes();
  [[noreturn]] void fail(const std::string& what);
  // "kernel K, block (x, y, z), thread (x, y, z)"
  std::string place() const;

 private:
  static void fiber_main();
  void resume(unsigned thread);
  void suspend(Fiber::State state);
  void make_ready(unsigned thread);
  void release_barrier();
  void complete(Warp& warp, unsigned first_thread, const Gathering& gathering);
  void thread_returned();
  void poison_shared();
  void check_shared();
  [[noreturn]] void report_deadlock();
  unsigned char* new_stack();

  Launch launch_{};
  Extent block_{};
  unsigned threads_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<unsigned> ready_;  // a ring
  unsigned ready_head_ = 0, ready_count_ = 0;
  std::vector<unsigned char*> free_stacks_;
  unsigned returned_ = 0;
  int barrier_kind_ = 0;
  unsigned barrier_arrived_ = 0;
  int barrier_sum_ = 0;
  unsigned current_ = 0;
  bool running_ = false;
  Context scheduler_;
  unsigned* coordinates_ = nullptr;
  unsigned char* static_shared_ = nullptr;
  unsigned static_shared_bytes_ = 0;
  unsigned char* window_ = nullptr;  // mapped, between two pages without access
  unsigned char* shared_ = nullptr;  // the block's dynamic shared memory, which ends at the window's end
  unsigned shared_padded_bytes_ = 0;
  unsigned long long random_ = 0;
};

// The runner of this OS thread while it runs a block, else null.
BlockRunner* running_block();

// The work of a collective, by the last lane to arrive. `operands` of lanes outside `lanes` are not read.
void execute_collective(BlockRunner& block, int kind, unsigned lanes, void* const (&operands)[kWarp]);

}  // namespace emulator
