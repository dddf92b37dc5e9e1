// What a process had done, for tests to count: a line each in the file that OCELLUS_EMULATOR_NOTES names.
#pragma once

#include <cstdio>
#include <cstdlib>

// One line at a time, also from several threads and libraries.
inline void note(const char* what, const char* which) {
  const char* const file = std::getenv("OCELLUS_EMULATOR_NOTES");
  std::FILE* const out = file == nullptr ? nullptr : std::fopen(file, "a");
  if (out == nullptr) return;
  std::fprintf(out, "%s %s\n", what, which);
  std::fclose(out);
}
