// Clusters of 4 blocks that hand each other a number through distributed shared memory.
//
// values  one float for each block     words  unused
// shared  sizeof(Mailbox)
#include "primitives.cuh"

struct Mailbox {
  float received;
};

enum class Guards { both, none_at_start, none_at_end };

template <Guards GUARDS>
__global__ void pass_to_next_rank(float* values, unsigned*) {
  auto& mailbox = block_shared<Mailbox>();
  const unsigned rank = emulator::cluster_rank(), size = emulator::cluster_size();
  if (GUARDS != Guards::none_at_start) {
    emulator::cluster_arrive(emulator::here());
    emulator::cluster_wait(emulator::here());
  }
  Mailbox* next = emulator::map_shared_rank(&mailbox, (rank + 1) % size, emulator::here());
  if (threadIdx.x == 0) next->received = static_cast<float>(blockIdx.x);  // fault: not started
  emulator::cluster_arrive(emulator::here());
  emulator::cluster_wait(emulator::here());
  if (threadIdx.x == 0) store(values + blockIdx.x, mailbox.received);
  if (GUARDS == Guards::none_at_end && rank == size - 1 && threadIdx.x == 0) {
    emulator::map_shared_rank(&mailbox, 0, emulator::here())->received = 0.0f;  // fault: has left
  }
}

__global__ void no_such_rank(float* values, unsigned*) {
  auto& mailbox = block_shared<Mailbox>();
  store(values, emulator::map_shared_rank(&mailbox, 4, emulator::here())->received);  // fault: rank
}

__global__ void wait_without_arrive(float*, unsigned*) {
  emulator::cluster_wait(emulator::here());  // fault: wait
}
