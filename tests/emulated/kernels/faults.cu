// Kernels that are wrong, each in one way, and one that is right. All take the same arguments:
//
// values  1024 floats          words  64 unsigned, zero
// grid    4 blocks of 64 threads
// shared  sizeof(Shared)
//
// A test finds the line to expect by its comment "fault".
#include <cooperative_groups.h>

#include "barriers.cuh"

struct Shared {
  float values[64];
};

DEVICE unsigned global_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void correct(float* values, unsigned* words) {
  auto& shared = block_shared<Shared>();
  shared.values[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  store(values + global_index(), shared.values[63 - threadIdx.x] + static_cast<float>(blockIdx.x));
  if (threadIdx.x == 0) atomicAdd(words, 1);
}

__global__ void deadlock(float*, unsigned* words) {
  if (blockIdx.x > 1 && threadIdx.x < 3) {
    spin_until([=] { return load_acquire(words) == 1; });  // fault
  }
}

__global__ void divergent_barrier(float*, unsigned*) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();  // fault
  }
}

__global__ void lane_skips_shuffle(float* values, unsigned*) {
  float value = 1.0f;
  if (threadIdx.x != 5) value = __shfl_xor_sync(FULL_WARP, value, 1);
  __syncthreads();  // fault
  store(values + global_index(), value);
}

__global__ void different_shuffles(float* values, unsigned*) {
  float value = 1.0f;
  if (threadIdx.x % 2 == 0) {
    value = __shfl_xor_sync(FULL_WARP, value, 1);
  } else {
    value = __shfl_xor_sync(FULL_WARP, value, 1);  // fault
  }
  store(values + global_index(), value);
}

__global__ void shuffle_from_outside_mask(float* values, unsigned*) {
  float value = 1.0f;
  if (threadIdx.x % 32 < 16) value = __shfl_sync(0xffffu, value, 20);  // fault
  store(values + global_index(), value);
}

__global__ void exit_before_barrier(float*, unsigned*) {
  if (threadIdx.x == 7) return;
  __syncthreads();  // fault
}

__global__ void exit_before_shuffle(float* values, unsigned*) {
  if (threadIdx.x == 7) return;
  store(values + global_index(), __shfl_xor_sync(FULL_WARP, 1.0f, 1));  // fault
}

__global__ void load_past_end(float* values, unsigned*) {
  const unsigned past = blockIdx.x == 2 && threadIdx.x == 9 ? 1024 : 0;
  store(values + global_index(), load(values + past));  // fault
}

__global__ void store_before_begin(float* values, unsigned*) {
  if (threadIdx.x == 0) store(values - 1, 1.0f);  // fault
}

__global__ void raw_read_past_end(float* values, unsigned* words) {
  const float far = values[1024 + load(words)];  // fault
  store(values, far);
}

__global__ void raw_write_past_end(float* values, unsigned* words) {
  values[1024 + load(words)] = 1.0f;  // fault
}

__global__ void raw_write_before_begin(float* values, unsigned* words) {
  const int before = -1 - static_cast<int>(load(words));
  if (threadIdx.x == 0) values[before] = 1.0f;
}

__global__ void null_pointer(float*, unsigned*) { store(static_cast<float*>(nullptr) + threadIdx.x, 1.0f); }

__global__ void shared_past_end(float*, unsigned* words) {
  auto& shared = block_shared<Shared>();
  shared.values[threadIdx.x + 1 + load(words)] = 1.0f;  // fault
}

__global__ void shared_before_begin(float*, unsigned* words) {
  auto& shared = block_shared<Shared>();
  float* values = shared.values;
  values[-1 - static_cast<int>(load(words))] = 1.0f;
}

__global__ void uninitialised_shared(float* values, unsigned*) {
  auto& shared = block_shared<Shared>();
  store(values + global_index(), shared.values[threadIdx.x]);
}

__global__ void misaligned(float* values, unsigned*) {
  const float4 four = load(reinterpret_cast<const float4*>(values + 1));  // fault
  store(values, four.x);
}

__global__ void shared_size(float* values, unsigned*) {
  struct Smaller {
    float values[63];
  };
  auto& shared = block_shared<Smaller>();  // fault
  store(values, shared.values[0]);
}

__global__ void grid_sync(float* values, unsigned* words) {
  atomicAdd(words + 1, 1);
  cooperative_groups::this_grid().sync();  // fault
  store(values + global_index(), static_cast<float>(load_acquire(words + 1)));
}

__global__ void impure_predicate(float*, unsigned* words) {
  spin_until([=] {
    return atomicAdd(words, 1) > 100;  // fault
  });
}

__global__ void trap(float*, unsigned*) {
  if (blockIdx.x == 3 && threadIdx.x == 2) __trap();  // fault
}

__global__ void endless_loop(float*, unsigned* words) {
  while (load_acquire(words) == 0) {  // fault
  }
}

__global__ void stack_overflow(float* values, unsigned* words) {
  volatile float large[6000];
  for (int i = 0; i < 6000; i++) large[i] = 1.0f;
  __syncthreads();
  store(values + global_index(), static_cast<float>(large[load(words)]));
}

__global__ void divide_by_zero(float* values, unsigned* words) {
  const unsigned zero = load(words);
  store(values + global_index(), static_cast<float>(global_index() / zero));  // fault
}

__global__ void local_array_overrun(float* values, unsigned* words) {
  float local[4] = {};
  local[4 + load(words)] = 1.0f;  // fault
  store(values + global_index(), local[threadIdx.x % 4]);
}

// Every block publishes and counts; the last one to count sums up. Right only with a release: a relaxed count does
// not order the published values before it.
template <bool RELEASE>
__global__ void __launch_bounds__(64) last_block_sums(float* values, unsigned* words) {
  if (threadIdx.x != 0) return;
  publish(values + blockIdx.x, static_cast<float>(blockIdx.x + 1));
  const unsigned before = RELEASE ? add_release(words, 1) : atomicAdd(words, 1);
  if (before + 1 < gridDim.x) return;
  float sum = 0.0f;
  for (unsigned block = 0; block < gridDim.x; block++) sum += observe(values + block);
  store(values + 512, sum);
}

// What the block published before a barrier, any of its threads releases, and all of them see.
__global__ void publish_barrier_release(float* values, unsigned* words) {
  publish(values + global_index(), static_cast<float>(threadIdx.x));
  __syncthreads();
  const float neighbour = observe(values + blockIdx.x * blockDim.x + (threadIdx.x + 1) % blockDim.x);
  if (threadIdx.x == 0) {
    add_release(words, 1);
    spin_until([=] { return load_acquire(words) == gridDim.x; });
  }
  __syncthreads();
  const unsigned other_block = (blockIdx.x + 1) % gridDim.x;
  const float remote = observe(values + other_block * blockDim.x + threadIdx.x);
  store(values + 512 + global_index(), neighbour + remote);
}

__global__ void warp_operations(float* values, unsigned* words) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned odd = __ballot_sync(FULL_WARP, lane % 2);
  const float up = __shfl_up_sync(FULL_WARP, static_cast<float>(lane), 1);
  const float down = __shfl_down_sync(FULL_WARP, static_cast<float>(lane), 4, 8);
  const float first = __shfl_sync(FULL_WARP, static_cast<float>(lane), 0, 16);
  const float mirrored = __shfl_xor_sync(FULL_WARP, static_cast<float>(lane), 31);
  __syncwarp();
  if (blockIdx.x == 0 && threadIdx.x < 32) {
    store(words + lane, odd);
    store(values + lane, up);
    store(values + 32 + lane, down);
    store(values + 64 + lane, first);
    store(values + 96 + lane, mirrored);
  }
}

// ---- Programmatic launches. Which of the buffers a launch before still uses, the test says.

__global__ void reads_before_waiting(float* values, unsigned* words) {
  const unsigned word = load(words);  // fault
  wait_for_launch_before();
  store(values + global_index(), static_cast<float>(word));
}

__global__ void writes_before_waiting(float* values, unsigned* words) {
  store(values + global_index(), 1.0f);  // fault
  wait_for_launch_before();
  store(values + global_index(), static_cast<float>(load(words)));
}

__global__ void counts_before_waiting(float*, unsigned* words) {
  let_next_launch_start();
  if (threadIdx.x == 0) atomicAdd(words, 1);  // fault
  wait_for_launch_before();
}

__global__ void waits_first(float* values, unsigned* words) {
  wait_for_launch_before();
  store(values + global_index(), static_cast<float>(load(words)));
}

__global__ void one_thread_waits(float* values, unsigned*) {
  if (threadIdx.x == 0) wait_for_launch_before();
  store(values + global_index(), 1.0f);  // fault
}

__global__ void one_thread_waits_for_its_block(float* values, unsigned*) {
  if (threadIdx.x == 0) wait_for_launch_before();
  __syncthreads();
  store(values + global_index(), 1.0f);
}
