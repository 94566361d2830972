// The memory a launch needs besides the kernel's buffers, all in one mapping that the caller lends:
//
//   control structures | slot 0 | slot 1 | ...        slot: guard, stacks, guard, shared memory, guard
//
// One mapping serves every shared object of the process in turn, so that its pages stay warm. Guards are shared by
// the stacks of a block, with a canary for each thread: a guard for every stack would exceed the kernel's limit on
// mappings. Shared memory ends exactly at its guard.
#pragma once
#include <sys/mman.h>

#include "clusters.hpp"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulator {

constexpr size_t PAGE_BYTES = 65536;  // a multiple of every page size in use
constexpr size_t GUARD_BYTES = PAGE_BYTES;
constexpr size_t ALIGNMENT = 16;        // of shared memory and of buffers
constexpr size_t MARGIN_BYTES = 256;    // before a buffer's begin, where it is checked that nothing was written
constexpr unsigned char POISON = 0xff;  // floats of these bytes are NaN
constexpr uint64_t CANARY = 0xC0FFEE5AFE57AC4Bu;

// At the begin of the workspace: how the launch before this one laid it out.
struct WorkspaceHeader {
  size_t first_slot, slot_bytes, stacks_bytes;
  unsigned slots;
};

static WorkspaceHeader layout;
static unsigned* dispatch_order;  // of clusters; null: ascending

inline size_t round_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

// Hands out consecutive arrays.
struct ArrayCursor {
  uintptr_t begin, at;
  template <class T>
  T* take(size_t count) {
    at = round_up(at, alignof(T) < 64 ? 64 : alignof(T));
    T* array = reinterpret_cast<T*>(at);
    at += count * sizeof(T);
    return array;
  }
};

static Warp* all_warps;
static Thread* all_threads;
static PendingStore* all_pending;

// Points the control structures into the workspace at `begin`, computes the layout, and returns its size.
inline size_t lay_out_workspace(uintptr_t begin) {
  const size_t resident = request.resident_blocks;
  ArrayCursor cursor{begin, begin};
  cursor.take<WorkspaceHeader>(1);
  slots = cursor.take<Block>(resident);
  clusters = cursor.take<Cluster>(resident / request.cluster_blocks);
  all_warps = cursor.take<Warp>(resident * warps_per_block);
  all_threads = cursor.take<Thread>(resident * request.block_threads);
  all_pending = cursor.take<PendingStore>(request.weak_stores ? resident * PENDING_STORES : 0);
  runnable = cursor.take<Warp*>(resident * warps_per_block);
  spinners = cursor.take<Thread*>(resident * request.block_threads);
  just_finished = cursor.take<Block*>(resident);
  dispatch_order = nullptr;
  if (request.shuffled_dispatch) dispatch_order = cursor.take<unsigned>(request.grid_blocks / request.cluster_blocks);

  layout.first_slot = round_up(cursor.at - begin, PAGE_BYTES);
  layout.stacks_bytes = round_up(static_cast<size_t>(request.block_threads) * request.stack_bytes, PAGE_BYTES);
  const size_t shared_pages = round_up(request.shared_bytes + MARGIN_BYTES, PAGE_BYTES);
  layout.slot_bytes = 3 * GUARD_BYTES + layout.stacks_bytes + shared_pages;
  layout.slots = request.resident_blocks;
  return layout.first_slot + layout.slots * layout.slot_bytes;
}

inline char* slot_begin(unsigned slot) { return request.workspace + layout.first_slot + slot * layout.slot_bytes; }
inline char* shared_pages_begin(unsigned slot) { return slot_begin(slot) + 2 * GUARD_BYTES + layout.stacks_bytes; }
inline char* shared_pages_end(unsigned slot) { return slot_begin(slot) + layout.slot_bytes - GUARD_BYTES; }

inline bool protect_shared(unsigned slot, int protection) {
  char* begin = shared_pages_begin(slot);
  return mprotect(begin, static_cast<size_t>(shared_pages_end(slot) - begin), protection) == 0;
}

inline bool protect_guards() {
  for (unsigned s = 0; s < layout.slots; s++) {
    char* guards[] = {slot_begin(s), shared_pages_begin(s) - GUARD_BYTES, shared_pages_end(s)};
    for (char* guard : guards) {
      if (mprotect(guard, GUARD_BYTES, PROT_NONE)) return false;
    }
  }
  return true;
}

// False: the system refuses so many mappings.
inline bool prepare_workspace() {
  lay_out_workspace(reinterpret_cast<uintptr_t>(request.workspace));
  auto* previous = reinterpret_cast<WorkspaceHeader*>(request.workspace);
  if (memcmp(previous, &layout, sizeof layout)) {
    if (mprotect(request.workspace, request.workspace_bytes, PROT_READ | PROT_WRITE) || !protect_guards()) return false;
    *previous = layout;
  }
  // Launches with clusters take shared memory out of reach; whoever comes next must not rely on the protection.
  if (request.cluster_blocks > 1) *previous = {};
  memset(slots, 0, sizeof(Block) * layout.slots);
  for (unsigned s = 0; s < layout.slots; s++) {
    Block& block = slots[s];
    block.stacks = slot_begin(s) + GUARD_BYTES;
    block.shared = shared_pages_end(s) - round_up(request.shared_bytes, ALIGNMENT);
    block.warps = all_warps + static_cast<size_t>(s) * warps_per_block;
    block.threads = all_threads + static_cast<size_t>(s) * request.block_threads;
    block.pending = request.weak_stores ? all_pending + static_cast<size_t>(s) * PENDING_STORES : nullptr;
    block.cluster = &clusters[s / request.cluster_blocks];
    block.rank = s % request.cluster_blocks;
#if defined(__SANITIZE_ADDRESS__)  // a launch that failed left its frames marked
    __asan_unpoison_memory_region(block.stacks, layout.stacks_bytes);
#endif
  }
  return true;
}

// ---- Poison: what nobody wrote reads as NaN, and what lies beside shared memory must stay as it is.

inline void poison_shared(Block* block) {
  char* begin = block->shared - MARGIN_BYTES;
  memset(begin, POISON, static_cast<size_t>(shared_pages_end(static_cast<unsigned>(block - slots)) - begin));
}

// The first byte in [begin, end) that is no longer poison, or null.
inline const char* first_written(const char* begin, const char* end) {
  for (const char* at = begin; at < end; at++) {
    if (static_cast<unsigned char>(*at) != POISON) return at;
  }
  return nullptr;
}

inline void check_shared_margins(const Block& block) {
  const char* end = block.shared + request.shared_bytes;
  const char* written = first_written(block.shared - MARGIN_BYTES, block.shared);
  if (!written) written = first_written(end, block.shared + round_up(request.shared_bytes, ALIGNMENT));
  if (!written) return;
  finding.block = block.index;
  fail("out_of_bounds_shared", {nullptr, 0}, "block %u wrote byte %td of its shared memory (%u bytes)", block.index,
       written - block.shared, request.shared_bytes);
}

inline void check_buffer_margins() {
  for (uint64_t i = 0; i < request.buffer_count; i++) {
    const Buffer& buffer = request.buffers[i];
    char* margin = buffer.begin - MARGIN_BYTES;
    char* end = buffer.begin + buffer.bytes;
    char* guard = buffer.begin + round_up(buffer.bytes, ALIGNMENT);
    const char* written = first_written(margin, buffer.begin);
    if (!written) written = first_written(end, guard);
    if (!written) continue;
    memset(margin, POISON, MARGIN_BYTES);  // for the next launch
    memset(end, POISON, static_cast<size_t>(guard - end));
    fail("out_of_bounds_global", {nullptr, 0}, "byte %td of global buffer %s (%llu bytes) was written",
         written - buffer.begin, buffer.name, static_cast<unsigned long long>(buffer.bytes));
  }
}

}  // namespace emulator
