#include <cctype>

#include "nvrtc/compile.hpp"

namespace emulator {
namespace {

// device/runtime.hpp gives these names to __global__ and __launch_bounds__.
constexpr char kGlobal[] = "__attribute__((emulator_global))";
constexpr char kBounds[] = "emulator_launch_bounds(";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The place after the parenthesis that closes the one at `open`.
size_t after_parentheses(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    depth += (text[at] == '(') - (text[at] == ')');
    if (depth == 0) return at + 1;
  }
  return text.size();
}

// The arguments of the launch bounds in a piece of text, empty where there are none.
std::string bounds_in(const std::string& piece) {
  const size_t at = piece.find(kBounds);
  if (at == std::string::npos) return {};
  const size_t open = at + sizeof kBounds - 2;
  return piece.substr(open + 1, after_parentheses(piece, open) - open - 2);
}

struct Entry {
  std::string name, bounds;
  bool defined = false;
};

// Reads on from `at`, behind __global__, over type and attributes to the name before the parameters.
Entry read_declaration(const std::string& text, size_t at) {
  Entry entry;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '#') {  // a line marker
      at = text.find('\n', at);
    } else if (is_word(c)) {
      size_t end = at;
      while (end < text.size() && is_word(text[end])) ++end;
      const std::string word = text.substr(at, end - at);
      at = end;
      if (word == "__attribute__") {
        const size_t open = text.find('(', at);
        at = after_parentheses(text, open);
        const std::string bounds = bounds_in(text.substr(open, at - open));
        if (!bounds.empty()) entry.bounds = bounds;
      } else {
        entry.name = word;
      }
    } else if (c == '(') {
      at = text.find_first_of("{;", after_parentheses(text, at));
      entry.defined = at != std::string::npos && text[at] == '{';
      return entry;
    } else {
      ++at;
    }
  }
  return {};
}

}  // namespace

std::string export_entries(const std::string& text, unsigned compute_capability) {
  std::string kernels;
  unsigned count = 0;
  for (size_t at = text.find(kGlobal); at != std::string::npos; at = text.find(kGlobal, at + 1)) {
    const size_t previous = text.find_last_of(";}", at);
    const size_t start = previous == std::string::npos ? 0 : previous + 1;
    const std::string before = text.substr(start, at - start);
    // Templates have no name that a module could be asked for.
    if (before.find("template") != std::string::npos) continue;
    Entry entry = read_declaration(text, at + sizeof kGlobal - 1);
    if (!entry.defined) continue;
    if (entry.bounds.empty()) entry.bounds = bounds_in(before);
    kernels += "    Entry<&::" + entry.name + ">::kernel(\"" + entry.name + "\", first(" + entry.bounds + ")),\n";
    ++count;
  }
  std::string code = "\n# 1 \"emulator\"\nnamespace emulator {\n";
  if (count > 0) code += "static constexpr Kernel kernels[] = {\n" + kernels + "};\n";
  code += "extern \"C\" __attribute__((visibility(\"default\"))) const Image emulator_image;\nconst Image emulator_image = {kAbiVersion, ";
  code += std::to_string(compute_capability) + ", bind, coordinates_address, " + (count > 0 ? "kernels" : "nullptr") + ", ";
  return code + std::to_string(count) + "};\n}\n";
}

}  // namespace emulator
