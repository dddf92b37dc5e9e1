#include "driver/memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "driver/context.hpp"
#include "driver/pages.hpp"
#include "driver/report.hpp"
#include "machine/guard.hpp"
#include "machine/settings.hpp"

namespace emulator {
namespace {

// cuMemAlloc aligns to at least 256 bytes.
constexpr size_t kAlignment = 512;
constexpr size_t kGuardBytes = 512;
// Guards are looked at after every kernel; an overrun starts at their inner ends.
constexpr size_t kCheckedBytes = 64;

size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool guarded(MemoryKind kind) { return kind == MemoryKind::kDevice || kind == MemoryKind::kHost; }

bool intact(const unsigned char* guard, size_t bytes) { return first_damage(guard, bytes) == bytes; }

}  // namespace

Memory& memory() {
  static auto* const all = new Memory;
  return *all;
}

Pool& default_pool() {
  static auto* const pool = new Pool;
  return *pool;
}

void* Memory::allocate(MemoryKind kind, size_t bytes, unsigned flags, Pool* pool) {
  const std::lock_guard<std::mutex> lock(mutex_);
  count_allocation();
  if (++asked_for_ == settings().failing_allocation) return nullptr;
  const bool on_device = kind == MemoryKind::kDevice;
  const int gpu = current_gpu();
  const size_t all = on_device ? memory_bytes(gpu) : settings().host_bytes;
  if (on_device && others_have_the_rest()) {
    ++refused_;
    return nullptr;
  }
  const size_t left = all - std::min(all, on_device ? used_bytes_[gpu] : used_host_bytes_);
  if (bytes > left || rounded(bytes) > left) return nullptr;
  void* const raw = new_pages(kGuardBytes + rounded(bytes) + kGuardBytes);
  if (raw == nullptr) return nullptr;
  auto* const start = static_cast<unsigned char*>(raw) + kGuardBytes;
  put_guard(start - kGuardBytes, kGuardBytes);
  put_guard(start + bytes, rounded(bytes) - bytes + kGuardBytes);
  all_[start] = {kind, bytes, flags, pool, gpu};
  (on_device ? used_bytes_[gpu] : used_host_bytes_) += rounded(bytes);
  if (pool != nullptr) {
    pool->used_bytes += bytes;
    pool->most_used_bytes = std::max(pool->most_used_bytes, pool->used_bytes);
  }
  return start;
}

void Memory::release(std::map<unsigned char*, Allocation>::iterator at) {
  const auto [start, allocation] = *at;
  if (allocation.kind == MemoryKind::kDevice) used_bytes_[allocation.gpu] -= rounded(allocation.bytes);
  if (allocation.kind == MemoryKind::kHost) used_host_bytes_ -= rounded(allocation.bytes);
  if (allocation.pool != nullptr) allocation.pool->used_bytes -= allocation.bytes;
  all_.erase(at);
  if (!guarded(allocation.kind)) return;
  free_pages(start - kGuardBytes, kGuardBytes + rounded(allocation.bytes) + kGuardBytes);
}

bool Memory::free(void* at, MemoryKind kind) {
  check_guards("a call that frees");
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = all_.find(static_cast<unsigned char*>(at));
  if (found == all_.end() || found->second.kind != kind) return false;
  release(found);
  return true;
}

void Memory::free_all(int gpu) {
  check_guards("the context's end");
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto at = all_.begin(); at != all_.end();) {
    const auto next = std::next(at);
    if (at->second.gpu == gpu) release(at);
    at = next;
  }
}

bool Memory::register_range(void* at, size_t bytes, MemoryKind kind, unsigned flags) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return all_.emplace(static_cast<unsigned char*>(at), Allocation{kind, bytes, flags, nullptr, current_gpu()}).second;
}

bool Memory::unregister(void* at) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = all_.find(static_cast<unsigned char*>(at));
  if (found == all_.end() || guarded(found->second.kind)) return false;
  all_.erase(found);
  return true;
}

bool Memory::find(const void* at, size_t bytes, void** start, Allocation* allocation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(at);
  auto found = all_.upper_bound(static_cast<unsigned char*>(const_cast<void*>(at)));
  if (found == all_.begin()) return false;
  --found;
  const size_t offset = address - reinterpret_cast<uintptr_t>(found->first);
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return false;
  if (start != nullptr) *start = found->first;
  if (allocation != nullptr) *allocation = found->second;
  return true;
}

void Memory::check_guards(const char* after) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [start, allocation] : all_) {
    if (!guarded(allocation.kind)) continue;
    const bool before = !intact(start - kCheckedBytes, kCheckedBytes);
    if (!before && intact(start + allocation.bytes, kCheckedBytes)) continue;
    std::fprintf(stderr, "emulator: after %s: something was written %s an allocation of %zu bytes at %p\n", after,
                 before ? "before the start of" : "past the end of", allocation.bytes, static_cast<void*>(start));
    std::fflush(stderr);
    std::abort();
  }
}

bool Memory::others_have_the_rest() const {
  const Others& others = settings().others;
  return others.from != 0 && asked_for_ >= others.from && refused_ < others.refused;
}

size_t Memory::free_bytes(int gpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t all = memory_bytes(gpu);
  return others_have_the_rest() ? 0 : all - std::min(all, used_bytes_[gpu]);
}

size_t Memory::allocations() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(std::count_if(all_.begin(), all_.end(), [](const auto& entry) { return guarded(entry.second.kind); }));
}

}  // namespace emulator
