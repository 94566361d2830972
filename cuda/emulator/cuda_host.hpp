// The CUDA C++ subset of this project as host C++17: include this before a kernel source, and a host compiler
// turns the source into a shared object that runs its kernels on one CPU thread.
//
// Every CUDA thread is a fiber with its own stack. One deterministic scheduler runs the fibers of the resident
// blocks; a thread gives way only where it waits (or, when a seed asks for it, where another thread could matter).
// The parts use no C++ standard headers, so that a bare C++ compiler is enough.
#pragma once

#include "clusters.hpp"        // cluster barrier, distributed shared memory
#include "collectives.hpp"     // barriers of block and grid, collectives of a warp
#include "context_switch.hpp"  // leaving one stack for another
#include "findings.hpp"        // how a fault ends the launch
#include "intrinsics.hpp"      // the functions a kernel calls by their CUDA names
#include "language.hpp"        // qualifiers, vector types, threadIdx, arithmetic
#include "launch.hpp"          // a whole launch, and the C interface
#include "memory.hpp"          // global memory: bounds, counters, weak stores, atomics
#include "scheduler.hpp"       // which thread runs next; spin_until
#include "signals.hpp"         // hardware faults and the time limit
#include "state.hpp"           // blocks, warps, threads, the launch
#include "workspace.hpp"       // stacks and shared memory, between guard pages
