// One fault for each tool of compute-sanitizer, which must find it. For tests alone.
#include "tile.cuh"

// memcheck
__global__ void writes_past_end(const float* x, float* y, unsigned width) {
  if (threadIdx.x == 0) store(y + (1ull << 40), load(x) + width);
}

struct Words {
  float of_thread[64];
};

// racecheck: a neighbour's word is read without a barrier between.
__global__ void reads_neighbour_early(const float* x, float* y, unsigned width) {
  auto& words = block_shared<Words>();
  words.of_thread[threadIdx.x] = load(x + threadIdx.x % width);
  store(y + threadIdx.x, words.of_thread[63 - threadIdx.x]);
}

// initcheck: y is read before anything was written to it.
__global__ void reads_unwritten(const float* x, float* y, unsigned width) {
  if (threadIdx.x == 0) store(y, load(y + 1) + load(x) + width);
}

// synccheck: half of the block comes to the barrier.
__global__ void half_a_barrier(const float* x, float* y, unsigned width) {
  if (threadIdx.x < 40) __syncthreads();
  store(y + threadIdx.x, load(x + threadIdx.x % width));
}
