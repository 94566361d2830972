// retained: one cooperative launch, two barriers among all blocks of the grid.
//
// x, y           (rows, width) float, 16-byte aligned
// tile_statistics, tile_sums   (rows, tiles)
// grid           rows * tiles blocks of THREADS, all resident at once, launched cooperatively
// shared memory  sizeof(RetainedTile<THREADS, TILE, SHAPE>)
#include "grid_barrier.cuh"
#include "megakernel.cuh"

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    retained(const float* x, Statistics* tile_statistics, float* tile_sums, float* y, unsigned width, TileCount tiles,
             float inverse_width, float eps) {
  retained_softmax<THREADS, TILE, SHAPE>(x, tile_statistics, tile_sums, y, GridBarrier(), Retain(), width, tiles,
                                         inverse_width, eps);
}
