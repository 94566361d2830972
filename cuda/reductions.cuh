// Sums and maxima over a warp and over a block, and over the tiles of a row.
#pragma once
#include "primitives.cuh"

DEVICE float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(FULL_WARP, value, offset);
  return value;
}
DEVICE float warp_maximum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, offset));
  return value;
}

// A sum of squares and a maximum, reduced together: of a thread, a tile or a row.
using Statistics = float2;
DEVICE Statistics statistics_of(float square_sum, float maximum) { return make_float2(square_sum, maximum); }
DEVICE Statistics no_statistics() { return statistics_of(0.0f, -infinity()); }
DEVICE Statistics combine(Statistics a, Statistics b) { return statistics_of(a.x + b.x, fmaxf(a.y, b.y)); }
DEVICE Statistics warp_combine(Statistics s) { return statistics_of(warp_sum(s.x), warp_maximum(s.y)); }

// Words for one reduction of statistics and one of plain values: a kernel uses each once, so that no barrier is needed
// to free them again.
template <int THREADS>
struct alignas(16) BlockScratch {
  static_assert(THREADS % 32 == 0 && THREADS <= 1024, "a block is 1 to 32 whole warps");
  static constexpr int WARPS = THREADS / 32;
  Statistics statistics[WARPS];
  float values[WARPS];
};

// Over the block, the result in every thread. Contains one __syncthreads.
template <int THREADS>
DEVICE Statistics block_combine(Statistics s, BlockScratch<THREADS>& scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  s = warp_combine(s);
  if (lane == 0) scratch.statistics[warp] = s;
  __syncthreads();
  return warp_combine(lane < scratch.WARPS ? scratch.statistics[lane] : no_statistics());
}
template <int THREADS>
DEVICE float block_sum(float value, BlockScratch<THREADS>& scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  value = warp_sum(value);
  if (lane == 0) scratch.values[warp] = value;
  __syncthreads();
  return warp_sum(lane < scratch.WARPS ? scratch.values[lane] : 0.0f);
}
template <int THREADS>
DEVICE float block_maximum(float value, BlockScratch<THREADS>& scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  value = warp_maximum(value);
  if (lane == 0) scratch.values[warp] = value;
  __syncthreads();
  return warp_maximum(lane < scratch.WARPS ? scratch.values[lane] : -infinity());
}

// How to read words that other blocks wrote: in an earlier launch, or in this one.
struct FromEarlierLaunch {
  static constexpr int EARLY = 4;  // reads of a lane in flight at once: rows of up to 128 tiles
  template <class T>
  DEVICE_MEMBER T operator()(const T* address) const {
    return load(address);
  }
};
struct FromThisLaunch {
  static constexpr int EARLY = 2;  // right after a barrier nothing else is in flight: fewer registers count more
  template <class T>
  DEVICE_MEMBER T operator()(const T* address) const {
    return observe(address);
  }
};

struct Combine {
  DEVICE_MEMBER Statistics operator()(Statistics a, Statistics b) const { return combine(a, b); }
};
struct Add {
  DEVICE_MEMBER float operator()(float a, float b) const { return a + b; }
};

// A row's values of tiles, dealt to the lanes of a warp. The first reads are issued when the object is made, to be
// in flight together with whatever is read next; behind a tile's loads they would wait for all of the SM's.
template <class T, class Read, class Merge>
struct RowValues {
  static constexpr int EARLY = Read::EARLY;

  const T* of_tiles;
  unsigned tiles;
  T neutral, early[EARLY];

  DEVICE_MEMBER RowValues(const T* of_tiles, unsigned tiles, T neutral)
      : of_tiles(of_tiles), tiles(tiles), neutral(neutral) {
#pragma unroll
    for (int i = 0; i < EARLY; i++) early[i] = at(threadIdx.x % 32 + 32 * i);
  }
  DEVICE_MEMBER T at(unsigned tile) const { return tile < tiles ? Read()(of_tiles + tile) : neutral; }
  DEVICE_MEMBER T merged_by_lane() const {
    const Merge merge;
    T merged = early[0];
#pragma unroll
    for (int i = 1; i < EARLY; i++) merged = merge(merged, early[i]);
#pragma unroll 1
    for (unsigned tile = threadIdx.x % 32 + 32 * EARLY; tile < tiles; tile += 32) merged = merge(merged, at(tile));
    return merged;
  }
};

// Over the tiles of a row, by each warp for itself: made early, combined when needed.
template <class Read>
struct RowStatistics : RowValues<Statistics, Read, Combine> {
  DEVICE_MEMBER RowStatistics(const Statistics* of_tiles, unsigned tiles)
      : RowValues<Statistics, Read, Combine>(of_tiles, tiles, no_statistics()) {}
  DEVICE_MEMBER Statistics combined() const { return warp_combine(this->merged_by_lane()); }
};
template <class Read>
struct RowSum : RowValues<float, Read, Add> {
  DEVICE_MEMBER RowSum(const float* of_tiles, unsigned tiles) : RowValues<float, Read, Add>(of_tiles, tiles, 0.0f) {}
  DEVICE_MEMBER float combined() const { return warp_sum(this->merged_by_lane()); }
};

// 1 / sqrt(mean square + eps), and NaN where the sum is NaN or overflowed: a row outside the contract must
// become a row of NaN, never a plausible one.
// Takes 1 / width, not width: the division then does not wait for the sum.
DEVICE float inverse_rms(float square_sum, float inverse_width, float eps) {
  const float mean = square_sum * inverse_width;
  return mean <= LARGEST_FLOAT ? rsqrtf(mean + eps) : not_a_number();
}
