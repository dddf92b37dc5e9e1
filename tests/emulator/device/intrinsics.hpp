// The functions that CUDA C++ has without a header: mathematics, bits, atomics, cached loads.
#pragma once
#include "half.hpp"

extern "C" {
int printf(const char*, ...);
#define EMULATOR_MATH1(name) \
  float name##f(float);      \
  double name(double);
EMULATOR_MATH1(exp) EMULATOR_MATH1(exp2) EMULATOR_MATH1(expm1) EMULATOR_MATH1(log) EMULATOR_MATH1(log2) EMULATOR_MATH1(log10)
EMULATOR_MATH1(log1p) EMULATOR_MATH1(sqrt) EMULATOR_MATH1(cbrt) EMULATOR_MATH1(sin) EMULATOR_MATH1(cos) EMULATOR_MATH1(tan)
EMULATOR_MATH1(asin) EMULATOR_MATH1(acos) EMULATOR_MATH1(atan) EMULATOR_MATH1(sinh) EMULATOR_MATH1(cosh) EMULATOR_MATH1(tanh)
EMULATOR_MATH1(erf) EMULATOR_MATH1(erfc) EMULATOR_MATH1(floor) EMULATOR_MATH1(ceil) EMULATOR_MATH1(trunc) EMULATOR_MATH1(round)
EMULATOR_MATH1(rint) EMULATOR_MATH1(nearbyint) EMULATOR_MATH1(fabs)
#undef EMULATOR_MATH1
#define EMULATOR_MATH2(name)   \
  float name##f(float, float); \
  double name(double, double);
EMULATOR_MATH2(fmin) EMULATOR_MATH2(fmax) EMULATOR_MATH2(fmod) EMULATOR_MATH2(pow) EMULATOR_MATH2(atan2) EMULATOR_MATH2(copysign)
EMULATOR_MATH2(hypot)
#undef EMULATOR_MATH2
float fmaf(float, float, float);
double fma(double, double, double);
float ldexpf(float, int);
double ldexp(double, int);
long lrintf(float);
long lrint(double);
int abs(int) noexcept;
}
#define EMULATOR_OVERLOAD(name) \
  static inline float name(float x) { return name##f(x); }
EMULATOR_OVERLOAD(exp) EMULATOR_OVERLOAD(log) EMULATOR_OVERLOAD(sqrt) EMULATOR_OVERLOAD(sin) EMULATOR_OVERLOAD(cos)
EMULATOR_OVERLOAD(tanh) EMULATOR_OVERLOAD(floor) EMULATOR_OVERLOAD(ceil) EMULATOR_OVERLOAD(round) EMULATOR_OVERLOAD(rint)
EMULATOR_OVERLOAD(trunc) EMULATOR_OVERLOAD(fabs)
#undef EMULATOR_OVERLOAD
static inline float abs(float x) { return __builtin_fabsf(x); }
static inline double abs(double x) { return __builtin_fabs(x); }
static inline long long abs(long long x) { return x < 0 ? -x : x; }
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float exp10f(float x) { return powf(10.0f, x); }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

template <class T> static inline bool isnan(T x) { return __builtin_isnan(x); }
template <class T> static inline bool isinf(T x) { return __builtin_isinf(x); }
template <class T> static inline bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> static inline bool signbit(T x) { return __builtin_signbit(x); }

#define EMULATOR_MINMAX(T)                                   \
  static inline T min(T a, T b) { return b < a ? b : a; }    \
  static inline T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MINMAX(int) EMULATOR_MINMAX(unsigned) EMULATOR_MINMAX(long) EMULATOR_MINMAX(unsigned long)
EMULATOR_MINMAX(long long) EMULATOR_MINMAX(unsigned long long)
#undef EMULATOR_MINMAX
static inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
// As on a GPU, a NaN loses against a number.
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

namespace emulator {
template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}
// PTX saturates, and makes 0 of a NaN, where C++ leaves the result open.
template <class To>
inline To saturate(double x, double low, double high) {
  if (x != x) return 0;
  return x <= low ? (To)low : x >= high ? (To)high : (To)x;
}
inline int to_int(double x) { return saturate<int>(x, -2147483648.0, 2147483647.0); }
inline unsigned to_uint(double x) { return saturate<unsigned>(x, 0.0, 4294967295.0); }
}  // namespace emulator

static inline unsigned __float_as_uint(float x) { return emulator::bits_as<unsigned>(x); }
static inline int __float_as_int(float x) { return emulator::bits_as<int>(x); }
static inline float __uint_as_float(unsigned x) { return emulator::bits_as<float>(x); }
static inline float __int_as_float(int x) { return emulator::bits_as<float>(x); }
static inline long long __double_as_longlong(double x) { return emulator::bits_as<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulator::bits_as<double>(x); }
static inline int __float2int_rn(float x) { return emulator::to_int(__builtin_rint(x)); }
static inline int __float2int_rz(float x) { return emulator::to_int(__builtin_trunc(x)); }
static inline int __float2int_rd(float x) { return emulator::to_int(__builtin_floor(x)); }
static inline int __float2int_ru(float x) { return emulator::to_int(__builtin_ceil(x)); }
static inline unsigned __float2uint_rn(float x) { return emulator::to_uint(__builtin_rint(x)); }
static inline unsigned __float2uint_rz(float x) { return emulator::to_uint(__builtin_trunc(x)); }
static inline unsigned __float2uint_rd(float x) { return emulator::to_uint(__builtin_floor(x)); }
static inline unsigned __float2uint_ru(float x) { return emulator::to_uint(__builtin_ceil(x)); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline int __double2int_rn(double x) { return emulator::to_int(__builtin_rint(x)); }
static inline float __double2float_rn(double x) { return (float)x; }

// Rounded once each: the compiler is told not to contract what stands apart.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __expf(float x) { return expf(x); }
static inline float __exp10f(float x) { return exp10f(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __log10f(float x) { return log10f(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
  return reversed;
}
// Byte i of the result is the one of the eight bytes of y:x that nibble i of the selector names, or its sign.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> (4 * i) & 15u, byte = (unsigned)(bytes >> (8 * (nibble & 7u))) & 255u;
    result |= (nibble & 8u ? (byte & 128u ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  return (unsigned)(((unsigned long long)hi << 32 | lo) << (shift & 31u) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return (unsigned)(((unsigned long long)hi << 32 | lo) >> (shift & 31u));
}
static inline int __dp4a(int a, int b, int c) {
  unsigned sum = (unsigned)c;
  for (int i = 0; i < 4; ++i) sum += (unsigned)((signed char)(a >> (8 * i)) * (signed char)(b >> (8 * i)));
  return (int)sum;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255u) * (b >> (8 * i) & 255u);
  return c;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
static inline unsigned __vabsdiffu4(unsigned a, unsigned b) {
  unsigned result = 0;
  for (int i = 0; i < 32; i += 8) {
    const unsigned x = a >> i & 255u, y = b >> i & 255u;
    result |= (x > y ? x - y : y - x) << i;
  }
  return result;
}

// Ways through the caches differ in speed only.
#define EMULATOR_LOAD(name) \
  template <class T> static inline T name(const T* p) { return *p; }
EMULATOR_LOAD(__ldg) EMULATOR_LOAD(__ldcs) EMULATOR_LOAD(__ldcg) EMULATOR_LOAD(__ldca) EMULATOR_LOAD(__ldlu) EMULATOR_LOAD(__ldcv)
#undef EMULATOR_LOAD
#define EMULATOR_STORE(name) \
  template <class T> static inline void name(T* p, T value) { *p = value; }
EMULATOR_STORE(__stcs) EMULATOR_STORE(__stcg) EMULATOR_STORE(__stwb) EMULATOR_STORE(__stwt)
#undef EMULATOR_STORE

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

namespace emulator {
// Blocks run on several OS threads, so these must be atomic for the CPU too. Relaxed, as CUDA's are.
template <int Bytes> struct Word;
template <> struct Word<4> { using Type = unsigned; };
template <> struct Word<8> { using Type = unsigned long long; };
template <class T, class F>
inline T update(T* p, F change) {
  using Bits = typename Word<sizeof(T)>::Type;
  Bits* const word = reinterpret_cast<Bits*>(p);
  Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, bits_as<Bits>(change(bits_as<T>(old))), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return bits_as<T>(old);
}
// Keeps an argument out of the deduction of T, so that atomicAdd(&unsigned, 1) works as it does in CUDA.
template <class T> struct Same { using Type = T; };
}  // namespace emulator
#define EMULATOR_ATOMIC(name, expression)                                                        \
  template <class T> static inline T name(T* p, typename emulator::Same<T>::Type value) {        \
    return emulator::update(p, [value](T old) -> T { return expression; });                      \
  }                                                                                              \
  template <class T> static inline T name##_block(T* p, typename emulator::Same<T>::Type value) { return name(p, value); }
EMULATOR_ATOMIC(atomicAdd, old + value)
EMULATOR_ATOMIC(atomicSub, old - value)
EMULATOR_ATOMIC(atomicMin, value < old ? value : old)
EMULATOR_ATOMIC(atomicMax, old < value ? value : old)
EMULATOR_ATOMIC(atomicAnd, old & value)
EMULATOR_ATOMIC(atomicOr, old | value)
EMULATOR_ATOMIC(atomicXor, old ^ value)
EMULATOR_ATOMIC(atomicExch, ((void)old, value))
EMULATOR_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef EMULATOR_ATOMIC
template <class T>
static inline T atomicCAS(T* p, typename emulator::Same<T>::Type compare, typename emulator::Same<T>::Type value) {
  __atomic_compare_exchange_n(p, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return compare;
}

static inline long long clock64() {
#if defined(__x86_64__)
  return (long long)__builtin_ia32_rdtsc();
#else
  return 0;
#endif
}
static inline int clock() { return (int)clock64(); }
static inline void __nanosleep(unsigned) {}
[[noreturn]] static inline void __trap() {
  emulator::machine->fail("__trap()", nullptr, 0);
  __builtin_unreachable();
}
