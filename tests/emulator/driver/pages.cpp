#include "driver/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace emulator {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kLargeBytes = 1 << 20;
// Large memory is mapped in pieces of this size, of which a process may have about 65,000.
constexpr size_t kPieceBytes = 16 << 20;
constexpr unsigned char kFreed = 0xdb;

// A file of one piece of fresh memory, which is mapped again and again, each time a private copy on write. -1 where
// there can be none.
int fresh_file() {
  static const int file = [] {
    const int made = memfd_create("fresh memory", MFD_CLOEXEC);
    const std::vector<unsigned char> block(1 << 20, kFresh);
    for (size_t written = 0; made >= 0 && written < kPieceBytes; written += block.size()) {
      if (write(made, block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
        close(made);
        return -1;
      }
    }
    return made;
  }();
  return file;
}

void* map_fresh(size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  for (size_t done = 0; done < bytes; done += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - done);
    if (mmap(static_cast<char*>(at) + done, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fresh_file(), 0) == MAP_FAILED) {
      munmap(at, bytes);
      return nullptr;
    }
  }
  return at;
}

bool is_large(size_t bytes) { return bytes >= kLargeBytes && fresh_file() >= 0; }

}  // namespace

void* new_pages(size_t bytes) {
  if (is_large(bytes)) return map_fresh(bytes);
  void* at = nullptr;
  if (posix_memalign(&at, kAlignment, bytes) != 0) return nullptr;
  std::memset(at, kFresh, bytes);
  return at;
}

void free_pages(void* at, size_t bytes) {
  if (is_large(bytes)) {
    munmap(at, bytes);
    return;
  }
  std::memset(at, kFreed, bytes);
  std::free(at);
}

}  // namespace emulator
