// The exported functions of libnvrtc, as nvrtc.h declares them.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <cstdlib>
#include <iterator>
#include <thread>

#include "nvrtc/compile.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

enum nvrtcResult {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_INTERNAL_ERROR = 11,
};

struct _nvrtcProgram {
  emulator::Source source;
  emulator::Compiled compiled;
};
using nvrtcProgram = _nvrtcProgram*;

namespace {

constexpr int kArchitectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

// There is no PTX: who asks for it can see that it is none.
constexpr char kPtx[] = "// emulator: no PTX, only objects for this CPU\n";

// The value of an option written as one word, `--name=value`, or null.
const char* value_of(const std::string& option, const char* name) {
  const size_t length = std::strlen(name);
  return option.compare(0, length, name) == 0 ? option.c_str() + length : nullptr;
}

// Takes over definitions and the architecture; what else there is concerns a real compiler only.
bool read_options(int count, const char* const* options, emulator::Source& source, std::string& log) {
  source.defines.clear();
  for (int i = 0; i < count; ++i) {
    const std::string option = options[i];
    const char* value = nullptr;
    if (option.empty() || option[0] != '-') {
      log = "nvrtc: error: unrecognized option " + option + " found\n";
      return false;
    }
    if ((option == "-D" || option == "--define-macro") && i + 1 < count) {
      source.defines.push_back(options[++i]);
    } else if ((value = value_of(option, "--define-macro=")) != nullptr || (value = value_of(option, "-D")) != nullptr) {
      source.defines.push_back(value);
    } else if ((value = value_of(option, "--gpu-architecture=")) != nullptr || (value = value_of(option, "-arch=")) != nullptr) {
      const char* const digits = std::strpbrk(value, "0123456789");
      const int architecture = digits != nullptr ? std::atoi(digits) : 0;
      if (std::find(std::begin(kArchitectures), std::end(kArchitectures), architecture) == std::end(kArchitectures)) {
        log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
        return false;
      }
      source.compute_capability = static_cast<unsigned>(architecture);
    }
  }
  return true;
}

nvrtcResult put(const std::string& bytes, char* to) {
  if (to == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  std::memcpy(to, bytes.data(), bytes.size());
  return NVRTC_SUCCESS;
}

nvrtcResult put_size(size_t size, size_t* to) {
  if (to == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *to = size;
  return NVRTC_SUCCESS;
}

}  // namespace

EXPORT const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_PROGRAM_CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
  }
  return "NVRTC_ERROR unknown";
}

EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  if (count == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *count = static_cast<int>(std::size(kArchitectures));
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetSupportedArchs(int* architectures) {
  if (architectures == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), architectures);
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char* name, int header_count,
                                      const char* const* headers, const char* const* include_names) {
  if (program == nullptr || text == nullptr || header_count < 0) return NVRTC_ERROR_INVALID_INPUT;
  if (header_count > 0 && (headers == nullptr || include_names == nullptr)) return NVRTC_ERROR_INVALID_INPUT;
  auto created = new _nvrtcProgram;
  created->source.name = name != nullptr && *name != '\0' ? name : "default_program";
  created->source.text = text;
  for (int i = 0; i < header_count; ++i) created->source.headers.emplace_back(include_names[i], headers[i]);
  *program = created;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  if (program == nullptr || *program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char* const* options) {
  if (program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  program->compiled = {};
  if (const char* const delay = std::getenv("OCELLUS_EMULATOR_COMPILE_MS")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::strtoull(delay, nullptr, 10)));
  }
  if (!read_options(option_count, options, program->source, program->compiled.log)) return NVRTC_ERROR_INVALID_OPTION;
  program->compiled = emulator::compile(program->source);
  return program->compiled.ok ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  if (program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  return put_size(program->compiled.log.size() + 1, size);
}

EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  if (program == nullptr) return NVRTC_ERROR_INVALID_PROGRAM;
  return put(program->compiled.log + '\0', log);
}

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  if (program == nullptr || !program->compiled.ok) return NVRTC_ERROR_INVALID_PROGRAM;
  return put_size(program->compiled.object.size(), size);
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* object) {
  if (program == nullptr || !program->compiled.ok) return NVRTC_ERROR_INVALID_PROGRAM;
  return put(program->compiled.object, object);
}

EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  if (program == nullptr || !program->compiled.ok) return NVRTC_ERROR_INVALID_PROGRAM;
  return put_size(sizeof kPtx, size);
}

EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
  if (program == nullptr || !program->compiled.ok) return NVRTC_ERROR_INVALID_PROGRAM;
  return put(std::string(kPtx, sizeof kPtx), ptx);
}
