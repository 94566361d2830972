// A whole launch: blocks come and go until the grid is done. And the C interface, which Python loads.
#pragma once
#include "signals.hpp"

namespace emulator {

// ---- Kernels: the generated source file defines the table, one entry for each name expression.

struct KernelEntry {
  void (*call)(void** parameters);
  unsigned parameter_count;
  const unsigned* parameter_bytes;
};
extern const KernelEntry kernel_table[];

template <size_t... INDICES>
struct Indices {};
template <size_t COUNT, size_t... INDICES>
struct CountIndices : CountIndices<COUNT - 1, COUNT - 1, INDICES...> {};
template <size_t... INDICES>
struct CountIndices<0, INDICES...> {
  using Type = Indices<INDICES...>;
};

// Calls a kernel with parameters as cuLaunchKernel takes them: pointers to the arguments.
template <auto KERNEL>
struct Caller;
template <class... Arguments, void (*KERNEL)(Arguments...)>
struct Caller<KERNEL> {
  template <size_t... INDICES>
  static void unpack([[maybe_unused]] void** parameters, Indices<INDICES...>) {
    KERNEL(*static_cast<Arguments*>(parameters[INDICES])...);
  }
  static constexpr unsigned PARAMETER_BYTES[] = {sizeof(Arguments)..., 0};
  static constexpr KernelEntry entry() { return {call, sizeof...(Arguments), PARAMETER_BYTES}; }
  static void call(void** parameters) { unpack(parameters, typename CountIndices<sizeof...(Arguments)>::Type()); }
};

// ---- The life of a thread

inline void finish_thread() {
  Thread* self = current;
  Warp* warp = self->warp;
  Block* block = self->block;
  if (*reinterpret_cast<uint64_t*>(self->stack) != CANARY) {
    fail("stack_overflow", self->site, "the thread's stack (%u bytes) overflowed", request.stack_bytes);
  }
  if (warp->in_collective) refuse_to_leave_collective("early_exit", "exited", {nullptr, 0});
  warp->live &= ~lane_bit(self);
  warp->ready &= ~lane_bit(self);
  if (--block->live_threads == block->arrived && block->arrived) {
    fail("early_exit", block->barrier_site, "exited while the block's other %u threads wait in __syncthreads",
         block->arrived);
  }
  if (block->live_threads == 0) just_finished[just_finished_count++] = block;
  run_another();
  __builtin_unreachable();
}

inline void thread_main() {
  kernel_entry(request.parameters);
  finish_thread();
}

// ---- The life of a block

inline void admit_block(Block* block, unsigned index) {
  block->index = index;
  block->live_threads = request.block_threads;
  block->arrived = block->pending_count = 0;
  block->started = block->finished = false;
  if (request.cluster_blocks > 1) protect_shared(static_cast<unsigned>(block - slots), PROT_NONE);
  for (unsigned t = 0; t < request.block_threads; t++) {
    Warp* warp = &block->warps[t / WARP_LANES];
    Thread* thread = &block->threads[t];
    thread->warp = warp;
    thread->block = block;
    thread->index = t;
    thread->lane = t % WARP_LANES;
    thread->stack = block->stacks + static_cast<size_t>(t) * request.stack_bytes;
    thread->site = thread->wait_site = {nullptr, 0};
    thread->arrived_at_cluster = false;
    thread->waited_for_launch_before = false;
    thread->waiting = Waiting::nothing;
    *reinterpret_cast<uint64_t*>(thread->stack) = CANARY;
    prepare_context(&thread->context, thread->stack + sizeof CANARY * 2, request.stack_bytes - sizeof CANARY * 2,
                    thread_main);
    if (thread->lane == 0) {
      warp->block = block;
      warp->lanes = thread;
      warp->live = warp->in_collective = warp->at_grid_barrier = warp->at_cluster_barrier = 0;
      warp->queued = false;
      warp->priority = random_number();
    }
    warp->live |= lane_bit(thread);
  }
  for (unsigned i = 0; i < warps_per_block; i++) block->warps[i].ready = block->warps[i].live;
  enqueue_ready_warps(block);
}

inline void start_block(Block* block) {
  block->started = true;
  if (request.cluster_blocks > 1) protect_shared(static_cast<unsigned>(block - slots), PROT_READ | PROT_WRITE);
  poison_shared(block);
}

inline void dispatch_cluster(Cluster* cluster, unsigned position) {
  const unsigned size = request.cluster_blocks;
  const unsigned first = size * (dispatch_order ? dispatch_order[position] : position);
  *cluster = {&slots[(cluster - clusters) * size], 0, 0, size};
  for (unsigned rank = size; rank-- > 0;) admit_block(&cluster->blocks[rank], first + rank);
}

inline void dispatch_next_cluster(Cluster* cluster) {
  if (blocks_dispatched == request.grid_blocks) return;
  dispatch_cluster(cluster, blocks_dispatched / request.cluster_blocks);
  blocks_dispatched += request.cluster_blocks;
}

inline void retire_block(Block* block) {
  make_all_visible(block);
  check_shared_margins(*block);
  block->finished = true;
  if (request.cluster_blocks > 1) protect_shared(static_cast<unsigned>(block - slots), PROT_NONE);
  blocks_finished++;
  statistics.blocks++;
  if (--block->cluster->live_blocks == 0) dispatch_next_cluster(block->cluster);
}

inline void shuffle_dispatch_order() {
  const unsigned count = request.grid_blocks / request.cluster_blocks;
  for (unsigned i = 0; i < count; i++) {
    const unsigned other = random_below(i + 1);
    dispatch_order[i] = dispatch_order[other];
    dispatch_order[other] = i;
  }
}

// ---- The grid

inline void fill_device() {
  if (dispatch_order) shuffle_dispatch_order();
  // The last first: the stack of runnable warps then hands out block 0 first.
  const unsigned count = request.resident_blocks / request.cluster_blocks;
  for (unsigned i = count; i-- > 0;) dispatch_cluster(&clusters[i], i);
  blocks_dispatched = count * request.cluster_blocks;
}

// Every warp waits: a predicate may hold by now, or once the delayed stores have arrived, as they do in the end.
inline bool wake_spinners() {
  if (poll_spinners()) return true;
  for (unsigned s = 0; s < request.resident_blocks; s++) make_all_visible(&slots[s]);
  return poll_spinners();
}

inline void run_grid() {
  fill_device();
  while (blocks_finished < request.grid_blocks) {
    if (request.seed && spinner_count && random_below(8) == 0) poll_spinner(random_below(spinner_count));
    Warp* warp = take_runnable_warp();
    if (!warp) {
      if (!wake_spinners()) fail_with_deadlock();
      continue;
    }
    if (!warp->ready) continue;
    if (!warp->block->started) start_block(warp->block);
    run_warp(warp);
    while (just_finished_count) retire_block(just_finished[--just_finished_count]);
  }
  check_buffer_margins();
}

inline void reset(const LaunchRequest& requested) {
  request = requested;
  statistics = {};
  memset(&finding, 0, sizeof finding);
  finding.block = finding.thread = -1;
  kernel_entry = kernel_table[request.kernel].call;
  warps_per_block = (request.block_threads + WARP_LANES - 1) / WARP_LANES;
  grid_dimension.x = request.grid_blocks;
  block_dimension.x = request.block_threads;
  blocks_finished = blocks_dispatched = threads_at_grid_barrier = 0;
  runnable_count = spinner_count = just_finished_count = 0;
  current = nullptr;
  last_buffer = nullptr;
  polling = overlaps_earlier_launch = false;
  for (uint64_t i = 0; i < request.buffer_count; i++)
    overlaps_earlier_launch |= request.buffers[i].earlier_launches != 0;
  seed_random(request.seed);
}

}  // namespace emulator

#define EMULATOR_API extern "C" __attribute__((visibility("default")))

EMULATOR_API unsigned emulator_parameter_count(unsigned kernel) {
  return emulator::kernel_table[kernel].parameter_count;
}
EMULATOR_API unsigned emulator_parameter_bytes(unsigned kernel, unsigned position) {
  return emulator::kernel_table[kernel].parameter_bytes[position];
}

EMULATOR_API uint64_t emulator_workspace_bytes(const emulator::LaunchRequest* requested) {
  emulator::reset(*requested);
  return emulator::lay_out_workspace(0);
}

enum { LAUNCH_COMPLETED = 0, LAUNCH_FAILED = 1, WORKSPACE_REFUSED = 2 };

EMULATOR_API int emulator_launch(const emulator::LaunchRequest* requested, emulator::LaunchStatistics* statistics,
                                 emulator::Finding* finding) {
  emulator::reset(*requested);
  if (!emulator::prepare_workspace()) return WORKSPACE_REFUSED;
  emulator::take_signals();
  static int outcome;  // static, because the jump forgets what registers held
  outcome = LAUNCH_FAILED;
  if (_setjmp(emulator::end_of_launch) == 0) {
    emulator::run_grid();
    outcome = LAUNCH_COMPLETED;
  }
  emulator::give_signals_back();
  *statistics = emulator::statistics;
  *finding = emulator::finding;
  return outcome;
}
