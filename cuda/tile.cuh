// A row cut into tiles, and what a block does with the tile it owns.
#pragma once
#include "reductions.cuh"

// How rows of `width` floats meet tiles of TILE floats:
//   exact      width is a multiple of TILE: 16-byte accesses, nothing to check
//   aligned    width is a multiple of 4: 16-byte accesses, the last tile is checked
//   unaligned  any width: 4-byte accesses, the last tile is checked
enum class Shape { exact, aligned, unaligned };

// Four neighbouring floats, or one: what a thread loads, works on and stores at once.
template <Shape SHAPE>
struct PackOf {
  using Type = float4;
  static constexpr int FLOATS = 4;
};
template <>
struct PackOf<Shape::unaligned> {
  using Type = float;
  static constexpr int FLOATS = 1;
};

DEVICE float square(float v) { return v * v; }
DEVICE float4 square(float4 v) { return make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w); }
DEVICE float sum(float v) { return v; }
DEVICE float sum(float4 v) { return (v.x + v.y) + (v.z + v.w); }
DEVICE float maximum(float v) { return v; }
DEVICE float maximum(float4 v) { return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)); }
DEVICE float multiply(float v, float by) { return v * by; }
DEVICE float4 multiply(float4 v, float by) { return make_float4(v.x * by, v.y * by, v.z * by, v.w * by); }
DEVICE float divide(float v, float by) { return v / by; }
DEVICE float4 divide(float4 v, float by) { return make_float4(v.x / by, v.y / by, v.z / by, v.w / by); }
// What the exponential is taken of.
DEVICE float argument(float v, float row_maximum, float scale) { return (v - row_maximum) * scale; }
DEVICE float4 argument(float4 v, float row_maximum, float scale) {
  return make_float4(argument(v.x, row_maximum, scale), argument(v.y, row_maximum, scale),
                     argument(v.z, row_maximum, scale), argument(v.w, row_maximum, scale));
}
DEVICE float exponential(float v, float row_maximum, float scale) { return expf(argument(v, row_maximum, scale)); }
DEVICE float4 exponential(float4 v, float row_maximum, float scale) {
  return make_float4(exponential(v.x, row_maximum, scale), exponential(v.y, row_maximum, scale),
                     exponential(v.z, row_maximum, scale), exponential(v.w, row_maximum, scale));
}

// The number of tiles in a row, with what it takes to divide by it quickly: floor((2^32 - 1) / value).
struct TileCount {
  unsigned value, reciprocal;

  // dividend / value. The product is right or one too small for any dividend.
  DEVICE_MEMBER unsigned divide(unsigned dividend) const {
    const unsigned quotient = __umulhi(dividend, reciprocal);
    return quotient + (dividend - quotient * value >= value ? 1 : 0);
  }
};

// A tile, by default that of the block: block b owns tile b % tiles of row b / tiles. Its packs are dealt to the
// threads round robin, PACKS to each, so that neighbouring threads touch neighbouring addresses.
template <int THREADS, int TILE, Shape SHAPE>
struct Tile {
  using Pack = typename PackOf<SHAPE>::Type;
  static constexpr int PACKS = TILE / PackOf<SHAPE>::FLOATS / THREADS;
  static_assert(TILE % (4 * THREADS) == 0, "a tile is a whole number of 16-byte packs per thread");

  unsigned row, index;   // index: of the tile within its row
  size_t begin;          // of the tile, in floats from the start of the tensor
  unsigned valid_packs;  // fewer than TILE / FLOATS in a ragged last tile

  DEVICE_MEMBER Tile(unsigned width, TileCount tiles)
      : row(tiles.divide(blockIdx.x)),
        index(blockIdx.x - row * tiles.value),
        begin(SHAPE == Shape::exact ? static_cast<size_t>(blockIdx.x) * TILE : begin_of(width, row, index)),
        valid_packs(valid_packs_of(width, index)) {}
  // Any tile, for a block that does not own one alone.
  DEVICE_MEMBER Tile(unsigned width, unsigned row, unsigned index)
      : row(row), index(index), begin(begin_of(width, row, index)), valid_packs(valid_packs_of(width, index)) {}
  DEVICE_MEMBER static size_t begin_of(unsigned width, unsigned row, unsigned index) {
    return static_cast<size_t>(row) * width + static_cast<size_t>(index) * TILE;
  }
  DEVICE_MEMBER static unsigned valid_packs_of(unsigned width, unsigned index) {
    return min(static_cast<unsigned>(TILE), width - index * TILE) / PackOf<SHAPE>::FLOATS;
  }

  DEVICE_MEMBER static unsigned position(int k) { return threadIdx.x + k * THREADS; }
  DEVICE_MEMBER bool holds(int k) const { return SHAPE == Shape::exact || position(k) < valid_packs; }

  // Calls work(k) for each pack k of the calling thread.
  template <class Work>
  DEVICE_MEMBER void for_each_pack(Work work) const {
#pragma unroll
    for (int k = 0; k < PACKS; k++)
      if (holds(k)) work(k);
  }
  DEVICE_MEMBER Pack load_pack(const float* tensor, int k) const {
    return load(reinterpret_cast<const Pack*>(tensor + begin) + position(k));
  }
  DEVICE_MEMBER void store_pack(float* tensor, int k, Pack value) const {
    store(reinterpret_cast<Pack*>(tensor + begin) + position(k), value);
  }
  // All packs of the thread at once: as many loads in flight as there are packs.
  DEVICE_MEMBER void load_packs(const float* tensor, Pack (&packs)[PACKS]) const {
    for_each_pack([&](int k) { packs[k] = load_pack(tensor, k); });
  }
  DEVICE_MEMBER void store_packs(float* tensor, const Pack (&packs)[PACKS]) const {
    for_each_pack([&](int k) { store_pack(tensor, k, packs[k]); });
  }
  DEVICE_MEMBER Statistics thread_statistics(const Pack (&packs)[PACKS]) const {
    Statistics s = no_statistics();
    for_each_pack([&](int k) { s = combine(s, statistics_of(sum(square(packs[k])), maximum(packs[k]))); });
    return s;
  }
  // Overwrites the thread's packs with their exponentials, and returns the sum of those.
  DEVICE_MEMBER float thread_exponentials(Pack (&packs)[PACKS], float row_maximum, float scale) const {
    float total = 0.0f;
    for_each_pack([&](int k) {
      packs[k] = exponential(packs[k], row_maximum, scale);
      total += sum(packs[k]);
    });
    return total;
  }
  // Writes the thread's outputs, from its packs of x.
  DEVICE_MEMBER void store_outputs(float* y, const Pack (&packs)[PACKS], float row_maximum, float scale,
                                   float inverse_sum) const {
    for_each_pack([&](int k) { store_pack(y, k, multiply(exponential(packs[k], row_maximum, scale), inverse_sum)); });
  }
};
