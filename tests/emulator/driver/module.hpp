// Loaded objects of kernels.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "driver/api.hpp"
#include "driver/context.hpp"
#include "machine/launch.hpp"

namespace emulator {

struct Function {
  const Kernel* kernel;
  std::shared_ptr<Module> module;
  // What the attributes allow; cuFuncSetAttribute raises it.
  int max_dynamic_shared_bytes = kDefaultSharedBytes;
};

// Unloaded when the last launch that was asked for has run.
struct Module {
  void* library = nullptr;
  const Image* image = nullptr;
  // Of a module with one kernel, else 0.
  unsigned static_shared_bytes = 0;
  int gpu = current_gpu();
  Module() = default;
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
};

// The function of a live handle, else null.
std::shared_ptr<Function> find_function(CUfunction handle);

}  // namespace emulator
