// Local fusion: three, two or one launch, whose boundaries are the synchronisation points.
//
// x, exponentials, y           (rows, width) float, 16-byte aligned
// tile_statistics, tile_sums   (rows, tiles)
// row_statistics               (rows)
// grid           rows * tiles blocks of THREADS for each, but rows blocks for whole_rows
// shared memory  sizeof(BlockScratch<THREADS>) where a kernel reduces over the block, else none
#include "rows.cuh"

// How a launch follows the one before it: once that has finished, or (programmatic dependent launch) while it still
// runs, up to the point where it needs what that wrote. A block lets the next launch start when its own work is done:
// blocks that wait take room from blocks that work.
struct InOrder {
  static constexpr bool OVERLAPS = false;
};
struct Programmatic {
  static constexpr bool OVERLAPS = true;
};

// ---- Three launches

template <int THREADS, int TILE, Shape SHAPE, class Follow = InOrder>
__global__ void __launch_bounds__(THREADS)
    tile_statistics(const float* x, Statistics* tile_statistics, unsigned width, TileCount tiles) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  const Statistics of_tile = block_combine(tile.thread_statistics(packs), scratch);
  if (threadIdx.x == 0) store(tile_statistics + blockIdx.x, of_tile);
  if constexpr (Follow::OVERLAPS) let_next_launch_start();
}

template <int THREADS, int TILE, Shape SHAPE, class Follow = InOrder>
__global__ void __launch_bounds__(THREADS)
    exponential_sums(const float* x, const Statistics* tile_statistics, float* tile_sums, unsigned width,
                     TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  const size_t first_tile = static_cast<size_t>(tile.row) * tiles.value;
  typename Mine::Pack packs[Mine::PACKS];
  if constexpr (Follow::OVERLAPS) {
    tile.load_packs(x, packs);  // x is older than the launch before
    wait_for_launch_before();
  }
  const RowStatistics<FromEarlierLaunch> row_statistics(tile_statistics + first_tile, tiles.value);
  if constexpr (!Follow::OVERLAPS) tile.load_packs(x, packs);

  const Statistics of_row = row_statistics.combined();
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  const float exponentials = block_sum(tile.thread_exponentials(packs, of_row.y, scale), scratch);
  if (threadIdx.x == 0) store(tile_sums + blockIdx.x, exponentials);
  if constexpr (Follow::OVERLAPS) let_next_launch_start();
}

template <int THREADS, int TILE, Shape SHAPE, class Follow = InOrder>
__global__ void __launch_bounds__(THREADS)
    normalise(const float* x, const Statistics* tile_statistics, const float* tile_sums, float* y, unsigned width,
              TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  const Mine tile(width, tiles);
  const size_t first_tile = static_cast<size_t>(tile.row) * tiles.value;
  typename Mine::Pack packs[Mine::PACKS];
  if constexpr (Follow::OVERLAPS) {
    tile.load_packs(x, packs);
    wait_for_launch_before();
  }
  const RowStatistics<FromEarlierLaunch> row_statistics(tile_statistics + first_tile, tiles.value);
  const RowSum<FromEarlierLaunch> row_sum(tile_sums + first_tile, tiles.value);
  if constexpr (!Follow::OVERLAPS) tile.load_packs(x, packs);

  const Statistics of_row = row_statistics.combined();
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  const float inverse_sum = reciprocal(row_sum.combined());
  tile.store_outputs(y, packs, of_row.y, scale, inverse_sum);
}

// As exponential_sums, but the exponentials are written too.
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    exponentials(const float* x, const Statistics* tile_statistics, float* exponentials, float* tile_sums,
                 unsigned width, TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  const size_t first_tile = static_cast<size_t>(tile.row) * tiles.value;
  const RowStatistics<FromEarlierLaunch> row_statistics(tile_statistics + first_tile, tiles.value);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);

  const Statistics of_row = row_statistics.combined();
  const float of_thread = tile.thread_exponentials(packs, of_row.y, inverse_rms(of_row.x, inverse_width, eps));
  tile.store_packs(exponentials, packs);
  const float of_tile = block_sum(of_thread, scratch);
  if (threadIdx.x == 0) store(tile_sums + blockIdx.x, of_tile);
}

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    normalise_written(const float* exponentials, const float* tile_sums, float* y, unsigned width, TileCount tiles) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  const Mine tile(width, tiles);
  const RowSum<FromEarlierLaunch> row_sum(tile_sums + static_cast<size_t>(tile.row) * tiles.value, tiles.value);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(exponentials, packs);
  const float inverse_sum = reciprocal(row_sum.combined());
  tile.for_each_pack([&](int k) { tile.store_pack(y, k, multiply(packs[k], inverse_sum)); });
}

// ---- Two launches: each output tile repeats the statistics of its whole row

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    repeated_exponential_sums(const float* x, Statistics* row_statistics, float* tile_sums, unsigned width,
                              TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  const Statistics of_row = block_combine(thread_statistics_of_row<Mine>(x, tile.row, width, tiles), scratch);
  if (tile.index == 0 && threadIdx.x == 0) store(row_statistics + tile.row, of_row);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  const float of_thread = tile.thread_exponentials(packs, of_row.y, inverse_rms(of_row.x, inverse_width, eps));
  const float of_tile = block_sum(of_thread, scratch);
  if (threadIdx.x == 0) store(tile_sums + blockIdx.x, of_tile);
}

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    normalise_row(const float* x, const Statistics* row_statistics, const float* tile_sums, float* y, unsigned width,
                  TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  const Mine tile(width, tiles);
  const Statistics of_row = load(row_statistics + tile.row);
  const RowSum<FromEarlierLaunch> row_sum(tile_sums + static_cast<size_t>(tile.row) * tiles.value, tiles.value);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  const float inverse_sum = reciprocal(row_sum.combined());
  tile.store_outputs(y, packs, of_row.y, scale, inverse_sum);
}

template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    repeated_exponentials(const float* x, float* exponentials, float* tile_sums, unsigned width, TileCount tiles,
                          float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  const Statistics of_row = block_combine(thread_statistics_of_row<Mine>(x, tile.row, width, tiles), scratch);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  const float of_thread = tile.thread_exponentials(packs, of_row.y, inverse_rms(of_row.x, inverse_width, eps));
  tile.store_packs(exponentials, packs);
  const float of_tile = block_sum(of_thread, scratch);
  if (threadIdx.x == 0) store(tile_sums + blockIdx.x, of_tile);
}

// ---- One launch

// Each output tile repeats all of its row's work.
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    repeated_rows(const float* x, float* y, unsigned width, TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  const Statistics of_row = block_combine(thread_statistics_of_row<Mine>(x, tile.row, width, tiles), scratch);
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  const float of_thread = thread_exponentials_of_row<Mine>(x, tile.row, width, tiles, of_row.y, scale);
  const float inverse_sum = reciprocal(block_sum(of_thread, scratch));
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  tile.store_outputs(y, packs, of_row.y, scale, inverse_sum);
}

// A block streams a whole row three times, and no work is repeated.
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    whole_rows(const float* x, float* y, unsigned width, TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const unsigned row = blockIdx.x;
  const Statistics of_row = block_combine(thread_statistics_of_row<Mine>(x, row, width, tiles), scratch);
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  const float of_thread = thread_exponentials_of_row<Mine>(x, row, width, tiles, of_row.y, scale);
  const float inverse_sum = reciprocal(block_sum(of_thread, scratch));
  for_each_tile<Mine>(x, row, width, tiles, [&](const Mine& tile, const typename Mine::Pack(&packs)[Mine::PACKS]) {
    tile.store_outputs(y, packs, of_row.y, scale, inverse_sum);
  });
}
