// Compiling a kernel text for this CPU with g++.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace emulator {

struct Source {
  std::string name, text;
  // Name as included, and text.
  std::vector<std::pair<std::string, std::string>> headers;
  // As -D takes them.
  std::vector<std::string> defines;
  // 80 for sm_80.
  unsigned compute_capability = 80;
};

struct Compiled {
  bool ok = false;
  // A shared object that exports `emulator_image`.
  std::string object;
  std::string log;
};

// Takes what was compiled before from a folder, whose entries are named by their content.
Compiled compile(const Source& source);

// Finds the kernels that a preprocessed text defines, and returns the text that exports them.
std::string export_entries(const std::string& preprocessed, unsigned compute_capability);

}  // namespace emulator
