// Leaving one stack and going on with another.
//
// A hand-written switch saves the registers that a call must preserve, and nothing else. The portable fallback is
// ucontext, which is 10 to 40 times slower because it also saves the signal mask, with a system call.
#pragma once
#include <stddef.h>
#include <stdint.h>

#if !defined(EMULATOR_PORTABLE_SWITCH) && !defined(__x86_64__) && !defined(__aarch64__)
#define EMULATOR_PORTABLE_SWITCH
#endif

#if defined(EMULATOR_PORTABLE_SWITCH)
#include <ucontext.h>

namespace emulator {
using Context = ucontext_t;

inline void switch_context(Context* from, Context* to) { swapcontext(from, to); }

inline void prepare_context(Context* context, char* stack, size_t stack_bytes, void (*entry)()) {
  getcontext(context);
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = stack_bytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
}
}  // namespace emulator

#else

// Pushes the preserved registers, stores the stack pointer in *from, and does the reverse with the other stack.
extern "C" __attribute__((visibility("hidden"))) void emulator_switch_stack(void** from, void* to);

namespace emulator {
struct Context {
  void* stack_pointer;
};
inline void switch_context(Context* from, Context* to) {
  emulator_switch_stack(&from->stack_pointer, to->stack_pointer);
}
}  // namespace emulator

#if defined(__x86_64__)
asm(R"(
.pushsection .text
.hidden emulator_switch_stack
.globl emulator_switch_stack
.type emulator_switch_stack, @function
.p2align 4
emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch_stack, . - emulator_switch_stack
.popsection
)");

namespace emulator {
// The first switch pops six registers and returns into entry, which finds the stack as a call leaves it.
inline void prepare_context(Context* context, char* stack, size_t stack_bytes, void (*entry)()) {
  constexpr int REGISTERS = 6;
  void** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + stack_bytes) & ~uintptr_t{15});
  *--top = nullptr;  // the caller, to which entry never returns
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < REGISTERS; i++) *--top = nullptr;
  context->stack_pointer = top;
}
}  // namespace emulator

#else  // aarch64
asm(R"(
.pushsection .text
.hidden emulator_switch_stack
.globl emulator_switch_stack
.type emulator_switch_stack, %function
.p2align 4
emulator_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emulator_switch_stack, . - emulator_switch_stack
.popsection
)");

namespace emulator {
// The first switch loads twenty registers; entry is the return address, x30.
inline void prepare_context(Context* context, char* stack, size_t stack_bytes, void (*entry)()) {
  constexpr int REGISTERS = 20, RETURN_ADDRESS = 11;
  void** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + stack_bytes) & ~uintptr_t{15});
  top -= REGISTERS;
  for (int i = 0; i < REGISTERS; i++) top[i] = nullptr;
  top[RETURN_ADDRESS] = reinterpret_cast<void*>(entry);
  context->stack_pointer = top;
}
}  // namespace emulator
#endif
#endif
