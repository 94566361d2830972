// What threads do together: the block's barrier, the grid's barrier, and collectives of a warp.
#pragma once
#include "scheduler.hpp"

namespace emulator {

// ---- Collectives of a warp

enum class Operation : uint8_t { shuffle, ballot, synchronise };

inline const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::shuffle:
      return "shuffle";
    case Operation::ballot:
      return "ballot";
    case Operation::synchronise:
      return "__syncwarp";
  }
  return "";
}

__attribute__((noinline, cold)) inline void fail_for_mask(LaneMask mask, Site site) {
  if (!(mask & lane_bit(current))) fail("divergent_warp", site, "mask %08x does not hold the calling lane", mask);
  fail("early_exit", site, "mask %08x names lanes %08x, which have exited", mask, mask & ~current->warp->live);
}

__attribute__((noinline, cold)) inline void fail_for_divergence(unsigned other, Operation operation, LaneMask mask,
                                                                Site site) {
  const Warp& warp = *current->warp;
  const Thread& waiting = warp.lanes[other];
  fail("divergent_warp", site, "%s with mask %08x, while thread %u waits for it in %s with mask %08x at %s:%d",
       name_of(operation), mask, waiting.index, name_of(static_cast<Operation>(warp.operation[other])),
       warp.mask[other], waiting.wait_site.file, waiting.wait_site.line);
}

// The last lane to come computes the result of every lane, before any of them can come to the next collective.
inline void complete_collective(Warp* warp, Operation operation, LaneMask mask, Site site) {
  uint64_t ballot = 0;
  if (operation == Operation::ballot) {
    for (unsigned lane = 0; lane < WARP_LANES; lane++) {
      if (mask >> lane & 1 && warp->contribution[lane]) ballot |= uint64_t{1} << lane;
    }
  }
  for (unsigned lane = 0; lane < WARP_LANES; lane++) {
    if (!(mask >> lane & 1)) continue;
    const unsigned source = warp->source_lane[lane];
    if (operation == Operation::shuffle && !(mask >> source & 1)) {
      fail("divergent_warp", site, "lane %u reads lane %u, which is not in mask %08x", lane, source, mask);
    }
    warp->result[lane] = operation == Operation::ballot ? ballot : warp->contribution[source];
  }
  warp->in_collective &= ~mask;
  warp->ready |= mask;
}

inline uint64_t converge(Operation operation, LaneMask mask, uint64_t contribution, unsigned source_lane, Site site) {
  refuse_in_predicate(name_of(operation), site);
  Thread* self = current;
  Warp* warp = self->warp;
  const LaneMask own = lane_bit(self);
  if (__builtin_expect(!(mask & own) || (mask & ~warp->live), 0)) fail_for_mask(mask, site);
  if (const LaneMask there = warp->in_collective & mask) {
    const unsigned other = __builtin_ctz(there);
    const bool same = warp->mask[other] == mask && warp->operation[other] == static_cast<uint8_t>(operation) &&
                      same_site(warp->lanes[other].wait_site, site);
    if (__builtin_expect(!same, 0)) fail_for_divergence(other, operation, mask, site);
  }
  warp->in_collective |= own;
  warp->mask[self->lane] = mask;
  warp->operation[self->lane] = static_cast<uint8_t>(operation);
  warp->contribution[self->lane] = contribution;
  warp->source_lane[self->lane] = static_cast<uint8_t>(source_lane);
  if ((warp->in_collective & mask) == mask) {
    complete_collective(warp, operation, mask, site);
  } else {
    wait_for(Waiting::warp_collective, site);
  }
  return warp->result[self->lane];
}

template <class T>
T shuffle(LaneMask mask, T value, unsigned source_lane, Site site) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves 4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = converge(Operation::shuffle, mask, bits, source_lane, site);
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A lane of the caller's warp waits for the caller in a collective, and the caller goes elsewhere for good: to site,
// or, where that is unknown, out of the kernel.
inline void refuse_to_leave_collective(const char* detector, const char* doing, Site site) {
  const Warp& warp = *current->warp;
  for (LaneMask lanes = warp.in_collective; lanes; lanes &= lanes - 1) {
    const unsigned lane = __builtin_ctz(lanes);
    if (!(warp.mask[lane] & lane_bit(current))) continue;
    const Site wait_site = warp.lanes[lane].wait_site;
    fail(detector, site.file ? site : wait_site, "%s while thread %u waits for it in %s at %s:%d", doing,
         warp.lanes[lane].index, name_of(static_cast<Operation>(warp.operation[lane])), wait_site.file, wait_site.line);
  }
}

// ---- The block's barrier

void mark_barrier_passed(Block* block);  // memory.hpp

// When one thread has waited for the launch before, and a barrier has ordered the others behind it, all have.
inline void share_wait_for_launch_before(Block* block) {
  bool waited = false;
  for (unsigned t = 0; t < request.block_threads; t++) waited |= block->threads[t].waited_for_launch_before;
  for (unsigned t = 0; t < request.block_threads; t++) block->threads[t].waited_for_launch_before = waited;
}

__attribute__((noinline)) inline void block_barrier(Site site) {
  refuse_in_predicate("__syncthreads", site);
  Block* block = current->block;
  if (current->warp->in_collective) refuse_to_leave_collective("divergent_warp", "comes to __syncthreads", site);
  if (block->arrived == 0) {
    block->barrier_site = site;
  } else if (!same_site(block->barrier_site, site)) {
    fail("divergent_barrier", site, "__syncthreads, while %u threads wait in another at %s:%d", block->arrived,
         block->barrier_site.file, block->barrier_site.line);
  }
  if (++block->arrived < block->live_threads) return wait_for(Waiting::block_barrier, site);
  if (block->live_threads != request.block_threads) {
    fail("early_exit", site, "__syncthreads, but %u of the block's %u threads have exited",
         request.block_threads - block->live_threads, request.block_threads);
  }
  block->arrived = 0;
  statistics.block_barriers++;
  mark_barrier_passed(block);
  if (overlaps_earlier_launch) share_wait_for_launch_before(block);
  for (unsigned i = 0; i < warps_per_block; i++) block->warps[i].ready = block->warps[i].live;
  enqueue_ready_warps(block, current->warp);
  maybe_preempt(2);
}

// ---- The grid's barrier

void make_all_visible(Block* block);  // memory.hpp

__attribute__((noinline)) inline void grid_barrier(Site site) {
  refuse_in_predicate("a grid barrier", site);
  if (!request.cooperative) {
    fail("grid_sync_without_cooperative", site, "a grid barrier in a launch that is not cooperative");
  }
  const uint64_t threads = static_cast<uint64_t>(request.grid_blocks) * request.block_threads;
  current->warp->at_grid_barrier |= lane_bit(current);
  if (++threads_at_grid_barrier < threads) return wait_for(Waiting::grid_barrier, site);
  threads_at_grid_barrier = 0;
  statistics.grid_barriers++;
  for (unsigned s = request.resident_blocks; s-- > 0;) {
    make_all_visible(&slots[s]);
    for (unsigned i = 0; i < warps_per_block; i++) {
      Warp& warp = slots[s].warps[i];
      warp.ready |= warp.at_grid_barrier;
      warp.at_grid_barrier = 0;
    }
    enqueue_ready_warps(&slots[s], current->warp);
  }
  maybe_preempt(2);
}

}  // namespace emulator
