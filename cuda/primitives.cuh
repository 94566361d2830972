// Everything that differs between a GPU and the emulator, and nothing else.
//
// All PTX of the project lives here, each function with its host twin in the second half. A kernel touches
// global memory only through load/store (data of one block, or of an earlier launch) and publish/observe
// (data that crosses blocks inside a launch); shared memory only through block_shared; and it waits for other
// blocks only through spin_until. Under these rules one source runs on both machines.
#pragma once

constexpr unsigned FULL_WARP = 0xffffffffu;

#if defined(__CUDACC__)

#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__

// The block's whole shared memory, seen as one T. The launch must give exactly sizeof(T) bytes.
template <class T>
DEVICE T& block_shared() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return *reinterpret_cast<T*>(shared_bytes);
}

// Waits until predicate() holds. The predicate has no side effect: the emulator calls it as often as it likes.
template <class Predicate>
DEVICE void spin_until(Predicate predicate) {
  while (!predicate()) {
  }
}

template <class T>
DEVICE T load(const T* address) {
  return *address;
}
template <class T>
DEVICE void store(T* address, T value) {
  *address = value;
}

// Relaxed accesses at device scope: they reach L2, where every block sees them, but order nothing.
DEVICE void publish(float* address, float value) {
  asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(address)), "f"(value) : "memory");
}
DEVICE void publish(float2* address, float2 value) {
  asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(address)), "f"(value.x),
               "f"(value.y)
               : "memory");
}
DEVICE float observe(const float* address) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(__cvta_generic_to_global(address)) : "memory");
  return value;
}
DEVICE float2 observe(const float2* address) {
  float2 value;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "l"(__cvta_generic_to_global(address))
               : "memory");
  return value;
}

// The only order between blocks: what came before add_release is visible after a load_acquire that sees it.
DEVICE unsigned add_release(unsigned* address, unsigned value) {
  unsigned before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(address)), "r"(value)
               : "memory");
  return before;
}
DEVICE unsigned load_acquire(const unsigned* address) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(address)) : "memory");
  return value;
}

// Programmatic dependent launch. The next launch of the stream may start once every block has called the first, or
// ended; before it touches what an earlier launch reads or writes, it calls the second, which returns when the launch
// before has finished: and every launch before that one too, if each block of each launch in between made this call.
// Both do nothing in a launch without such an edge, and before compute capability 9.0, where there are none.
DEVICE void let_next_launch_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// 1 / value within one unit in the last place, for a normal positive value whose inverse is normal.
DEVICE float reciprocal(float value) {
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(value));
  return inverse;
}

// Nanoseconds of a clock shared by all SMs; it advances in steps of up to a microsecond.
DEVICE unsigned long long device_time_ns() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}
DEVICE void raise_to(unsigned long long* address, unsigned long long value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(address)), "l"(value)
               : "memory");
}

#else  // The host twins. emulator/cuda_host.hpp is included before this file.

#define DEVICE static inline
#define DEVICE_MEMBER inline

template <class T>
DEVICE T& block_shared(emulator::Site site = emulator::here()) {
  return *static_cast<T*>(emulator::block_shared(sizeof(T), site));
}
template <class Predicate>
DEVICE void spin_until(Predicate predicate, emulator::Site site = emulator::here()) {
  emulator::spin_until(predicate, site);
}
template <class T>
DEVICE T load(const T* address, emulator::Site site = emulator::here()) {
  return emulator::load(address, site);
}
template <class T>
DEVICE void store(T* address, T value, emulator::Site site = emulator::here()) {
  emulator::store(address, value, site);
}
template <class T>
DEVICE void publish(T* address, T value, emulator::Site site = emulator::here()) {
  emulator::publish(address, value, site);
}
template <class T>
DEVICE T observe(const T* address, emulator::Site site = emulator::here()) {
  return emulator::observe(address, site);
}
DEVICE unsigned add_release(unsigned* address, unsigned value, emulator::Site site = emulator::here()) {
  return emulator::add_release(address, value, site);
}
DEVICE unsigned load_acquire(const unsigned* address, emulator::Site site = emulator::here()) {
  return emulator::load_acquire(address, site);
}
DEVICE void let_next_launch_start() {}
DEVICE void wait_for_launch_before() { emulator::wait_for_launch_before(); }
DEVICE float reciprocal(float value) { return 1.0f / value; }
DEVICE unsigned long long device_time_ns() { return emulator::device_time_ns(); }
DEVICE void raise_to(unsigned long long* address, unsigned long long value, emulator::Site site = emulator::here()) {
  emulator::raise_to(address, value, site);
}

#endif

constexpr float LARGEST_FLOAT = 3.402823466e+38f;
DEVICE float infinity() { return __int_as_float(0x7f800000); }
DEVICE float not_a_number() { return __int_as_float(0x7fffffff); }
