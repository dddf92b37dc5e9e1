// Hopper's own instructions (sm_90a), one function each: barriers in shared memory that count bytes, the tensor memory
// accelerator (TMA), and matrix products of a warp group (128 threads).
#pragma once
#include "types.cuh"

// A TMA descriptor, opaque; a kernel takes it as `const __grid_constant__`.
struct __align__(64) TensorMap {
  u64 words[16];
};

// Makes a barrier (8 bytes, aligned) whose phase ends after `arrivals` arrivals and all the bytes it was told to expect.
__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Shows new barriers to the TMA.
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and holds the phase open until `bytes` more have come.
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Returns once the phase with this parity has ended: that before the first has parity 1.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again_%=;\n}" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Boxes from global to shared memory in the background; their bytes count for `barrier`. Coordinates innermost first.
__device__ __forceinline__ void load_2d(u32 to, const TensorMap* map, u32 barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void load_3d(u32 to, const TensorMap* map, u32 barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// Pixels of a convolution's input: from base pixel (w, h) of image n on, each moved by (right, down).
__device__ __forceinline__ void load_im2col(u32 to, const TensorMap* map, u32 barrier, int c, int w, int h, int n, u16 right,
                                            u16 down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2], {%7, %8};" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(right), "h"(down)
      : "memory");
}

// A box from shared to global memory in the background, a group of its own of this thread.
__device__ __forceinline__ void store_2d(const TensorMap* map, u32 from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];\ncp.async.bulk.commit_group;" ::"l"(map),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}

// Waits until at most N of this thread's last stores still read shared memory.
template <int N>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Waits until this thread's stores have been written.
__device__ __forceinline__ void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Shows this thread's ordinary writes to shared memory to the TMA.
__device__ __forceinline__ void shared_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Gives registers of a warp group back, down to N a thread, and takes them.
template <int N>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// Four 8x8 matrices of 16-bit elements to shared memory; addresses as `ldmatrix_x4` takes them.
__device__ __forceinline__ void stmatrix_x4(u32 row, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

// Descriptor of an operand in shared memory, rows of 64 16-bit elements (128 bytes) as the TMA swizzles them; `address` is
// a multiple of 1024. Rows of 8 lie 1024 bytes apart. Adding 2 goes 16 elements to the right.
__device__ __forceinline__ u64 matrix_operand(u32 address) {
  return (u64)((address & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// Around a group of products: before its first, after its last, and until at most N groups are under way.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Keeps the compiler from reading `x` earlier than here.
__device__ __forceinline__ void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }

// d = a b^T, or d += a b^T where `add` is not 0, for a of 64 x 16 and b of n x 16 elements; d has n / 2 values a thread,
// laid out as PTX says for wgmma.m64nNk16: value 4 i + 2 h + j of lane l of warp w is row 16 w + 8 h + l / 4, column
// 8 i + 2 (l % 4) + j.

#define REGISTERS_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

#define REGISTERS_64 \
  REGISTERS_32 ", " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define REGISTERS_128 \
  REGISTERS_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define VALUES_8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define VALUES_32(d, i) VALUES_8(d, i), VALUES_8(d, i + 8), VALUES_8(d, i + 16), VALUES_8(d, i + 24)
#define VALUES_64(d, i) VALUES_32(d, i), VALUES_32(d, i + 32)
#define VALUES_128(d, i) VALUES_64(d, i), VALUES_64(d, i + 64)
// COUNT values a thread, the operands that follow them numbered from there on.
#define PRODUCT(ELEMENT, NAME, N, COUNT, A, B, ADD)                                                              \
  __device__ __forceinline__ void multiply(ELEMENT, float (&d)[COUNT], u64 a, u64 b, int add) {                  \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" REGISTERS_##COUNT "}, %" #A \
                 ", %" #B ", add, 1, 1, 0, 0;\n}"                                                                \
                 : VALUES_##COUNT(d, 0)                                                                          \
                 : "l"(a), "l"(b), "r"(add));                                                                    \
  }
PRODUCT(f16, "f16", 64, 32, 32, 33, 34)
PRODUCT(f16, "f16", 128, 64, 64, 65, 66)
PRODUCT(f16, "f16", 256, 128, 128, 129, 130)
PRODUCT(bf16, "bf16", 64, 32, 32, 33, 34)
PRODUCT(bf16, "bf16", 128, 64, 64, 65, 66)
PRODUCT(bf16, "bf16", 256, 128, 128, 129, 130)
#undef PRODUCT
#undef VALUES_128
#undef VALUES_64
#undef VALUES_32
#undef VALUES_8
#undef REGISTERS_128
#undef REGISTERS_64
#undef REGISTERS_32
