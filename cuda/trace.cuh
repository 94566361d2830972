// When a launch began and ended, for the instrumented build of a kernel's source (run/trace.py makes it).
#pragma once
#include "primitives.cuh"

// Both are zero before the launch and only grow, so that any thread may contribute in any order.
struct LaunchSpan {
  unsigned long long complement_of_begin, end;  // ns of the device's clock
};

// Lives as long as the kernel's body: of every warp one lane stamps its first and its last moment.
struct LaunchStamp {
  LaunchSpan* span;

  DEVICE_MEMBER explicit LaunchStamp(LaunchSpan* span) : span(span) {
    if (threadIdx.x % 32 == 0) raise_to(&span->complement_of_begin, ~device_time_ns());
  }
  DEVICE_MEMBER ~LaunchStamp() {
    if (threadIdx.x % 32 == 0) raise_to(&span->end, device_time_ns());
  }
};
