#include "machine/settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace emulator {
namespace {

unsigned long long number(const char* name, unsigned long long otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::strtoull(value, nullptr, 10) : otherwise;
}

std::string text(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// GPU:VALUE
Odd odd(const char* name) {
  const char* const text = std::getenv(name);
  const char* const colon = text == nullptr ? nullptr : std::strchr(text, ':');
  return colon == nullptr ? Odd{-1, 0} : Odd{std::atoi(text), std::strtoull(colon + 1, nullptr, 10)};
}

// FROM:REFUSED
Others others(const char* name) {
  Others others = {0, 0};
  if (std::sscanf(text(name).c_str(), "%zu:%zu", &others.from, &others.refused) != 2) return {0, 0};
  return others;
}

bool is(const char* name, const char* expected) {
  const char* const value = std::getenv(name);
  return value != nullptr && std::strcmp(value, expected) == 0;
}

}  // namespace

const Settings& settings() {
  static const Settings all = {
      static_cast<unsigned>(std::clamp<unsigned long long>(number("OCELLUS_EMULATOR_GPUS", 1), 0, 8)),
      odd("OCELLUS_EMULATOR_SMALL_GPU"),
      odd("OCELLUS_EMULATOR_FAILING_GPU"),
      static_cast<size_t>(number("OCELLUS_EMULATOR_MEMORY_BYTES", 8ull << 30)),
      static_cast<size_t>(number("OCELLUS_EMULATOR_HOST_BYTES", 8ull << 30)),
      static_cast<size_t>(number("OCELLUS_EMULATOR_FAILING_ALLOCATION", 0)),
      others("OCELLUS_EMULATOR_OTHERS"),
      text("OCELLUS_EMULATOR_FAIL"),
      static_cast<unsigned>(number("OCELLUS_EMULATOR_CC", 80)),
      is("OCELLUS_EMULATOR_ORDER", "lazy"),
      is("OCELLUS_EMULATOR_COPIES", "early"),
      number("OCELLUS_EMULATOR_SEED", 0),
      // Each has up to 1,024 stacks, of two mappings each, of which a process may have about 65,000.
      static_cast<unsigned>(std::clamp<unsigned long long>(number("OCELLUS_EMULATOR_THREADS", std::thread::hardware_concurrency()), 1, 16)),
  };
  return all;
}

}  // namespace emulator
