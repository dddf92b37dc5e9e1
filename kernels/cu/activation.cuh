// The element-wise functions of kernels/src/op.rs, in fp32. ACTIVATION names one by a define; its parameters are
// ALPHA and BETA (slope and offset, or lower and upper bound).
#pragma once
#include "ptx.cuh"

enum Function {
  kIdentity, kRelu, kClip, kLeakyRelu, kElu, kSigmoid, kHardSigmoid, kHardSwish, kSilu, kTanh, kGelu, kGeluTanh, kMish,
  kSoftplus, kErf, kExp, kLog, kSqrt, kReciprocal, kAbs, kNeg, kFloor, kCeil, kRound,
};

template <int F>
__device__ __forceinline__ float apply(float x, float alpha, float beta) {
  if (F == kRelu) return maximum(x, 0.0f);
  if (F == kClip) return minimum(maximum(x, alpha), beta);
  if (F == kLeakyRelu) return x >= 0.0f ? x : alpha * x;
  if (F == kElu) return x >= 0.0f ? x : alpha * expm1f(x);
  if (F == kSigmoid) return 1.0f / (1.0f + expf(-x));
  if (F == kHardSigmoid) return minimum(maximum(fmaf(alpha, x, beta), 0.0f), 1.0f);
  if (F == kHardSwish) return x * minimum(maximum(fmaf(x, 1.0f / 6.0f, 0.5f), 0.0f), 1.0f);
  if (F == kSilu) return x / (1.0f + expf(-x));
  if (F == kTanh) return tanhf(x);
  if (F == kGelu) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  if (F == kGeluTanh) return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * fmaf(0.044715f * x * x, x, x)));
  if (F == kMish) return x * tanhf(x > 20.0f ? x : log1pf(expf(x)));
  if (F == kSoftplus) return x > 20.0f ? x : log1pf(expf(x));
  if (F == kErf) return erff(x);
  if (F == kExp) return expf(x);
  if (F == kLog) return logf(x);
  if (F == kSqrt) return sqrtf(x);
  if (F == kReciprocal) return 1.0f / x;
  if (F == kAbs) return fabsf(x);
  if (F == kNeg) return -x;
  if (F == kFloor) return floorf(x);
  if (F == kCeil) return ceilf(x);
  if (F == kRound) return rintf(x);
  return x;
}
