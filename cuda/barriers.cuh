// Barriers between the blocks of a launch. All blocks that meet must be resident at once: launch cooperatively.
#pragma once
#include "primitives.cuh"

// The barrier words of neighbouring rows lie in different 128-byte lines, so that rows do not disturb each other.
constexpr unsigned ROW_BARRIER_WORDS = 32;

// Meets the blocks of one row. The word starts as zero and needs no reset between uses, launches or replays:
// the top bit is the sense, and the leader adds what makes the members' sum flip exactly that bit.
struct RowBarrier {
  unsigned* word;
  unsigned members;
  bool leader;

  DEVICE_MEMBER RowBarrier(unsigned* words, unsigned row, unsigned members, unsigned member)
      : word(words + static_cast<size_t>(row) * ROW_BARRIER_WORDS), members(members), leader(member == 0) {}

  // What any thread of the members published before is visible to all their threads after.
  DEVICE_MEMBER void arrive_and_wait() const {
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned before = add_release(word, leader ? 0x80000000u - (members - 1) : 1u);
      spin_until([=] { return ((load_acquire(word) ^ before) & 0x80000000u) != 0; });
    }
    __syncthreads();
  }
};
