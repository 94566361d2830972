// Local fusion: three launches, whose boundaries are the two synchronisation points.
//
// x, y           (rows, width) float, 16-byte aligned
// tile_statistics, tile_sums   (rows, tiles)
// grid           rows * tiles blocks of THREADS, for each
// shared memory  sizeof(BlockScratch<THREADS>) where a kernel reduces over the block, else none
#include "tile.cuh"

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    tile_statistics(const float* x, Statistics* tile_statistics, unsigned width, TileCount tiles) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  const Statistics of_tile = block_combine(tile.thread_statistics(packs), scratch);
  if (threadIdx.x == 0) store(tile_statistics + blockIdx.x, of_tile);
}

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    exponential_sums(const float* x, const Statistics* tile_statistics, float* tile_sums, unsigned width,
                     TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  const size_t first_tile = static_cast<size_t>(tile.row) * tiles.value;
  const RowStatistics<FromEarlierLaunch> row_statistics(tile_statistics + first_tile, tiles.value);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);

  const Statistics of_row = row_statistics.combined();
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  float exponentials = 0.0f;
  tile.for_each_pack([&](int k) { exponentials += sum(exponential(packs[k], of_row.y, scale)); });
  exponentials = block_sum(exponentials, scratch);
  if (threadIdx.x == 0) store(tile_sums + blockIdx.x, exponentials);
}

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    normalise(const float* x, const Statistics* tile_statistics, const float* tile_sums, float* y, unsigned width,
              TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  const Mine tile(width, tiles);
  const size_t first_tile = static_cast<size_t>(tile.row) * tiles.value;
  const RowStatistics<FromEarlierLaunch> row_statistics(tile_statistics + first_tile, tiles.value);
  const RowSum<FromEarlierLaunch> row_sum(tile_sums + first_tile, tiles.value);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);

  const Statistics of_row = row_statistics.combined();
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  const float inverse_sum = reciprocal(row_sum.combined());
  tile.for_each_pack(
      [&](int k) { tile.store_pack(y, k, multiply(exponential(packs[k], of_row.y, scale), inverse_sum)); });
}
