// What OCELLUS_EMULATOR_REPORT gets at the end of the process.
#include "driver/report.hpp"

#include <pthread.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <vector>

namespace emulator {
namespace {

// Of one OS thread. Only that one writes, but for the end of the process.
struct Counts {
  // As Linux keeps it: 15 characters at most.
  char name[16] = "";
  unsigned long long calls = 0, allocations = 0;
  // Calls when it last asked for memory.
  unsigned long long last = 0;
};

// Never destroyed: threads may call until the very end.
struct Threads {
  std::mutex mutex;
  std::vector<const Counts*> counts;
};

Threads& threads() {
  static auto* const all = new Threads;
  return *all;
}

struct Report {
  ~Report() {
    const char* const file = std::getenv("OCELLUS_EMULATOR_REPORT");
    if (file == nullptr) return;
    const std::lock_guard<std::mutex> lock(threads().mutex);
    unsigned long long all = 0;
    for (const Counts* thread : threads().counts) all += thread->allocations;
    std::ofstream out(file);
    out << all << "\n";
    for (const Counts* thread : threads().counts) {
      out << thread->name << "\t" << thread->calls << "\t" << thread->allocations << "\t" << thread->last << "\n";
    }
  }
} const report;

Counts& mine() {
  static thread_local Counts* const counts = [] {
    auto* const made = new Counts;
    pthread_getname_np(pthread_self(), made->name, sizeof made->name);
    const std::lock_guard<std::mutex> lock(threads().mutex);
    threads().counts.push_back(made);
    return made;
  }();
  return *counts;
}

}  // namespace

void count_call() { ++mine().calls; }

void count_allocation() {
  Counts& counts = mine();
  ++counts.allocations;
  counts.last = counts.calls;
}

}  // namespace emulator
