// What CUDA adds to C++: qualifiers, built-in types and variables, arithmetic functions.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Macros, because CUDA spells these as keywords. There is no __shared__: block_shared<T>() is the one way to it.
#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace emulator {
// The scheduler sets them whenever another thread begins to run. Grids and blocks have one dimension.
static uint3 thread_index, block_index;
static dim3 block_dimension, grid_dimension;

template <class To, class From>
inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "the types differ in size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emulator

static const uint3& threadIdx = emulator::thread_index;
static const uint3& blockIdx = emulator::block_index;
static const dim3& blockDim = emulator::block_dimension;
static const dim3& gridDim = emulator::grid_dimension;

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline unsigned __float_as_uint(float value) { return emulator::same_bits<unsigned>(value); }
inline int __float_as_int(float value) { return emulator::same_bits<int>(value); }
inline float __uint_as_float(unsigned bits) { return emulator::same_bits<float>(bits); }
inline float __int_as_float(int bits) { return emulator::same_bits<float>(bits); }

inline float rsqrtf(float value) { return 1.0f / sqrtf(value); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits ? __builtin_clz(static_cast<unsigned>(bits)) : 32; }

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
