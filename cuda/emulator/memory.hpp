// Global memory: bounds and alignment of every access, counters, and stores that other blocks see late.
//
// Weak stores model what a GPU may do: a published value waits in a buffer of its block until a release by the same
// thread, or by any thread of the block after a barrier, makes it visible; so a missing release shows. A missing
// acquire cannot show, since a load always reads the newest visible value.
#pragma once
#include <time.h>

#include "scheduler.hpp"

namespace emulator {

// ---- Bounds

static const Buffer* last_buffer;  // the one that the previous access hit

inline bool lies_in(const Buffer& buffer, const char* begin, size_t bytes) {
  return begin >= buffer.begin && begin + bytes <= buffer.begin + buffer.bytes;
}
inline const Buffer* buffer_around(const char* address) {  // guard pages included
  for (uint64_t i = 0; i < request.buffer_count; i++) {
    const Buffer& buffer = request.buffers[i];
    if (address >= buffer.mapping && address < buffer.mapping + buffer.mapping_bytes) return &buffer;
  }
  return nullptr;
}

// Addresses outside every mapping pass: they belong to a block's shared memory, or the hardware will object.
__attribute__((noinline)) inline void look_up_buffer(const char* begin, size_t bytes, const char* access, Site site) {
  const Buffer* buffer = buffer_around(begin);
  if (!buffer) return;
  if (!lies_in(*buffer, begin, bytes)) {
    fail("out_of_bounds_global", site, "%s of %zu bytes at byte %lld of global buffer %s (%llu bytes)", access, bytes,
         static_cast<long long>(begin - buffer->begin), buffer->name, static_cast<unsigned long long>(buffer->bytes));
  }
  last_buffer = buffer;
}

// ---- Programmatic launches: what the launches before still use is out of bounds until the thread has waited for them,
// or a thread that a barrier of the block put it behind

enum class Access { reads, writes };

inline void wait_for_launch_before() { current->waited_for_launch_before = true; }

__attribute__((noinline)) inline void check_launch_before(const char* begin, const char* access, Access kind,
                                                          Site site) {
  const Buffer* buffer = buffer_around(begin);
  if (!buffer) return;
  const unsigned forbidden = kind == Access::writes ? EARLIER_READS | EARLIER_WRITES : EARLIER_WRITES;
  if (!(buffer->earlier_launches & forbidden)) return;
  fail("early_access", site, "%s in global buffer %s, which a launch that may still run %s: wait for it first", access,
       buffer->name, buffer->earlier_launches & EARLIER_WRITES ? "writes" : "reads");
}

// ---- Every access

template <class T>
void check_access(const T* address, const char* access, Access kind, Site site) {
  current->site = site;
  const char* begin = reinterpret_cast<const char*>(address);
  if (__builtin_expect(reinterpret_cast<uintptr_t>(begin) % alignof(T) != 0, 0)) {
    fail("misaligned", site, "%s of %zu bytes at address %p, which is not a multiple of %zu", access, sizeof(T),
         static_cast<const void*>(begin), alignof(T));
  }
  if (!last_buffer || !lies_in(*last_buffer, begin, sizeof(T))) look_up_buffer(begin, sizeof(T), access, site);
  if (__builtin_expect(overlaps_earlier_launch && !current->waited_for_launch_before, 0)) {
    check_launch_before(begin, access, kind, site);
  }
}

// ---- Weak stores

inline void mark_barrier_passed(Block* block) {
  for (unsigned i = 0; i < block->pending_count; i++) block->pending[i].barrier_passed = true;
}

template <class Condition>
void make_visible(Block* block, Condition condition) {
  unsigned kept = 0;
  for (unsigned i = 0; i < block->pending_count; i++) {
    PendingStore& store = block->pending[i];
    if (condition(store)) {
      memcpy(store.address, store.value, store.bytes);
    } else {
      block->pending[kept++] = store;
    }
  }
  block->pending_count = kept;
}
inline void make_all_visible(Block* block) {
  make_visible(block, [](const PendingStore&) { return true; });
}
inline bool seen_by_current(const PendingStore& store) {
  return store.barrier_passed || store.thread == current->index;
}
inline void release() {
  if (request.weak_stores) make_visible(current->block, seen_by_current);
}

inline void delay_store(char* address, const void* value, unsigned bytes) {
  Block* block = current->block;
  const volatile char probe = *const_cast<volatile char*>(address);  // a bad address faults here, not later
  (void)probe;
  if (block->pending_count == PENDING_STORES) {  // the oldest becomes visible, as any store does in the end
    const PendingStore* oldest = block->pending;
    make_visible(block, [oldest](const PendingStore& store) { return &store == oldest; });
  }
  PendingStore& store = block->pending[block->pending_count++];
  store = {address, bytes, current->index, false, {}};
  memcpy(store.value, value, bytes);
}

// What the running thread wrote itself, or its block before a barrier, it sees although others do not.
__attribute__((noinline)) inline void overlay_pending(const char* address, char* value, size_t bytes) {
  const Block* block = current->block;
  for (unsigned i = 0; i < block->pending_count; i++) {
    const PendingStore& store = block->pending[i];
    if (!seen_by_current(store)) continue;
    const char* begin = store.address > address ? store.address : address;
    const char* end = store.address + store.bytes < address + bytes ? store.address + store.bytes : address + bytes;
    if (begin < end) memcpy(value + (begin - address), store.value + (begin - store.address), end - begin);
  }
}

// ---- Accesses, as the host half of primitives.cuh names them

template <class T>
T read(const T* address) {
  T value = *const_cast<const T*>(address);
  if (__builtin_expect(current->block->pending_count != 0, 0)) {
    overlay_pending(reinterpret_cast<const char*>(address), reinterpret_cast<char*>(&value), sizeof value);
  }
  return value;
}

template <class T>
T load(const T* address, Site site) {
  check_access(address, "load", Access::reads, site);
  statistics.bytes_read += sizeof(T);
  return read(address);
}
template <class T>
void store(T* address, T value, Site site) {
  refuse_in_predicate("store", site);
  check_access(address, "store", Access::writes, site);
  statistics.bytes_written += sizeof(T);
  *address = value;
}
template <class T>
T observe(const T* address, Site site) {
  check_access(address, "observe", Access::reads, site);
  statistics.bytes_read += sizeof(T);
  return read(address);
}
template <class T>
void publish(T* address, T value, Site site) {
  static_assert(sizeof(T) <= sizeof(PendingStore::value), "a GPU publishes at most 16 bytes at once");
  refuse_in_predicate("publish", site);
  maybe_preempt(8);
  check_access(address, "publish", Access::writes, site);
  statistics.bytes_written += sizeof(T);
  if (request.weak_stores) return delay_store(reinterpret_cast<char*>(address), &value, sizeof value);
  *address = value;
}
inline unsigned load_acquire(const unsigned* address, Site site) {
  check_access(address, "load_acquire", Access::reads, site);
  return read(address);
}

// The running thread's own pending stores come first: an atomic must not overtake them at the same address.
template <class T, class Update>
T update_atomically(T* address, Update update, const char* name, Site site) {
  refuse_in_predicate(name, site);
  maybe_preempt(8);
  check_access(address, name, Access::writes, site);
  statistics.atomic_operations++;
  if (current->block->pending_count) {
    make_visible(current->block, [address](const PendingStore& store) {
      const char* begin = reinterpret_cast<const char*>(address);
      return seen_by_current(store) && store.address < begin + sizeof(T) && begin < store.address + store.bytes;
    });
  }
  const T before = *address;
  *address = update(before);
  return before;
}

inline unsigned add_release(unsigned* address, unsigned value, Site site) {
  release();
  return update_atomically(address, [value](unsigned before) { return before + value; }, "add_release", site);
}

inline void raise_to(unsigned long long* address, unsigned long long value, Site site) {
  const auto larger = [value](unsigned long long before) { return before < value ? value : before; };
  update_atomically(address, larger, "raise_to", site);
}

inline unsigned long long device_time_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1000000000u + static_cast<unsigned long long>(now.tv_nsec);
}

inline void* block_shared(size_t bytes, Site site) {
  if (bytes != request.shared_bytes) {
    fail("shared_size", site, "the kernel uses %zu bytes of shared memory, the launch gives %u", bytes,
         request.shared_bytes);
  }
  return current->block->shared;
}

}  // namespace emulator
