// Blocks, warps and threads of the running launch. All state is static: one launch at a time per process.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "context_switch.hpp"
#include "language.hpp"

namespace emulator {

// A place in a kernel source. Functions take one as a last argument that defaults to where they are called.
struct Site {
  const char* file;
  int line;
};
constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
inline bool same_site(Site a, Site b) { return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file)); }

constexpr unsigned WARP_LANES = 32;
using LaneMask = uint32_t;

// ---- What the caller passes, as plain C (emulator_library.py declares the same structures)

struct Buffer {  // of global memory; its mapping has guard pages at both ends
  const char* name;
  char* begin;
  uint64_t bytes;
  char* mapping;
  uint64_t mapping_bytes;
  unsigned earlier_launches;  // EARLIER_READS, EARLIER_WRITES: what launches that may still run do with it
};
constexpr unsigned EARLIER_READS = 1, EARLIER_WRITES = 2;
struct LaunchRequest {
  unsigned kernel;
  unsigned grid_blocks, block_threads, cluster_blocks;
  unsigned resident_blocks;  // as many blocks are on the device at once; the others wait for room
  unsigned shared_bytes, stack_bytes;
  unsigned cooperative, weak_stores, shuffled_dispatch;
  uint64_t seed;  // 0: depth first, ascending; others explore
  double time_limit_s;
  void** parameters;  // as cuLaunchKernel takes them
  const Buffer* buffers;
  uint64_t buffer_count;
  char* workspace;
  uint64_t workspace_bytes;
};
struct LaunchStatistics {
  uint64_t switches, polls, blocks, block_barriers, grid_barriers;
  uint64_t bytes_read, bytes_written, atomic_operations;
};

// ---- The machine

struct Block;
struct Warp;

enum class Waiting : uint8_t { nothing, block_barrier, warp_collective, grid_barrier, cluster_barrier, spin };

struct Thread {
  Context context;
  Warp* warp;
  Block* block;
  char* stack;  // its lowest address, where the canary is
  Site site;    // the last access to memory, or the last wait
  Site wait_site;
  bool (*predicate)(void*);  // while it spins
  void* predicate_state;
  unsigned index, lane;
  unsigned cluster_phase;
  bool arrived_at_cluster;
  bool waited_for_launch_before;
  Waiting waiting;
};

struct Warp {
  Block* block;
  Thread* lanes;
  LaneMask live, ready, in_collective, at_grid_barrier, at_cluster_barrier;
  bool queued;
  unsigned priority;
  // The collective that each lane has come to.
  LaneMask mask[WARP_LANES];
  uint8_t operation[WARP_LANES], source_lane[WARP_LANES];
  uint64_t contribution[WARP_LANES], result[WARP_LANES];
};

// With weak stores: a published value that other blocks cannot see yet.
struct PendingStore {
  char* address;
  unsigned bytes, thread;
  bool barrier_passed;  // a barrier of the block came after it
  char value[16];
};
constexpr unsigned PENDING_STORES = 256;  // per block

struct Cluster {
  Block* blocks;
  unsigned arrived, phase, live_blocks;
};

struct Block {
  unsigned index, rank;  // in the grid, in the cluster
  unsigned live_threads, arrived;
  bool started, finished;
  Site barrier_site;  // of the first thread at the barrier
  char* shared;
  char* stacks;
  Warp* warps;
  Thread* threads;
  Cluster* cluster;
  PendingStore* pending;
  unsigned pending_count;
};

static LaunchRequest request;
static LaunchStatistics statistics;
static void (*kernel_entry)(void** parameters);
static unsigned warps_per_block;
static unsigned blocks_finished, blocks_dispatched;
static unsigned threads_at_grid_barrier;
static Block* slots;  // request.resident_blocks of them: where a block lives while it is resident
static Cluster* clusters;
static Thread* current;  // null while the scheduler itself runs
static Context scheduler_context;
static bool overlaps_earlier_launch;
static bool polling;  // inside the predicate of a spin

inline LaneMask lane_bit(const Thread* thread) { return LaneMask{1} << thread->lane; }
inline bool block_is_live(const Block& block) { return block.live_threads != 0; }

inline void make_current(Thread* thread) {
  current = thread;
  thread_index.x = thread->index;
  block_index.x = thread->block->index;
}

static uint64_t random_state;
inline void seed_random(uint64_t seed) { random_state = seed * 0x9E3779B97F4A7C15u + 0x1234567u; }
inline unsigned random_number() {  // splitmix64
  uint64_t z = random_state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<unsigned>((z ^ (z >> 31)) >> 32);
}
inline unsigned random_below(unsigned limit) { return random_number() % limit; }

}  // namespace emulator
