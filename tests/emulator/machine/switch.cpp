#include "machine/switch.hpp"

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
// The registers that a called function must preserve; all others are dead across this call. The floating-point control
// words are the same in every context, since neither kernels nor the machine change them.
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, .-emulator_switch
)");
#endif
