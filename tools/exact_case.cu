// Kernels with the width built in, beside which the general ones are measured (tools/exact_case.py).
#include "barriers.cuh"
#include "megakernel.cuh"

constexpr unsigned WIDTH = 131072;
constexpr float EPS = 1e-5f;

template <int TILE>
DEVICE TileCount tiles_of_row() {
  return {WIDTH / TILE, 0xffffffffu / (WIDTH / TILE)};
}

// The arguments are those of the general kernel, and ignored.
template <int THREADS, int TILE>
__global__ void __launch_bounds__(THREADS)
    baked_row_retained(const float* x, Statistics* tile_statistics, float* tile_sums, float* y, unsigned* row_barriers,
                       unsigned, TileCount, float, float) {
  constexpr unsigned TILES = WIDTH / TILE;
  const RowBarrier barrier(row_barriers, blockIdx.x / TILES, TILES, blockIdx.x % TILES);
  retained_softmax<THREADS, TILE, Shape::exact>(x, tile_statistics, tile_sums, y, barrier, Retain(), WIDTH,
                                                tiles_of_row<TILE>(), 1.0f / WIDTH, EPS);
}
