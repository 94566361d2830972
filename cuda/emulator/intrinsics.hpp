// The functions that a kernel calls by their CUDA names. The last argument is where the call stands.
#pragma once
#include "clusters.hpp"

inline void __syncthreads(emulator::Site site = emulator::here()) { emulator::block_barrier(site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, emulator::Site site = emulator::here()) {
  emulator::converge(emulator::Operation::synchronise, mask, 0, emulator::current->lane, site);
}
[[noreturn]] inline void __trap(emulator::Site site = emulator::here()) { emulator::fail("trap", site, "__trap"); }
inline void __threadfence() { emulator::release(); }
inline void __nanosleep(unsigned) {}

// ---- Shuffles: segments of `width` lanes; a source outside the segment means the lane's own value.

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, emulator::Site site = emulator::here()) {
  const unsigned segment = emulator::current->lane & ~(static_cast<unsigned>(width) - 1);
  return emulator::shuffle(mask, value, segment + (static_cast<unsigned>(source) & (width - 1u)), site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, emulator::Site site = emulator::here()) {
  const unsigned lane = emulator::current->lane, source = lane ^ static_cast<unsigned>(lanes);
  const unsigned segment_end = (lane & ~(static_cast<unsigned>(width) - 1)) + static_cast<unsigned>(width);
  return emulator::shuffle(mask, value, source < segment_end ? source : lane, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, emulator::Site site = emulator::here()) {
  const unsigned lane = emulator::current->lane, within = lane & (static_cast<unsigned>(width) - 1);
  return emulator::shuffle(mask, value, within + distance < static_cast<unsigned>(width) ? lane + distance : lane,
                           site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, emulator::Site site = emulator::here()) {
  const unsigned lane = emulator::current->lane, within = lane & (static_cast<unsigned>(width) - 1);
  return emulator::shuffle(mask, value, within >= distance ? lane - distance : lane, site);
}

// ---- Votes

inline unsigned __ballot_sync(unsigned mask, int predicate, emulator::Site site = emulator::here()) {
  return static_cast<unsigned>(
      emulator::converge(emulator::Operation::ballot, mask, predicate != 0, emulator::current->lane, site));
}
inline int __any_sync(unsigned mask, int predicate, emulator::Site site = emulator::here()) {
  return __ballot_sync(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, emulator::Site site = emulator::here()) {
  return __ballot_sync(mask, predicate, site) == mask;
}

// ---- Atomics: relaxed. The value is not deduced, so that atomicAdd(unsigned*, 1) compiles as it does in CUDA.

namespace emulator {
template <class T>
struct Undeduced {
  using Type = T;
};
template <class T>
using Value = typename Undeduced<T>::Type;
}  // namespace emulator

template <class T>
T atomicAdd(T* address, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(address, [=](T before) { return before + value; }, "atomicAdd", site);
}
template <class T>
T atomicSub(T* address, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(address, [=](T before) { return before - value; }, "atomicSub", site);
}
template <class T>
T atomicMax(T* address, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(
      address, [=](T before) { return before < value ? value : before; }, "atomicMax", site);
}
template <class T>
T atomicMin(T* address, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(
      address, [=](T before) { return value < before ? value : before; }, "atomicMin", site);
}
template <class T>
T atomicAnd(T* address, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(address, [=](T before) { return before & value; }, "atomicAnd", site);
}
template <class T>
T atomicOr(T* address, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(address, [=](T before) { return before | value; }, "atomicOr", site);
}
template <class T>
T atomicExch(T* address, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(address, [=](T) { return value; }, "atomicExch", site);
}
template <class T>
T atomicCAS(T* address, emulator::Value<T> expected, emulator::Value<T> value, emulator::Site site = emulator::here()) {
  return emulator::update_atomically(
      address, [=](T before) { return before == expected ? value : before; }, "atomicCAS", site);
}
