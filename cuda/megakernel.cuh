// The whole operator in one launch: a block keeps its tile in shared memory across both barriers.
#pragma once
#include "tile.cuh"

template <int THREADS, int TILE, Shape SHAPE>
struct RetainedTile {
  typename Tile<THREADS, TILE, SHAPE>::Pack packs[TILE / PackOf<SHAPE>::FLOATS];  // x, then exponentials
  BlockScratch<THREADS> scratch;
};

// What else happens to the retained packs at each step. Here nothing: that is the point of the kernel.
struct Retain {
  template <class Tile, class Packs>
  DEVICE_MEMBER void before_exponentials(const Tile&, Packs&, const float*) const {}
  template <class Tile, class Packs>
  DEVICE_MEMBER void after_exponentials(const Tile&, const Packs&) const {}
  template <class Tile, class Packs>
  DEVICE_MEMBER void before_normalising(const Tile&, Packs&) const {}
};

// Barrier: a type with arrive_and_wait(), meeting at least the blocks of a row. Storage: Retain, or a type like it.
// A thread reads only the packs it wrote itself, so the buffer needs no barrier of the block.
template <int THREADS, int TILE, Shape SHAPE, class Barrier, class Storage>
DEVICE void retained_softmax(const float* x, Statistics* tile_statistics, float* tile_sums, float* y, Barrier barrier,
                             Storage storage, unsigned width, TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& shared = block_shared<RetainedTile<THREADS, TILE, SHAPE>>();
  const Mine tile(width, tiles);
  const size_t first_tile = static_cast<size_t>(tile.row) * tiles.value;

  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  tile.for_each_pack([&](int k) { shared.packs[tile.position(k)] = packs[k]; });
  const Statistics of_tile = block_combine(tile.thread_statistics(packs), shared.scratch);
  if (threadIdx.x == 0) publish(tile_statistics + blockIdx.x, of_tile);

  barrier.arrive_and_wait();
  const Statistics of_row = RowStatistics<FromThisLaunch>(tile_statistics + first_tile, tiles.value).combined();
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  storage.before_exponentials(tile, shared.packs, x);
  float exponentials = 0.0f;
  tile.for_each_pack([&](int k) {
    const auto e = exponential(shared.packs[tile.position(k)], of_row.y, scale);
    shared.packs[tile.position(k)] = e;
    exponentials += sum(e);
  });
  storage.after_exponentials(tile, shared.packs);
  const float of_tile_exponentials = block_sum(exponentials, shared.scratch);
  if (threadIdx.x == 0) publish(tile_sums + blockIdx.x, of_tile_exponentials);

  barrier.arrive_and_wait();
  storage.before_normalising(tile, shared.packs);
  const float inverse_sum = reciprocal(RowSum<FromThisLaunch>(tile_sums + first_tile, tiles.value).combined());
  tile.for_each_pack([&](int k) { tile.store_pack(y, k, multiply(shared.packs[tile.position(k)], inverse_sum)); });
}
