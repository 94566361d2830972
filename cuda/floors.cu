// The floors beside which every figure stands: a launch alone, and reading x and writing y once.
#include "tile.cuh"

__global__ void empty() {}

// x, y (rows, width) float, 16-byte aligned; grid: rows * tiles blocks of THREADS; no shared memory.
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS) copy(const float* x, float* y, unsigned width, TileCount tiles) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  const Mine tile(width, tiles);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  tile.store_packs(y, packs);
}
