// Changing from one stack to another, the only part that knows the processor.
#pragma once
#include <cstddef>

namespace emulator {

// EMULATOR_UCONTEXT builds what other processors use here as well, to test it.
#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)

// A suspended computation: its stack pointer, with what a call must preserve on that stack.
struct Context {
  void* stack_pointer = nullptr;
};

extern "C" void emulator_switch(Context* from, const Context* to);

inline void switch_context(Context& from, Context& to) { emulator_switch(&from, &to); }

// Makes a context that calls `entry`, which must not return.
inline void prepare_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
  // `entry` is returned to, so it finds the stack as after a call: eight bytes beside a multiple of 16.
  void** top = reinterpret_cast<void**>(static_cast<char*>(stack) + bytes) - 2;
  *top = reinterpret_cast<void*>(entry);
  context.stack_pointer = top - 6;
}

#else

}  // namespace emulator
#include <ucontext.h>
namespace emulator {

using Context = ucontext_t;

inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

inline void prepare_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}

#endif

}  // namespace emulator
