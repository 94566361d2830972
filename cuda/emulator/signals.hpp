// Hardware faults and the time limit. The handlers stand only while a launch runs; afterwards the process has its
// own back.
#pragma once
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "workspace.hpp"

// Given by the linker: where the shared object begins in memory.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];

namespace emulator {

constexpr int TIME_LIMIT_SIGNAL = SIGVTALRM;
constexpr int HANDLED_SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, TIME_LIMIT_SIGNAL};
constexpr int HANDLED_COUNT = sizeof HANDLED_SIGNALS / sizeof HANDLED_SIGNALS[0];

static struct sigaction previous_actions[HANDLED_COUNT];
static sigset_t previous_mask;
static stack_t previous_stack;
static timer_t time_limit_timer;
static bool time_is_limited;
static volatile sig_atomic_t launch_running;
static pid_t launch_thread;

inline pid_t system_thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// Where the machine was, as an offset in the shared object; addr2line turns it into a line.
inline uint64_t code_offset(const ucontext_t& machine) {
#if defined(__x86_64__)
  const auto at = static_cast<uintptr_t>(machine.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  const auto at = static_cast<uintptr_t>(machine.uc_mcontext.pc);
#else
  (void)machine;
  const uintptr_t at = 0;
#endif
  const auto begin = reinterpret_cast<uintptr_t>(__ehdr_start);
  return at > begin ? at - begin : 0;
}

inline const char* access_of(const ucontext_t& machine) {
#if defined(__x86_64__)
  return machine.uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#else
  (void)machine;
  return "access";
#endif
}

[[noreturn]] inline void fail_in_slot(unsigned slot, const char* address, const char* access, Site site) {
  const Block& block = slots[slot];
  if (address < block.stacks) fail("stack_overflow", site, "%s below the stacks of block %u", access, block.index);
  if (address >= shared_pages_begin(slot) && address < shared_pages_end(slot)) {
    fail("cluster_lifetime", site, "%s of the shared memory of block %u, which has %s", access, block.index,
         block.finished ? "left" : "not started");
  }
  fail("out_of_bounds_shared", site, "%s at byte %td of the shared memory of block %u (%u bytes)", access,
       address - block.shared, block.index, request.shared_bytes);
}

[[noreturn]] inline void fail_at_address(const char* address, const char* access, Site site) {
  for (unsigned t = 0; current && t < request.block_threads; t++) {  // a spoilt stack explains all that follows
    const Thread& thread = current->block->threads[t];
    if (*reinterpret_cast<const uint64_t*>(thread.stack) == CANARY) continue;
    fail("stack_overflow", site, "the stack of thread %u (%u bytes) overflowed", thread.index, request.stack_bytes);
  }
  const char* first_slot = slot_begin(0);
  if (address >= first_slot && address < slot_begin(layout.slots)) {
    fail_in_slot(static_cast<unsigned>(static_cast<size_t>(address - first_slot) / layout.slot_bytes), address, access,
                 site);
  }
  if (const Buffer* buffer = buffer_around(address)) {
    fail("out_of_bounds_global", site, "%s at byte %td of global buffer %s (%llu bytes)", access,
         address - buffer->begin, buffer->name, static_cast<unsigned long long>(buffer->bytes));
  }
  fail("out_of_bounds_global", site, "%s at address %p, which belongs to no buffer", access,
       static_cast<const void*>(address));
}

inline void on_signal(int number, siginfo_t* information, void* context) {
  if (!launch_running || system_thread_id() != launch_thread) {
    // Not ours: another thread of the process faulted, and does it again under the handler it is used to.
    for (int i = 0; i < HANDLED_COUNT; i++) {
      if (HANDLED_SIGNALS[i] == number && number != TIME_LIMIT_SIGNAL) sigaction(number, &previous_actions[i], nullptr);
    }
    return;
  }
  const auto& machine = *static_cast<const ucontext_t*>(context);
  const Site site = current ? current->site : Site{nullptr, 0};
  finding.from_signal = 1;
  finding.code_offset = code_offset(machine);
  switch (number) {
    case TIME_LIMIT_SIGNAL:
      fail("endless_loop", site, "still running after %.3g s (a loop that waits without spin_until?)",
           request.time_limit_s);
    case SIGFPE:
      fail("arithmetic_fault", site, "an integer division by zero, or one that overflows");
    case SIGILL:
    case SIGTRAP:
      fail("undefined_behaviour", site, "a check of the undefined behaviour sanitizer failed");
    default:
      fail_at_address(static_cast<const char*>(information->si_addr), access_of(machine), site);
  }
}

// All other signals wait until the launch is over: their handlers would run on the small stacks of the threads.
inline void take_signals() {
  static char alternate_stack[65536];
  stack_t stack = {};
  stack.ss_sp = alternate_stack;
  stack.ss_size = sizeof alternate_stack;
  sigaltstack(&stack, &previous_stack);

  sigset_t blocked;
  sigfillset(&blocked);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // the handler jumps away and does not return
  for (int i = 0; i < HANDLED_COUNT; i++) {
    sigaction(HANDLED_SIGNALS[i], &action, &previous_actions[i]);
    sigdelset(&blocked, HANDLED_SIGNALS[i]);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &previous_mask);
  launch_thread = system_thread_id();
  launch_running = 1;

  // The limit counts the processor time of this thread, and interrupts no other.
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = TIME_LIMIT_SIGNAL;
#if defined(sigev_notify_thread_id)
  event.sigev_notify_thread_id = launch_thread;
#else
  event._sigev_un._tid = launch_thread;
#endif
  time_is_limited = request.time_limit_s > 0 && timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &time_limit_timer) == 0;
  if (!time_is_limited) return;
  itimerspec limit = {};
  limit.it_value.tv_sec = static_cast<time_t>(request.time_limit_s);
  limit.it_value.tv_nsec = static_cast<long>((request.time_limit_s - static_cast<double>(limit.it_value.tv_sec)) * 1e9);
  timer_settime(time_limit_timer, 0, &limit, nullptr);
}

inline void give_signals_back() {
  launch_running = 0;
  if (time_is_limited) timer_delete(time_limit_timer);
  for (int i = 0; i < HANDLED_COUNT; i++) sigaction(HANDLED_SIGNALS[i], &previous_actions[i], nullptr);
  sigaltstack(&previous_stack, nullptr);
  pthread_sigmask(SIG_SETMASK, &previous_mask, nullptr);
}

}  // namespace emulator
