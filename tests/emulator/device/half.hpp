// binary16, which C++17 has no type for. No includes: it is part of every kernel, and of the machine.
#pragma once

namespace emulator {

// Rounds to nearest even; NaN becomes PTX's canonical one.
inline unsigned short round_to_f16(double x) {
  unsigned long long bits;
  __builtin_memcpy(&bits, &x, 8);
  const unsigned short sign = (unsigned short)(bits >> 63 << 15);
  const unsigned long long magnitude = bits & 0x7fffffffffffffffull;
  if (magnitude > 0x7ff0000000000000ull) return 0x7fff;
  const int exponent = (int)(magnitude >> 52) - 1023;
  if (exponent >= 16) return sign | 0x7c00;
  if (exponent < -25) return sign;
  const unsigned long long significand = (magnitude & 0xfffffffffffffull) | 1ull << 52;
  // Below 2^-14 the exponent stays and the significand loses bits instead.
  const int shift = exponent < -14 ? 28 - exponent : 42;
  const unsigned long long rest = significand & ((1ull << shift) - 1), half = 1ull << (shift - 1);
  unsigned long long rounded = significand >> shift;
  if (rest > half || (rest == half && (rounded & 1))) ++rounded;
  // The significand's leading 1 adds one to the exponent, and so does a carry out of it, up to infinity.
  if (exponent >= -14) rounded += (unsigned long long)(exponent + 14) << 10;
  return sign | (unsigned short)rounded;
}

inline float f16_to_f32(unsigned short x) {
  // Exponents count from 15 in binary16 and from 127 in fp32; as a factor of 2^112 that is right for subnormals as well.
  unsigned bits = (x & 0x7fffu) << 13;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  value *= 0x1p112f;
  __builtin_memcpy(&bits, &value, 4);
  bits |= (x & 0x8000u) << 16 | ((x & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u);
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

}  // namespace emulator
