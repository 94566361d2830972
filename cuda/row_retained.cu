// row_retained: one cooperative launch, two barriers among the blocks of a row.
//
// x, y           (rows, width) float, 16-byte aligned
// tile_statistics, tile_sums   (rows, tiles)
// row_barriers   (rows, ROW_BARRIER_WORDS), zero before the first launch
// grid           rows * tiles blocks of THREADS, all resident at once
// shared memory  sizeof(RetainedTile<THREADS, TILE, SHAPE>)
#include "barriers.cuh"
#include "megakernel.cuh"

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    row_retained(const float* x, Statistics* tile_statistics, float* tile_sums, float* y, unsigned* row_barriers,
                 unsigned width, TileCount tiles, float inverse_width, float eps) {
  const unsigned row = tiles.divide(blockIdx.x);
  const RowBarrier barrier(row_barriers, row, tiles.value, blockIdx.x - row * tiles.value);
  retained_softmax<THREADS, TILE, SHAPE>(x, tile_statistics, tile_sums, y, barrier, Retain(), width, tiles,
                                         inverse_width, eps);
}
