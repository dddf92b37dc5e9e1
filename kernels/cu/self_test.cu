// Proves that compiling, loading and launching work: out[i] = FACTOR i + 1 for all i < n.
#include "ptx.cuh"

extern "C" __global__ void self_test(u32* out, u32 n) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = FACTOR * i + 1;
}
