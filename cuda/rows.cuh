// Whole rows read by one block, tile after tile: for kernels that repeat a row's work instead of sharing it.
#pragma once
#include "tile.cuh"

// Calls work(tile, packs) for each tile of a row, with the thread's packs loaded.
template <class Tile, class Work>
DEVICE void for_each_tile(const float* tensor, unsigned row, unsigned width, TileCount tiles, Work work) {
  for (unsigned index = 0; index < tiles.value; index++) {
    const Tile tile(width, row, index);
    typename Tile::Pack packs[Tile::PACKS];
    tile.load_packs(tensor, packs);
    work(tile, packs);
  }
}

// A thread's share of what the block then reduces.
template <class Tile>
DEVICE Statistics thread_statistics_of_row(const float* x, unsigned row, unsigned width, TileCount tiles) {
  Statistics s = no_statistics();
  for_each_tile<Tile>(x, row, width, tiles, [&](const Tile& tile, const typename Tile::Pack(&packs)[Tile::PACKS]) {
    s = combine(s, tile.thread_statistics(packs));
  });
  return s;
}
template <class Tile>
DEVICE float thread_exponentials_of_row(const float* x, unsigned row, unsigned width, TileCount tiles,
                                        float row_maximum, float scale) {
  float total = 0.0f;
  for_each_tile<Tile>(x, row, width, tiles, [&](const Tile& tile, typename Tile::Pack(&packs)[Tile::PACKS]) {
    total += tile.thread_exponentials(packs, row_maximum, scale);
  });
  return total;
}
