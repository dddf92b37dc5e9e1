// A context that is lost at a call of the tests' choice.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "driver/context.hpp"
#include "machine/settings.hpp"

namespace emulator {
namespace {

// In the order of `Call`.
constexpr std::array kNames = {"allocate", "copy",          "download",  "event",  "fill", "free",   "graph",
                               "host-allocate", "host-free", "launch", "load", "record", "stream", "upload"};

struct Loss {
  int call = -1;
  unsigned long long first = 0;
  CUresult error = CUDA_SUCCESS;
  // The only device that it happens to; -1: to all.
  int gpu = -1;
};

Loss parse(const std::string& text) {
  if (text.empty()) return {};
  const size_t name_end = text.find(':'), first_end = text.find(':', name_end + 1);
  for (size_t call = 0; first_end != std::string::npos && call < kNames.size(); ++call) {
    if (text.substr(0, name_end) != kNames[call]) continue;
    const size_t error_end = text.find(':', first_end + 1);
    const int gpu = error_end == std::string::npos ? -1 : std::stoi(text.substr(error_end + 1));
    return {static_cast<int>(call), std::stoull(text.substr(name_end + 1)), static_cast<CUresult>(std::stoul(text.substr(first_end + 1))), gpu};
  }
  std::fprintf(stderr, "emulator: OCELLUS_EMULATOR_FAIL=%s is not KIND:N:CODE or KIND:N:CODE:GPU\n", text.c_str());
  std::abort();
}

std::atomic<CUresult> error{CUDA_SUCCESS};
std::atomic<unsigned long long> calls{0};

const Loss& loss() {
  static const Loss asked_for = parse(settings().losing_call);
  return asked_for;
}

bool concerns_this_thread() { return loss().gpu < 0 || loss().gpu == current_gpu(); }

}  // namespace

CUresult lost() { return concerns_this_thread() ? error.load() : CUDA_SUCCESS; }

CUresult ready(Call call) {
  CHECK(ready());
  if (concerns_this_thread() && static_cast<int>(call) == loss().call && ++calls >= loss().first) error = loss().error;
  return lost();
}

}  // namespace emulator
