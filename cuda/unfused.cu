// The unfused baseline: nine launches, K1 to K9, every intermediate tensor written to global memory.
//
// x, squares, exponentials, y                     (rows, width) float, 16-byte aligned
// tile_square_sums, tile_maxima, tile_sums        (rows, tiles)
// row_inverse_rms, row_maxima, row_sums           (rows)
// grid           rows * tiles blocks for kernels over elements or tiles, rows blocks of one warp for those over rows
// shared memory  sizeof(BlockScratch<THREADS>) where a kernel reduces over the block, else none
#include "tile.cuh"

// K1
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS) squares(const float* x, float* squares, unsigned width, TileCount tiles) {
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  tile.for_each_pack([&](int k) { tile.store_pack(squares, k, square(tile.load_pack(x, k))); });
}

// K2 of the squares, K7 of the exponentials
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    tile_sums(const float* elements, float* tile_sums, unsigned width, TileCount tiles) {
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  float total = 0.0f;
  tile.for_each_pack([&](int k) { total += sum(tile.load_pack(elements, k)); });
  total = block_sum(total, scratch);
  if (threadIdx.x == 0) store(tile_sums + blockIdx.x, total);
}

// K3
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    tile_maxima(const float* x, float* tile_maxima, unsigned width, TileCount tiles) {
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  float largest = -infinity();
  tile.for_each_pack([&](int k) { largest = fmaxf(largest, maximum(tile.load_pack(x, k))); });
  largest = block_maximum(largest, scratch);
  if (threadIdx.x == 0) store(tile_maxima + blockIdx.x, largest);
}

// K4, K5 and K8: one warp per row
__global__ void row_inverse_rms(const float* tile_square_sums, float* row_inverse_rms, TileCount tiles,
                                float inverse_width, float eps) {
  const size_t first_tile = static_cast<size_t>(blockIdx.x) * tiles.value;
  const float square_sum = RowSum<FromEarlierLaunch>(tile_square_sums + first_tile, tiles.value).combined();
  if (threadIdx.x == 0) store(row_inverse_rms + blockIdx.x, inverse_rms(square_sum, inverse_width, eps));
}
__global__ void row_maxima(const float* tile_maxima, float* row_maxima, TileCount tiles) {
  const size_t first_tile = static_cast<size_t>(blockIdx.x) * tiles.value;
  float largest = -infinity();
  for (unsigned tile = threadIdx.x; tile < tiles.value; tile += 32)
    largest = fmaxf(largest, load(tile_maxima + first_tile + tile));
  largest = warp_maximum(largest);
  if (threadIdx.x == 0) store(row_maxima + blockIdx.x, largest);
}
__global__ void row_sums(const float* tile_sums, float* row_sums, TileCount tiles) {
  const size_t first_tile = static_cast<size_t>(blockIdx.x) * tiles.value;
  const float total = RowSum<FromEarlierLaunch>(tile_sums + first_tile, tiles.value).combined();
  if (threadIdx.x == 0) store(row_sums + blockIdx.x, total);
}

// K6
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    exponentials(const float* x, const float* row_inverse_rms, const float* row_maxima, float* exponentials,
                 unsigned width, TileCount tiles) {
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  const float scale = load(row_inverse_rms + tile.row), largest = load(row_maxima + tile.row);
  tile.for_each_pack(
      [&](int k) { tile.store_pack(exponentials, k, exponential(tile.load_pack(x, k), largest, scale)); });
}

// K9
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    normalise(const float* exponentials, const float* row_sums, float* y, unsigned width, TileCount tiles) {
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  const float total = load(row_sums + tile.row);
  tile.for_each_pack([&](int k) { tile.store_pack(y, k, divide(tile.load_pack(exponentials, k), total)); });
}
