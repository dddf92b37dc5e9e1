// Several consecutive elements at once, and where an operand's elements lie.
#pragma once
#include "types.cuh"

// N elements that are read and written in accesses of up to 16 bytes; N is a power of two.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vector {
  T at[N];
};

// The same as they are moved and kept in registers: those of 16 bits in pairs.
template <class T, int N>
constexpr bool kPaired = sizeof(T) == 2 && N > 1;
template <bool PAIRED, class T>
struct Word {
  using Type = T;
};
template <class T>
struct Word<true, T> {
  using Type = u32;
};
template <class T, int N>
using Raw = Vector<typename Word<kPaired<T, N>, T>::Type, kPaired<T, N> ? N / 2 : N>;

// N elements as they are in memory. The address is a multiple of the vector's size, up to 16 bytes.
template <class T, int N>
__device__ __forceinline__ Raw<T, N> load_raw(const T* from) {
  return *reinterpret_cast<const Raw<T, N>*>(from);
}

template <class T, int N>
__device__ __forceinline__ void to_floats(const Raw<T, N>& from, float (&to)[N]) {
  if constexpr (kPaired<T, N>) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float2 pair = unpack(T(), from.at[i]);
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = to_float(from.at[i]);
  }
}

// N elements as floats.
template <class T, int N>
__device__ __forceinline__ void load(const T* from, float (&to)[N]) {
  to_floats<T, N>(load_raw<T, N>(from), to);
}

template <class T, int N>
__device__ __forceinline__ void store(T* to, const float (&from)[N]) {
  Raw<T, N> y;
  if constexpr (kPaired<T, N>) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) y.at[i] = pack(T(), from[2 * i], from[2 * i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) store_as(&y.at[i], from[i]);
  }
  *reinterpret_cast<Raw<T, N>*>(to) = y;
}

// The larger and the smaller of both; NaN if either is.
__device__ __forceinline__ float larger(float a, float b) { return b > a || b != b ? b : a; }
__device__ __forceinline__ float smaller(float a, float b) { return b < a || b != b ? b : a; }

// Offset of the element `index`, counted row-major over `dims`, of an operand with these strides. The outermost length
// is not looked at.
template <int RANK>
__device__ __forceinline__ int offset_of(u32 index, const int (&dims)[RANK], const int (&strides)[RANK]) {
  int offset = 0;
#pragma unroll
  for (int axis = RANK - 1; axis > 0; --axis) {
    offset += (int)(index % (u32)dims[axis]) * strides[axis];
    index /= (u32)dims[axis];
  }
  return offset + (int)index * strides[0];
}
