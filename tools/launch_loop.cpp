// The timing loop's C++ twin: how long launching and waiting takes without Python.
//
//   launch_loop CUBIN SYMBOL KERNELS REPEATS
//
// Loads a kernel without parameters, builds a graph of KERNELS nodes in a chain, and times REPEATS single
// invocations of the graph and of KERNELS direct launches, each from before submission until
// cuStreamSynchronize returns. Prints two lines of nanoseconds: graph, then direct.
#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s failed with %s\n", call, name ? name : "?");
  std::exit(2);
}
#define CHECK(call) check(call, #call)

long long now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

template <class Submit>
void time_singles(Submit submit, CUstream stream, int repeats) {
  constexpr int WARMUPS = 100;
  std::vector<long long> elapsed_ns(repeats);
  for (int i = -WARMUPS; i < repeats; i++) {
    const long long started = now_ns();
    submit();
    CHECK(cuStreamSynchronize(stream));
    if (i >= 0) elapsed_ns[i] = now_ns() - started;
  }
  for (long long ns : elapsed_ns) std::printf("%lld ", ns);
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::fprintf(stderr, "usage: launch_loop CUBIN SYMBOL KERNELS REPEATS\n");
    return 2;
  }
  const int kernels = std::atoi(arguments[3]), repeats = std::atoi(arguments[4]);
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction function;
  CUstream stream;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoad(&module, arguments[1]));
  CHECK(cuModuleGetFunction(&function, module, arguments[2]));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  CUgraph graph;
  CUgraphExec executable;
  CHECK(cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS parameters = {};
  parameters.func = function;
  parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
  parameters.blockDimX = 32;
  parameters.blockDimY = parameters.blockDimZ = 1;
  CUgraphNode before = nullptr;
  for (int i = 0; i < kernels; i++) {
    CUgraphNode node;
    CHECK(cuGraphAddKernelNode(&node, graph, i ? &before : nullptr, i ? 1 : 0, &parameters));
    before = node;
  }
  CHECK(cuGraphInstantiate(&executable, graph, 0));
  CHECK(cuGraphUpload(executable, stream));

  time_singles([&] { CHECK(cuGraphLaunch(executable, stream)); }, stream, repeats);
  time_singles(
      [&] {
        for (int i = 0; i < kernels; i++)
          CHECK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr));
      },
      stream, repeats);
  return 0;
}
