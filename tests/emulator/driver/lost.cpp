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
};

Loss parse(const std::string& text) {
  if (text.empty()) return {};
  const size_t name_end = text.find(':'), first_end = text.find(':', name_end + 1);
  for (size_t call = 0; first_end != std::string::npos && call < kNames.size(); ++call) {
    if (text.substr(0, name_end) != kNames[call]) continue;
    return {static_cast<int>(call), std::stoull(text.substr(name_end + 1)), static_cast<CUresult>(std::stoul(text.substr(first_end + 1)))};
  }
  std::fprintf(stderr, "emulator: OCELLUS_EMULATOR_FAIL=%s is not KIND:N:CODE\n", text.c_str());
  std::abort();
}

std::atomic<CUresult> error{CUDA_SUCCESS};
std::atomic<unsigned long long> calls{0};

}  // namespace

CUresult lost() { return error; }

CUresult ready(Call call) {
  CHECK(ready());
  static const Loss loss = parse(settings().losing_call);
  if (static_cast<int>(call) == loss.call && ++calls >= loss.first) error = loss.error;
  return lost();
}

}  // namespace emulator
