#include "nvrtc/compile.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "embedded.hpp"

extern char** environ;

namespace emulator {
namespace fs = std::filesystem;
namespace {

// Optimised as far as compiles in a fraction of a second.
// - No strict aliasing: CUDA code reads memory through vector types of other element types.
// - No contraction: __fmul_rn and __fadd_rn stay two roundings on CPUs that have a fused form.
// - Locals without a value get a pattern, and what a GPU would fault at, or silently go wrong at, ends the process.
// - Large locals are touched page by page, so that they meet the page below the stack.
// - Nothing of one kernel may be found by another: same names, same templates, other shared arrays.
const char* const kFlags[] = {
    "-std=c++17", "-O1", "-fPIC", "-w", "-pipe", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-math-errno",
    "-fno-strict-aliasing", "-ffp-contract=off", "-fvisibility=hidden", "-fno-gnu-unique", "-fdiagnostics-color=never",
    "-ftrivial-auto-var-init=pattern", "-fstack-clash-protection",
    "-fsanitize=alignment,null,bounds,shift-exponent,signed-integer-overflow,integer-divide-by-zero", "-fno-sanitize-recover=all",
};

// Without C++'s libraries, of which kernels use nothing: half of the linker's time is reading them.
const char* const kLinkFlags[] = {"-shared", "-nostdlib", "-x", "none", "-lm", "-lc"};

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return !file.fail();
}

std::string compiler() {
  const char* const chosen = std::getenv("OCELLUS_EMULATOR_CXX");
  return chosen != nullptr ? chosen : "g++";
}

// A folder of this process's own, gone with the object.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "ocellus-nvrtc-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Runs a command in `folder`; what it says is appended to `log`.
bool run(const std::vector<std::string>& command, const fs::path& folder, std::string& log) {
  const fs::path said = folder / "said";
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    log += "emulator: " + command[0] + " cannot be started: install it, or name another in OCELLUS_EMULATOR_CXX\n";
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  log += read_file(said);
  if (WIFSIGNALED(status)) log += "emulator: " + command[0] + " was killed by signal " + std::to_string(WTERMSIG(status)) + "\n";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// FNV-1a over 128 bits, each part preceded by its length so that no two lists of parts read alike.
class Digest {
 public:
  void add(const std::string& part) {
    add_bytes(std::to_string(part.size()) + ":");
    add_bytes(part);
  }
  std::string hex() const {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(state_ >> 64), static_cast<unsigned long long>(state_));
    return text;
  }

 private:
  using Word = unsigned __int128;
  void add_bytes(const std::string& bytes) {
    constexpr Word kPrime = (Word{1} << 88) + 0x13b;
    for (const char c : bytes) state_ = (state_ ^ static_cast<unsigned char>(c)) * kPrime;
  }
  Word state_ = (Word{0x6c62272e07bb0142ull} << 64) | 0x62b821756295c58dull;
};

std::string key_of(const Source& source) {
  Digest digest;
  for (const auto& [name, text] : kDeviceHeaders) digest.add(text);
  for (const char* flag : kFlags) digest.add(flag);
  for (const char* flag : kLinkFlags) digest.add(flag);
  digest.add(__VERSION__);
  digest.add(compiler());
  digest.add(source.name);
  digest.add(source.text);
  for (const auto& [name, text] : source.headers) {
    digest.add(name);
    digest.add(text);
  }
  digest.add("defines");
  for (const std::string& define : source.defines) digest.add(define);
  digest.add(std::to_string(source.compute_capability));
  return digest.hex();
}

// Empty where there can be none.
fs::path cache_folder() {
  const char* const chosen = std::getenv("OCELLUS_EMULATOR_CACHE");
  const fs::path folder = chosen != nullptr ? fs::path(chosen) : fs::temp_directory_path() / ("ocellus-emulator-" + std::to_string(getuid()));
  std::error_code error;
  fs::create_directories(folder, error);
  // What lies there is executed: it must be nobody else's.
  struct stat status;
  if (stat(folder.c_str(), &status) != 0 || status.st_uid != getuid() || (status.st_mode & S_IWOTH) != 0) return {};
  return folder;
}

// The definitions, for a header of their own: kernels are given names such as P and W, which must not reach the text of
// the emulator's headers.
std::string defines(const Source& source) {
  std::string text;
  for (const std::string& define : source.defines) {
    const size_t equals = define.find('=');
    text += "#define " + define.substr(0, equals) + " " + (equals == std::string::npos ? "1" : define.substr(equals + 1)) + "\n";
  }
  return text;
}

bool put_sources(const Source& source, const fs::path& folder, std::string& log) {
  const auto put = [&](const std::string& name, const std::string& text) {
    const fs::path path = fs::path(name).lexically_normal();
    if (path.is_absolute() || *path.begin() == "..") {
      log += "emulator: " + name + " is not a name inside a folder\n";
      return false;
    }
    std::error_code ignored;
    fs::create_directories((folder / path).parent_path(), ignored);
    return write_file(folder / path, text);
  };
  for (const auto& [name, text] : source.headers) {
    if (name != "ptx.cuh" && !put(name, text)) return false;
  }
  fs::create_directories(folder / "emulator");
  for (const auto& [name, text] : kDeviceHeaders) {
    if (!write_file(folder / (name == std::string("ptx.cuh") ? "" : "emulator") / name, text)) return false;
  }
  return write_file(folder / "emulator" / "defines.hpp", defines(source)) && put(source.name, source.text);
}

Compiled compile_anew(const Source& source) {
  Compiled compiled;
  const Scratch scratch;
  if (scratch.path().empty() || !put_sources(source, scratch.path(), compiled.log)) {
    compiled.log += "emulator: no files can be written to " + fs::temp_directory_path().string() + "\n";
    return compiled;
  }
  std::vector<std::string> command = {compiler(), "-E", "-x", "c++", "-include", "emulator/runtime.hpp", "-include", "emulator/defines.hpp", "-I.",
                                      "-D__CUDA_ARCH__=" + std::to_string(source.compute_capability * 10)};
  command.insert(command.end(), std::begin(kFlags), std::end(kFlags));
  command.insert(command.end(), {source.name, "-o", "kernel.ii"});
  if (!run(command, scratch.path(), compiled.log)) return compiled;

  const std::string text = read_file(scratch.path() / "kernel.ii");
  if (!write_file(scratch.path() / "kernel.ii", text + export_entries(text, source.compute_capability))) return compiled;
  command = {compiler(), "-x", "c++-cpp-output"};
  command.insert(command.end(), std::begin(kFlags), std::end(kFlags));
  command.insert(command.end(), {"kernel.ii", "-o", "kernel.so"});
  command.insert(command.end(), std::begin(kLinkFlags), std::end(kLinkFlags));
  compiled.ok = run(command, scratch.path(), compiled.log);
  if (compiled.ok) compiled.object = read_file(scratch.path() / "kernel.so");
  return compiled;
}

}  // namespace

Compiled compile(const Source& source) {
  const fs::path folder = cache_folder();
  const fs::path entry = folder / (key_of(source) + ".so");
  if (!folder.empty() && fs::exists(entry)) return {true, read_file(entry), ""};
  Compiled compiled = compile_anew(source);
  if (compiled.ok && !folder.empty()) {
    // Renamed into place, so that no other process reads half of it.
    const fs::path partial = entry.string() + "." + std::to_string(getpid()) + "." + std::to_string(reinterpret_cast<uintptr_t>(&compiled));
    std::error_code error;
    if (write_file(partial, compiled.object)) fs::rename(partial, entry, error);
    if (error) fs::remove(partial, error);
  }
  return compiled;
}

}  // namespace emulator
