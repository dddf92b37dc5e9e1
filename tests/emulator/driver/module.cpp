#include "driver/module.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <vector>

#include "driver/memory.hpp"
#include "driver/stream.hpp"
#include "machine/settings.hpp"

namespace emulator {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine64 = EM_X86_64;
#else
constexpr Elf64_Half kMachine64 = EM_AARCH64;
#endif

struct LoadedModule {
  std::shared_ptr<Module> module;
  std::map<std::string, CUfunction> functions;
  std::vector<void*> variables;
};

struct Modules {
  std::mutex mutex;
  std::map<Module*, LoadedModule> loaded;
  std::map<Function*, std::shared_ptr<Function>> functions;
};
Modules& modules() {
  static auto* const all = new Modules;
  return *all;
}

// An image comes without its length; the linker puts the table of sections last.
CUresult image_bytes(const void* image, size_t* bytes) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header.e_ident);
  REQUIRE(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0, CUDA_ERROR_INVALID_IMAGE);
  std::memcpy(&header, image, sizeof header);
  REQUIRE(header.e_machine == kMachine64, CUDA_ERROR_NO_BINARY_FOR_GPU);
  *bytes = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  return CUDA_SUCCESS;
}

// Each load gets a file of its own, whose name is never used again: the loader would take an equal name, or the same
// file, for what it has already.
void* open_library(const void* image, size_t bytes) {
  static std::atomic<unsigned long long> number{0};
  const std::string name = "ocellus-module-" + std::to_string(getpid()) + "-" + std::to_string(number++) + ".so";
  const std::filesystem::path path = std::filesystem::temp_directory_path() / name;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  if (file < 0) {
    std::fprintf(stderr, "emulator: %s cannot be written\n", path.c_str());
    return nullptr;
  }
  const auto* from = static_cast<const char*>(image);
  size_t written = 0;
  while (written < bytes) {
    const ssize_t now = write(file, from + written, bytes - written);
    if (now <= 0) break;
    written += static_cast<size_t>(now);
  }
  close(file);
  void* const library = written == bytes ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) std::fprintf(stderr, "emulator: a module cannot be loaded: %s\n", written == bytes ? dlerror() : "the disk is full");
  unlink(path.c_str());
  return library;
}

}  // namespace

Module::~Module() {
  if (library != nullptr) dlclose(library);
}

std::shared_ptr<Function> find_function(CUfunction handle) {
  const std::lock_guard<std::mutex> lock(modules().mutex);
  const auto at = modules().functions.find(handle);
  return at == modules().functions.end() ? nullptr : at->second;
}

}  // namespace emulator

using namespace emulator;

EXPORT CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  CHECK(ready(Call::kLoad));
  REQUIRE(handle != nullptr && image != nullptr, CUDA_ERROR_INVALID_VALUE);
  size_t bytes = 0;
  CHECK(image_bytes(image, &bytes));
  const auto module = std::make_shared<Module>();
  module->library = open_library(image, bytes);
  REQUIRE(module->library != nullptr, CUDA_ERROR_INVALID_IMAGE);
  module->image = static_cast<const Image*>(dlsym(module->library, "emulator_image"));
  REQUIRE(module->image != nullptr && module->image->abi_version == kAbiVersion, CUDA_ERROR_INVALID_IMAGE);
  // As a real cubin: for this generation, and not for a later member of it.
  const unsigned wanted = module->image->compute_capability, own = settings().compute_capability;
  REQUIRE(wanted / 10 == own / 10 && wanted <= own, CUDA_ERROR_NO_BINARY_FOR_GPU);
  module->image->bind(&kMachine);
  // Which of several kernels uses what of it is not known.
  if (module->image->kernel_count == 1) module->static_shared_bytes = static_shared_bytes(*module->image);
  const std::lock_guard<std::mutex> lock(modules().mutex);
  modules().loaded[module.get()].module = module;
  *handle = module.get();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned, int*, void**) { return cuModuleLoadData(handle, image); }
EXPORT CUresult cuModuleLoadFatBinary(CUmodule* handle, const void* image) { return cuModuleLoadData(handle, image); }

EXPORT CUresult cuModuleLoad(CUmodule* handle, const char* path) {
  REQUIRE(path != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good(), CUDA_ERROR_NOT_FOUND);
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE(text.str().size() >= sizeof(Elf64_Ehdr), CUDA_ERROR_INVALID_IMAGE);
  return cuModuleLoadData(handle, text.str().data());
}

EXPORT CUresult cuModuleUnload(CUmodule handle) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(modules().mutex);
  const auto at = modules().loaded.find(handle);
  REQUIRE(at != modules().loaded.end(), CUDA_ERROR_INVALID_HANDLE);
  for (const auto& [name, function] : at->second.functions) {
    // Besides the table here only launches and graphs hold a function.
    if (modules().functions.at(function).use_count() == 1) continue;
    std::fprintf(stderr, "emulator: a module is unloaded while its kernel %s is under way or part of a graph\n", name.c_str());
    std::abort();
  }
  for (const auto& [name, function] : at->second.functions) modules().functions.erase(function);
  for (void* variable : at->second.variables) memory().unregister(variable);
  modules().loaded.erase(at);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  CHECK(ready());
  REQUIRE(function != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
  const std::lock_guard<std::mutex> lock(modules().mutex);
  const auto at = modules().loaded.find(handle);
  REQUIRE(at != modules().loaded.end(), CUDA_ERROR_INVALID_HANDLE);
  auto& [module, functions, variables] = at->second;
  if (const auto known = functions.find(name); known != functions.end()) {
    *function = known->second;
    return CUDA_SUCCESS;
  }
  for (unsigned i = 0; i < module->image->kernel_count; ++i) {
    const Kernel& kernel = module->image->kernels[i];
    if (std::strcmp(kernel.name, name) != 0) continue;
    const auto made = std::make_shared<Function>();
    made->kernel = &kernel;
    made->module = module;
    modules().functions[made.get()] = made;
    functions[name] = made.get();
    *function = made.get();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  CHECK(ready());
  const std::lock_guard<std::mutex> lock(modules().mutex);
  const auto at = modules().loaded.find(handle);
  REQUIRE(at != modules().loaded.end(), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(count != nullptr, CUDA_ERROR_INVALID_VALUE);
  *count = at->second.module->image->kernel_count;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  CHECK(ready());
  REQUIRE(name != nullptr, CUDA_ERROR_INVALID_VALUE);
  const std::lock_guard<std::mutex> lock(modules().mutex);
  const auto at = modules().loaded.find(handle);
  REQUIRE(at != modules().loaded.end(), CUDA_ERROR_INVALID_HANDLE);
  void* const variable = dlsym(at->second.module->library, name);
  REQUIRE(variable != nullptr, CUDA_ERROR_NOT_FOUND);
  Dl_info info;
  Elf64_Sym* symbol = nullptr;
  REQUIRE(dladdr1(variable, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) != 0 && symbol != nullptr,
          CUDA_ERROR_NOT_FOUND);
  if (memory().register_range(variable, symbol->st_size, MemoryKind::kModule, 0)) at->second.variables.push_back(variable);
  if (address != nullptr) *address = reinterpret_cast<CUdeviceptr>(variable);
  if (bytes != nullptr) *bytes = symbol->st_size;
  return CUDA_SUCCESS;
}

// A library is a module that belongs to no context, a kernel a function of it.
EXPORT CUresult cuLibraryLoadData(CUmodule* library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  return cuModuleLoadData(library, code);
}
EXPORT CUresult cuLibraryGetModule(CUmodule* module, CUmodule library) {
  REQUIRE(module != nullptr, CUDA_ERROR_INVALID_VALUE);
  *module = library;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLibraryGetKernel(CUfunction* kernel, CUmodule library, const char* name) { return cuModuleGetFunction(kernel, library, name); }
EXPORT CUresult cuLibraryUnload(CUmodule library) { return cuModuleUnload(library); }
EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUfunction kernel) {
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(find_function(kernel) != nullptr, CUDA_ERROR_INVALID_HANDLE);
  *function = kernel;
  return CUDA_SUCCESS;
}
