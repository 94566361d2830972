// Clusters: a barrier among their blocks, and each other's shared memory.
//
// A block's shared memory can be touched by its peers from its first instruction to its last: outside that time the
// pages are out of reach (workspace.hpp), so a kernel without the two guarding barriers faults.
#pragma once
#include "memory.hpp"

namespace emulator {

inline unsigned cluster_size() { return request.cluster_blocks; }
inline unsigned cluster_rank() { return current->block->rank; }

__attribute__((noinline)) inline void cluster_arrive(Site site) {
  refuse_in_predicate("a cluster barrier", site);
  Thread* self = current;
  Cluster* cluster = self->block->cluster;
  if (self->arrived_at_cluster) fail("divergent_barrier", site, "cluster_arrive twice without cluster_wait between");
  self->arrived_at_cluster = true;
  self->cluster_phase = cluster->phase;
  release();
  if (++cluster->arrived < request.cluster_blocks * request.block_threads) return;
  cluster->arrived = 0;
  cluster->phase++;
  for (unsigned rank = request.cluster_blocks; rank-- > 0;) {
    Block* block = &cluster->blocks[rank];
    for (unsigned i = 0; i < warps_per_block; i++) {
      Warp& warp = block->warps[i];
      warp.ready |= warp.at_cluster_barrier;
      warp.at_cluster_barrier = 0;
    }
    enqueue_ready_warps(block, self->warp);
  }
}

__attribute__((noinline)) inline void cluster_wait(Site site) {
  refuse_in_predicate("a cluster barrier", site);
  Thread* self = current;
  if (!self->arrived_at_cluster) fail("divergent_barrier", site, "cluster_wait without cluster_arrive before it");
  self->arrived_at_cluster = false;
  if (self->block->cluster->phase != self->cluster_phase) return maybe_preempt(2);
  self->warp->at_cluster_barrier |= lane_bit(self);
  wait_for(Waiting::cluster_barrier, site);
}

// The same place in the shared memory of another block of the cluster.
template <class T>
T* map_shared_rank(T* pointer, unsigned rank, Site site) {
  const Block* block = current->block;
  current->site = site;
  if (rank >= request.cluster_blocks) {
    fail("cluster_lifetime", site, "rank %u of a cluster of %u blocks", rank, request.cluster_blocks);
  }
  const ptrdiff_t offset = reinterpret_cast<char*>(pointer) - block->shared;
  if (offset < 0 || offset + static_cast<ptrdiff_t>(sizeof(T)) > static_cast<ptrdiff_t>(request.shared_bytes)) {
    fail("out_of_bounds_shared", site, "byte %td of the block's shared memory (%u bytes) has no twin", offset,
         request.shared_bytes);
  }
  return reinterpret_cast<T*>(block->cluster->blocks[rank].shared + offset);
}

}  // namespace emulator
