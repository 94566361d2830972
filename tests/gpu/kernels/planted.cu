// Kernels that do what a healthy one must not, or that take a known time. For tests alone.
#include "barriers.cuh"
#include "tile.cuh"

// The first block of each row leaves, and the others wait for it.
__global__ void never_met(float* y, unsigned* row_barriers, TileCount tiles) {
  const unsigned row = tiles.divide(blockIdx.x);
  const unsigned index = blockIdx.x - row * tiles.value;
  if (index != 0) RowBarrier(row_barriers, row, tiles.value, index).arrive_and_wait();
  if (threadIdx.x == 0) store(y + blockIdx.x, 0.0f);
}

// One block that takes 10 ms by the GPU's own clock.
__global__ void ten_milliseconds() {
  const unsigned long long started = device_time_ns();
  spin_until([=] { return device_time_ns() - started >= 10000000ull; });
}

// A pair for programmatic launch: the first lets the next start at once and works on for 50 us.
__global__ void starts_next_early(float* y) {
  let_next_launch_start();
  const unsigned long long started = device_time_ns();
  spin_until([=] { return device_time_ns() - started >= 50000ull; });
  if (threadIdx.x == 0) store(y, 1.0f);
}
__global__ void follows_early(float* y) {
  wait_for_launch_before();
  if (threadIdx.x == 0) store(y, 2.0f);
}

// A copy whose offsets have 32 bits: rows beyond 2^32 elements land on the first ones.
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS) narrow_copy(const float* x, float* y, unsigned width, TileCount tiles) {
  Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  tile.begin = static_cast<unsigned>(tile.begin);
  tile.for_each_pack([&](int k) { tile.store_pack(y, k, tile.load_pack(x, k)); });
}

// Copies x, and writes far outside every buffer from the 60th invocation on; the barrier words count.
template <int THREADS, int TILE, Shape SHAPE>
__global__ void __launch_bounds__(THREADS)
    copy_then_fault(const float* x, float* y, unsigned* row_barriers, unsigned width, TileCount tiles) {
  const Tile<THREADS, TILE, SHAPE> tile(width, tiles);
  tile.for_each_pack([&](int k) { tile.store_pack(y, k, tile.load_pack(x, k)); });
  if (blockIdx.x == 0 && threadIdx.x == 0 && add_release(row_barriers, 1u) >= 60) store(y + (1ull << 40), 0.0f);
}

// Touches all dynamic shared memory it was given.
__global__ void fill_shared(float* y, unsigned bytes) {
  auto& shared = block_shared<unsigned char[1]>();
  for (unsigned i = threadIdx.x; i < bytes; i += 32) shared[i] = static_cast<unsigned char>(i);
  __syncthreads();
  if (threadIdx.x == 0) store(y, static_cast<float>(shared[bytes - 1]));
}
