// A finding: what is wrong with a kernel, and where. The first one ends the launch.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include "state.hpp"

namespace emulator {

constexpr unsigned WAIT_GROUPS = 16;

// A group of threads that wait at one place.
struct Wait {
  const char* what;
  const char* file;
  int line;
  unsigned threads, blocks, first_block, last_block;
};

struct Finding {
  const char* detector;
  const char* file;
  int line;
  int from_signal;        // file and line are then only the last place where the thread was known to be
  int64_t block, thread;  // -1 where no single one is to blame
  uint64_t code_offset;   // of the faulting instruction in the shared object, 0 where unknown
  unsigned blocks_finished, blocks_resident, blocks_never_started;
  unsigned wait_count;
  Wait waits[WAIT_GROUPS];
  char message[1024];
};

static Finding finding;
static jmp_buf end_of_launch;

// Abandons every stack: kernels hold nothing that needs a destructor, and the next launch sets up all state anew.
[[noreturn]] inline void end_launch() { _longjmp(end_of_launch, 1); }

// The running thread did something wrong at site.
[[noreturn]] __attribute__((format(printf, 3, 4), noinline, cold)) inline void fail(const char* detector, Site site,
                                                                                    const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(finding.message, sizeof finding.message, format, arguments);
  va_end(arguments);
  finding.detector = detector;
  finding.file = site.file;
  finding.line = site.line;
  if (current) {
    finding.block = current->block->index;
    finding.thread = current->index;
  }
  end_launch();
}

inline const char* name_of(Waiting waiting) {
  switch (waiting) {
    case Waiting::block_barrier:
      return "__syncthreads";
    case Waiting::warp_collective:
      return "warp collective";
    case Waiting::grid_barrier:
      return "grid barrier";
    case Waiting::cluster_barrier:
      return "cluster barrier";
    case Waiting::spin:
      return "spin_until";
    case Waiting::nothing:
      break;
  }
  return "nothing";
}

// The group of threads that wait for this at this site; a new one, or null where there is no room for it.
inline Wait* wait_group(const char* what, Site site, unsigned block) {
  for (unsigned i = 0; i < finding.wait_count; i++) {
    Wait& wait = finding.waits[i];
    if (wait.what == what && same_site({wait.file, wait.line}, site)) return &wait;
  }
  if (finding.wait_count == WAIT_GROUPS) return nullptr;
  Wait& wait = finding.waits[finding.wait_count++];
  wait = {what, site.file, site.line, 0, 0, block, block};
  return &wait;
}

inline void add_waits_of(const Block& block) {
  bool counted[WAIT_GROUPS] = {};  // in that group, this block
  for (unsigned t = 0; t < request.block_threads; t++) {
    const Thread& thread = block.threads[t];
    if (!(thread.warp->live & lane_bit(&thread))) continue;
    Wait* wait = wait_group(name_of(thread.waiting), thread.wait_site, block.index);
    if (!wait) continue;
    wait->threads++;
    bool& in_group = counted[wait - finding.waits];
    if (!in_group) wait->blocks++;
    in_group = true;
    if (block.index < wait->first_block) wait->first_block = block.index;
    if (block.index > wait->last_block) wait->last_block = block.index;
  }
}

// Nothing can run and no predicate will ever change.
[[noreturn]] inline void fail_with_deadlock() {
  current = nullptr;
  finding.blocks_finished = blocks_finished;
  finding.blocks_never_started = request.grid_blocks - blocks_dispatched;
  for (unsigned s = 0; s < request.resident_blocks; s++) {
    const Block& block = slots[s];
    if (!block_is_live(block)) continue;
    finding.blocks_resident++;
    add_waits_of(block);
  }
  const Wait& first = finding.waits[0];
  fail("deadlock", {first.file, first.line},
       "%u of %u blocks finished, %u are resident and wait (room for %u), %u never started", blocks_finished,
       request.grid_blocks, finding.blocks_resident, request.resident_blocks, finding.blocks_never_started);
}

}  // namespace emulator
