// Device memory, which is this process's own, with what a GPU does not have: poison, guards and a register.
#pragma once
#include <map>
#include <mutex>

#include "driver/api.hpp"

namespace emulator {

// Attributes are kept, not acted on: memory is never kept back for reuse.
struct Pool {
  std::map<int, uint64_t> attributes;
  size_t used_bytes = 0, most_used_bytes = 0;
};

enum class MemoryKind {
  kDevice,
  kHost,        // allocated by the driver
  kRegistered,  // a caller's
  kModule,      // a variable of a module
};

struct Allocation {
  MemoryKind kind;
  size_t bytes;
  unsigned flags;
  Pool* pool;
  // The device whose context was current.
  int gpu;
};

class Memory {
 public:
  // Null where the device, or for host memory this machine, has no more, and where this allocation is to fail. Filled with 0xff: nothing may rely on zeros.
  void* allocate(MemoryKind kind, size_t bytes, unsigned flags = 0, Pool* pool = nullptr);
  // False where `at` is not the start of an allocation of this kind.
  bool free(void* at, MemoryKind kind);
  void free_all(int gpu);
  bool register_range(void* at, size_t bytes, MemoryKind kind, unsigned flags);
  bool unregister(void* at);
  // The allocation that holds all `bytes` from `at`; false where there is none.
  bool find(const void* at, size_t bytes, void** start, Allocation* allocation);
  // Ends the process where anything wrote beside an allocation. `after` says what ran last.
  void check_guards(const char* after);
  // What neither this process nor others have of a device.
  size_t free_bytes(int gpu);
  size_t allocations();

 private:
  bool others_have_the_rest() const;
  void release(std::map<unsigned char*, Allocation>::iterator at);
  std::mutex mutex_;
  std::map<unsigned char*, Allocation> all_;
  std::map<int, size_t> used_bytes_;
  size_t used_host_bytes_ = 0;
  // So far, of the device's and the host's memory.
  size_t asked_for_ = 0;
  // So far, because others had the memory.
  size_t refused_ = 0;
};

Memory& memory();
Pool& default_pool();

}  // namespace emulator
