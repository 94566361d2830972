// A barrier between all blocks of a launch, from cooperative groups: launch cooperatively.
#pragma once
#include <cooperative_groups.h>

#include "primitives.cuh"

struct GridBarrier {
  DEVICE_MEMBER void arrive_and_wait() const { cooperative_groups::this_grid().sync(); }
};
