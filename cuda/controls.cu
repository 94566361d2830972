// controls: retained with switches that undo the retention, in one binary, so that code, registers, shared memory,
// tile, grid and launch count are the same whatever the switches say.
//
// x, exponentials, y           (rows, width) float, 16-byte aligned
// tile_statistics, tile_sums   (rows, tiles)
// reload_input                 not 0: x is read again before the exponentials
// spill_exponentials           not 0: the exponentials are written, and read again before normalising
// grid           rows * tiles blocks of THREADS, all resident at once, launched cooperatively
// shared memory  sizeof(RetainedTile<THREADS, TILE, SHAPE>)
#include "grid_barrier.cuh"
#include "megakernel.cuh"

// What is read again is staged through the shared memory, with a barrier of the block, as in the published controls:
// a penalty measured with them includes both.
struct Reload {
  float* exponentials;
  bool reload_input, spill_exponentials;

  template <class Tile, class Packs>
  DEVICE_MEMBER void stage(const Tile& tile, Packs& packs, const float* tensor) const {
    tile.for_each_pack([&](int k) { packs[tile.position(k)] = tile.load_pack(tensor, k); });
    __syncthreads();
  }
  template <class Tile, class Packs>
  DEVICE_MEMBER void before_exponentials(const Tile& tile, Packs& packs, const float* x) const {
    if (reload_input) stage(tile, packs, x);
  }
  template <class Tile, class Packs>
  DEVICE_MEMBER void after_exponentials(const Tile& tile, const Packs& packs) const {
    if (spill_exponentials)
      tile.for_each_pack([&](int k) { tile.store_pack(exponentials, k, packs[tile.position(k)]); });
  }
  template <class Tile, class Packs>
  DEVICE_MEMBER void before_normalising(const Tile& tile, Packs& packs) const {
    if (spill_exponentials) stage(tile, packs, exponentials);
  }
};

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    controls(const float* x, Statistics* tile_statistics, float* tile_sums, float* exponentials, float* y,
             unsigned width, TileCount tiles, float inverse_width, float eps, unsigned reload_input,
             unsigned spill_exponentials) {
  const Reload storage{exponentials, reload_input != 0, spill_exponentials != 0};
  retained_softmax<THREADS, TILE, SHAPE>(x, tile_statistics, tile_sums, y, GridBarrier(), storage, width, tiles,
                                         inverse_width, eps);
}
