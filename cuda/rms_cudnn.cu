// rms_cudnn: what comes before cuDNN's softmax. Each output tile repeats the statistics of its whole row.
//
// x, arguments   (rows, width) float, 16-byte aligned
// grid           rows * tiles blocks of THREADS
// shared memory  sizeof(BlockScratch<THREADS>)
#include "rows.cuh"

// (x - row maximum) / rms. The softmax is the same without the subtraction, but x / rms alone would round away digits
// that cuDNN's own subtraction then needs.
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS) softmax_arguments(const float* x, float* arguments, unsigned width,
                                                             TileCount tiles, float inverse_width, float eps) {
  using Mine = Tile<THREADS, TILE, SHAPE>;
  auto& scratch = block_shared<BlockScratch<THREADS>>();
  const Mine tile(width, tiles);
  const Statistics of_row = block_combine(thread_statistics_of_row<Mine>(x, tile.row, width, tiles), scratch);
  const float scale = inverse_rms(of_row.x, inverse_width, eps);
  typename Mine::Pack packs[Mine::PACKS];
  tile.load_packs(x, packs);
  tile.for_each_pack([&](int k) { tile.store_pack(arguments, k, argument(packs[k], of_row.y, scale)); });
}
