// Proof that planes were written: their ends are spoiled before and looked at afterwards.
#include "ptx.cuh"

// The last samples of a plane.
struct Tail {
  u8* first;
  u32 len, unused;
};

constexpr int kSamples = 16;

// A thread a sample of COUNT tails of up to kSamples each. Without SEEN each becomes POISON, else it is copied there, those of
// tail i from kSamples i on. The tails and what SEEN points to lie in the host's memory.
extern "C" __global__ void proof(const Tail* __restrict__ tails, u8* __restrict__ seen, int count, int poison) {
  const int thread = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (thread / kSamples >= count) return;
  const Tail tail = tails[thread / kSamples];
  const int sample = thread % kSamples;
  if (sample >= (int)tail.len) return;
  if (seen) {
    seen[thread] = tail.first[sample];
  } else {
    tail.first[sample] = (u8)poison;
  }
}
