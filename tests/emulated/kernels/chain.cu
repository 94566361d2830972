// Three launches, of which the second and the third may start early. y ends as a copy of x.
//
// x, first, second, y   (rows, width) float; grid: rows * tiles blocks of THREADS; no shared memory
#include "tile.cuh"

template <int THREADS, int TILE, Shape SHAPE>
__global__ void write_first(const float* x, float* first, unsigned width, TileCount tiles) {
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  let_next_launch_start();
  tile.for_each_pack([&](int k) { tile.store_pack(first, k, tile.load_pack(x, k)); });
}

template <int THREADS, int TILE, Shape SHAPE>
__global__ void write_second(const float* first, float* second, unsigned width, TileCount tiles) {
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  let_next_launch_start();
  wait_for_launch_before();
  tile.for_each_pack([&](int k) { tile.store_pack(second, k, tile.load_pack(first, k)); });
}

// What it reads before it waits.
enum class Early { x, first, second };

template <int THREADS, int TILE, Shape SHAPE, Early EARLY>
__global__ void write_y(const float* x, const float* first, const float* second, float* y, unsigned width,
                        TileCount tiles) {
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  const float* const early = EARLY == Early::x ? x : EARLY == Early::first ? first : second;
  tile.for_each_pack([&](int k) { tile.load_pack(early, k); });  // fault
  wait_for_launch_before();
  tile.for_each_pack([&](int k) {
    tile.load_pack(EARLY == Early::x ? first : x, k);
    tile.load_pack(EARLY == Early::second ? first : second, k);
    tile.store_pack(y, k, tile.load_pack(second, k));
  });
}
