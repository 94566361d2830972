// Which thread runs next. Only waiting makes a thread give way, so that a run repeats exactly from its seed.
//
// Seed 0 runs depth first: a warp as far as it goes, then the next. Every other seed explores: a random or a
// prioritised warp, a random first lane, and now and then another warp where memory is shared.
#pragma once
#include "findings.hpp"
#include "state.hpp"

namespace emulator {

static Warp** runnable;  // a stack
static unsigned runnable_count;
static Thread** spinners;
static unsigned spinner_count;
static Block** just_finished;
static unsigned just_finished_count;

inline void enqueue(Warp* warp) {
  if (warp->queued) return;
  warp->queued = true;
  runnable[runnable_count++] = warp;
}

// Higher warps first: the stack hands them out in ascending order.
inline void enqueue_ready_warps(Block* block, const Warp* except = nullptr) {
  for (unsigned i = warps_per_block; i-- > 0;) {
    Warp* warp = &block->warps[i];
    if (warp->ready && warp != except) enqueue(warp);
  }
}

inline void switch_to_scheduler() {
  statistics.switches++;
  switch_context(&current->context, &scheduler_context);
}

// The running thread has stopped: go on with another lane of its warp, or let the scheduler choose.
__attribute__((noinline)) inline void run_another() {
  Thread* self = current;
  Warp* warp = self->warp;
  if (!warp->ready) return switch_to_scheduler();
  const LaneMask later = warp->ready & ~((lane_bit(self) << 1) - 1);
  Thread* next = &warp->lanes[__builtin_ctz(later ? later : warp->ready)];
  if (next == self) return;
  statistics.switches++;
  make_current(next);
  switch_context(&self->context, &next->context);
}

// The running thread waits until somebody sets its bit in warp->ready again.
inline void wait_for(Waiting waiting, Site site) {
  Thread* self = current;
  self->warp->ready &= ~lane_bit(self);
  self->waiting = waiting;
  self->wait_site = site;
  run_another();
}

// A place where another warp could matter. Seeds other than 0 switch there once in so many times.
__attribute__((noinline)) inline void preempt() {
  enqueue(current->warp);
  switch_to_scheduler();
}
inline void maybe_preempt(unsigned once_in) {
  if (__builtin_expect(request.seed != 0, 0) && !polling && random_below(once_in) == 0) preempt();
}

// ---- Spinning: the scheduler evaluates predicates without switching, and only when nothing else can run. That is
// what makes a deadlock certain: no warp can run, every predicate is false, and nobody is left to change that.

template <class Predicate>
bool evaluate(void* predicate) {
  polling = true;
  const bool holds = (*static_cast<Predicate*>(predicate))();
  polling = false;
  return holds;
}

// A predicate only looks: the scheduler may call it at any time, as often as it likes.
inline void refuse_in_predicate(const char* what, Site site) {
  if (__builtin_expect(polling, 0)) fail("impure_predicate", site, "%s inside a predicate of spin_until", what);
}

template <class Predicate>
void spin_until(Predicate& predicate, Site site) {
  refuse_in_predicate("spin_until", site);
  maybe_preempt(2);
  if (evaluate<Predicate>(&predicate)) return;
  current->predicate = evaluate<Predicate>;
  current->predicate_state = &predicate;
  spinners[spinner_count++] = current;
  wait_for(Waiting::spin, site);
}

inline bool poll_spinner(unsigned position) {
  Thread* thread = spinners[position];
  statistics.polls++;
  make_current(thread);  // the predicate may ask for threadIdx, and a fault in it is this thread's
  const bool holds = thread->predicate(thread->predicate_state);
  current = nullptr;
  if (!holds) return false;
  spinners[position] = spinners[--spinner_count];
  thread->warp->ready |= lane_bit(thread);
  enqueue(thread->warp);
  return true;
}

inline bool poll_spinners() {
  bool any = false;
  for (unsigned i = spinner_count; i-- > 0;) any |= poll_spinner(i);
  return any;
}

// ---- The choice

inline unsigned highest_priority(bool of_block) {
  constexpr unsigned LOOKED_AT = 64;
  const unsigned candidates = runnable_count < LOOKED_AT ? runnable_count : LOOKED_AT, from = random_number();
  unsigned chosen = from % runnable_count, highest = 0;
  for (unsigned i = 0; i < candidates; i++) {
    const unsigned position = (from + i) % runnable_count;
    const Warp* warp = runnable[position];
    const unsigned priority = (of_block ? warp->block->warps : warp)->priority;
    if (priority < highest) continue;
    highest = priority;
    chosen = position;
  }
  if (random_below(256) == 0) runnable[chosen]->priority = random_number();
  return chosen;
}

inline Warp* take_runnable_warp() {
  if (runnable_count == 0) return nullptr;
  unsigned position = runnable_count - 1;
  if (request.seed != 0) {
    const unsigned strategy = request.seed % 3;
    position = strategy == 0 ? random_below(runnable_count) : highest_priority(strategy == 2);
  }
  Warp* warp = runnable[position];
  runnable[position] = runnable[--runnable_count];
  warp->queued = false;
  return warp;
}

// Runs a warp until none of its lanes can go on, or until one is preempted.
inline void run_warp(Warp* warp) {
  const unsigned from = request.seed ? random_below(WARP_LANES) : 0;
  const LaneMask later = warp->ready & (~LaneMask{0} << from);
  Thread* next = &warp->lanes[__builtin_ctz(later ? later : warp->ready)];
  statistics.switches++;
  make_current(next);
  switch_context(&scheduler_context, &next->context);
  current = nullptr;
}

}  // namespace emulator
