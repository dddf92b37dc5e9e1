"""What the driver's calls do and refuse. Runs in both orders of streams (OCELLUS_EMULATOR_ORDER)."""

import ctypes
import os
import pathlib
import threading
import unittest

import cuda
from cuda import Array, CudaError, cu, launch

LAZY = os.environ.get("OCELLUS_EMULATOR_ORDER") == "lazy"
SOURCE = """
extern "C" __global__ void __launch_bounds__(128, 2) add(int* x, int value) { x[threadIdx.x] += value; }
extern "C" __global__ void store(int* x, int value) { x[threadIdx.x] = value; }
extern "C" __global__ void move(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
struct Three { char a; double b; short c; };
extern "C" __global__ void mixed(char a, Three three, short b, double* out) { out[0] = a + three.a + three.b + three.c + b; }
extern "C" __global__ void declared_only(int);
#if 0
extern "C" __global__ void left_out(int* x) {}
#endif
#define ENTRY(name) extern "C" __global__ void name(int* x)
ENTRY(by_macro) { *x = 5; }
template <class T> __global__ void no_entry(T* x) { *x = 1; }
__constant__ int table[3] = {1, 2, 3};
extern "C" __global__ void read_table(int* x) { x[threadIdx.x] = table[threadIdx.x]; }
"""
FIXED = 'extern "C" __global__ void fixed() { __shared__ volatile float x[4096]; x[threadIdx.x] = 1; }'


def stream(flags=1):
    handle = ctypes.c_void_p()
    cu("cuStreamCreateWithPriority", ctypes.byref(handle), flags, -1)
    return handle


def event():
    handle = ctypes.c_void_p()
    cu("cuEventCreate", ctypes.byref(handle), 0)
    return handle


def instantiate(graph):
    executable = ctypes.c_void_p()
    cu("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    return executable


def end_capture(on):
    graph = ctypes.c_void_p()
    cu("cuStreamEndCapture", on, ctypes.byref(graph))
    return graph


class Driver(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cuda.start()
        code, cls.image, log = cuda.compile_source(SOURCE)
        assert code == 0, log
        cls.module = cuda.Module(cls.image)

    def function(self, name):
        return self.module.function(name)

    def assert_fails(self, code, name, *arguments):
        with self.assertRaises(CudaError) as raised:
            cu(name, *arguments)
        self.assertEqual(raised.exception.code, code)

    def assert_launch_fails(self, code, name, grid, block, arguments, **options):
        with self.assertRaises(CudaError) as raised:
            launch(self.function(name), grid, block, arguments, **options)
        self.assertEqual(raised.exception.code, code)

    def test_entries_are_those_defined(self):
        for name in ("declared_only", "left_out", "no_entry", "nothing"):
            with self.assertRaises(CudaError) as raised:
                self.function(name)
            self.assertEqual(raised.exception.code, 500)
        x = Array("i", count=1)
        launch(self.function("by_macro"), (1,), (1,), [x])
        self.assertEqual(x.get(), [5])

    def test_parameters_of_every_size(self):
        class Three(ctypes.Structure):
            _fields_ = [("a", ctypes.c_char), ("b", ctypes.c_double), ("c", ctypes.c_short)]

        out = Array("d", count=1)
        launch(self.function("mixed"), (1,), (1,), [ctypes.c_byte(1), Three(2, 0.5, 30), ctypes.c_short(400), out])
        self.assertEqual(out.get(), [433.5])

    def test_variables_of_modules(self):
        at, size = ctypes.c_uint64(), ctypes.c_size_t()
        other = cuda.Module(self.image)
        cu("cuModuleGetGlobal_v2", ctypes.byref(at), ctypes.byref(size), other.handle, b"table")
        self.assertEqual(size.value, 12)
        cu("cuMemcpyHtoD_v2", at, (ctypes.c_int * 3)(7, 8, 9), ctypes.c_size_t(12))
        x = Array("i", count=3)
        launch(other.function("read_table"), (1,), (3,), [x])
        self.assertEqual(x.get(), [7, 8, 9])
        launch(self.function("read_table"), (1,), (3,), [x])
        self.assertEqual(x.get(), [1, 2, 3])
        stale = other.function("read_table")
        cu("cuModuleUnload", other.handle)
        with self.assertRaises(CudaError):
            launch(stale, (1,), (3,), [x])

    def test_images_are_checked(self):
        handle = ctypes.c_void_p()
        self.assert_fails(200, "cuModuleLoadData", ctypes.byref(handle), b"no image at all" + bytes(100))
        # Another processor's, as a real cubin is.
        self.assert_fails(209, "cuModuleLoadData", ctypes.byref(handle), self.image[:18] + b"\xbe\x00" + self.image[20:])
        for arch, loads in (("sm_75", False), ("sm_86", False), ("sm_90a", False), ("sm_80", True)):
            code, image, log = cuda.compile_source(SOURCE, arch=arch)
            self.assertEqual(code, 0, log)
            if loads:
                cu("cuModuleLoadData", ctypes.byref(handle), image)
            else:
                self.assert_fails(209, "cuModuleLoadData", ctypes.byref(handle), image)

    def test_errors_of_the_compiler(self):
        code, _, log = cuda.compile_source('extern "C" __global__ void f() { missing(); }', name="broken.cu")
        self.assertEqual(code, 6)
        self.assertIn("broken.cu:1", log)
        self.assertIn("missing", log)
        self.assertEqual(cuda.compile_source(SOURCE, arch="sm_12")[0], 5)

    def test_launch_limits(self):
        x = Array("i", [0] * 128)
        arguments = [x, ctypes.c_int(1)]
        for grid, block in (((0,), (1,)), ((1, 65536), (1,)), ((1, 1, 65536), (1,)), ((1,), (0,)), ((1,), (1, 1, 65)), ((1,), (32, 33)), ((1,), (129,))):
            self.assert_launch_fails(1, "add", grid, block, arguments)
        launch(self.function("add"), (1,), (128,), arguments)
        self.assertEqual(x.get(), [1] * 128)

    def test_shared_memory_limits(self):
        x = Array("i", [0] * 32)
        arguments = [x, ctypes.c_int(1)]
        optin, add = 163 * 1024, cuda.Module(self.image).function("add")
        launch(add, (1,), (32,), arguments, shared=48 * 1024)
        with self.assertRaises(CudaError):
            launch(add, (1,), (32,), arguments, shared=48 * 1024 + 1)
        self.assert_fails(1, "cuFuncSetAttribute", add, 8, optin + 1)
        cu("cuFuncSetAttribute", add, 8, optin)
        launch(add, (1,), (32,), arguments, shared=optin)
        with self.assertRaises(CudaError):
            launch(add, (1,), (32,), arguments, shared=optin + 1)
        self.assertEqual(x.get(), [2] * 32)
        value = ctypes.c_int()
        fixed = cuda.Module(cuda.compile_source(FIXED)[1]).function("fixed")
        cu("cuFuncGetAttribute", ctypes.byref(value), 1, fixed)
        self.assertEqual(value.value, 4096 * 4)
        launch(fixed, (1,), (1,), [], shared=48 * 1024 - 4096 * 4)
        with self.assertRaises(CudaError):
            launch(fixed, (1,), (1,), [], shared=48 * 1024 - 4096 * 4 + 1)

    def test_memory_is_poisoned_counted_and_ends(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()

        def left():
            cu("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            return free.value

        before, live = left(), cuda.driver.ocellusEmulatorAllocations()
        at = ctypes.c_uint64()
        self.assert_fails(2, "cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(total.value + 1))
        self.assert_fails(2, "cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(before + 1), None)
        self.assert_fails(2, "cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(2**64 - 1))
        self.assert_fails(1, "cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(0))
        x = Array("B", count=1000)
        self.assertEqual(x.at.value % 256, 0)
        self.assertEqual(set(x.get()), {0xFF})
        self.assertEqual(left(), before - 1024)
        self.assertEqual(cuda.driver.ocellusEmulatorAllocations(), live + 1)
        x.free()
        self.assertEqual(left(), before)
        self.assert_fails(1, "cuMemFree_v2", x.at)

    def test_copies_stay_inside_allocations(self):
        x = Array("i", [1, 2, 3, 4])
        host = ctypes.create_string_buffer(64)
        past = ctypes.c_uint64(x.at.value + 4)
        for name in ("cuMemcpyHtoD_v2",):
            self.assert_fails(1, name, past, host, ctypes.c_size_t(16))
        self.assert_fails(1, "cuMemcpyDtoH_v2", host, past, ctypes.c_size_t(16))
        self.assert_fails(1, "cuMemsetD8_v2", past, 0, ctypes.c_size_t(13))
        self.assert_fails(1, "cuMemsetD32_v2", ctypes.c_uint64(x.at.value + 2), 0, ctypes.c_size_t(1))
        cu("cuMemsetD16_v2", past, 0x0101, ctypes.c_size_t(2))
        self.assertEqual(x.get(), [1, 0x01010101, 3, 4])

    def test_no_context_no_call(self):
        codes = []

        def other_thread():
            at = ctypes.c_uint64()
            codes.append(cuda.driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4)))

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        self.assertEqual(codes, [201])

    def test_pinned_memory_is_mapped(self):
        host, device = ctypes.c_void_p(), ctypes.c_uint64()
        cu("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(16), 2)
        cu("cuMemHostGetDevicePointer_v2", ctypes.byref(device), host, 0)
        launch(self.function("store"), (1,), (4,), [device, ctypes.c_int(9)])
        cu("cuCtxSynchronize")
        self.assertEqual(list((ctypes.c_int * 4).from_address(host.value)), [9] * 4)
        cu("cuMemFreeHost", host)

    def test_events_order_streams(self):
        first, second, done = stream(), stream(), event()
        x, y = Array("i", [0] * 32), Array("i", [0] * 32)
        launch(self.function("store"), (1,), (32,), [x, ctypes.c_int(3)], stream=first)
        cu("cuEventRecord", done, first)
        cu("cuStreamWaitEvent", second, done, 0)
        launch(self.function("move"), (1,), (32,), [x, y], stream=second)
        self.assertEqual(cuda.driver.cuEventQuery(done), 600 if LAZY else 0)
        cu("cuStreamSynchronize", second)
        self.assertEqual(cuda.driver.cuEventQuery(done), 0)
        self.assertEqual(y.get(), [3] * 32)

    def test_a_missing_wait_shows_in_lazy_order(self):
        first, second = stream(), stream()
        x, y = Array("i", [0] * 32), Array("i", [0] * 32)
        launch(self.function("store"), (1,), (32,), [x, ctypes.c_int(3)], stream=first)
        launch(self.function("move"), (1,), (32,), [x, y], stream=second)
        cu("cuStreamSynchronize", second)
        self.assertEqual(y.get(), [0 if LAZY else 3] * 32)
        cu("cuStreamSynchronize", first)
        self.assertEqual(x.get(), [3] * 32)

    def test_polling_gets_there(self):
        first, done = stream(), event()
        x = Array("i", [0] * 32)
        for _ in range(5):
            launch(self.function("add"), (1,), (32,), [x, ctypes.c_int(1)], stream=first)
        cu("cuEventRecord", done, first)
        for _ in range(20):
            if cuda.driver.cuEventQuery(done) == 0:
                break
        else:
            self.fail("the event never comes")
        self.assertEqual(x.get(), [5] * 32)

    def test_pageable_memory_is_read_by_the_call(self):
        first = stream()
        x = Array("i", [0] * 4)
        host = (ctypes.c_int * 4)(1, 2, 3, 4)
        cu("cuMemcpyHtoDAsync_v2", x.at, host, ctypes.c_size_t(16), first)
        host[0] = 100
        cu("cuMemcpyDtoHAsync_v2", host, x.at, ctypes.c_size_t(16), first)
        self.assertEqual(list(host), [1, 2, 3, 4])

    def test_graphs_replay_what_was_captured(self):
        first, second, fork, join = stream(), stream(), event(), event()
        x, y = Array("i", [1] * 32), Array("i", [0] * 32)
        value = ctypes.c_int(2)
        cu("cuStreamBeginCapture_v2", first, 1)
        launch(self.function("add"), (1,), (32,), [x, value], stream=first)
        value.value = 50  # read when the launch was captured
        cu("cuEventRecord", fork, first)
        cu("cuStreamWaitEvent", second, fork, 0)
        launch(self.function("move"), (1,), (32,), [x, y], stream=second)
        cu("cuEventRecord", join, second)
        cu("cuMemsetD32Async", x.at, 7, ctypes.c_size_t(2), first)
        cu("cuStreamWaitEvent", first, join, 0)
        graph = end_capture(first)
        self.assertEqual(x.get(), [1] * 32)
        executable = instantiate(graph)
        cu("cuGraphDestroy", graph)
        for _ in range(3):
            cu("cuGraphLaunch", executable, second)
        cu("cuStreamSynchronize", second)
        self.assertEqual(x.get(), [7] * 2 + [7] * 30)
        self.assertEqual(y.get(), [9] * 2 + [7] * 30)
        cu("cuGraphExecDestroy", executable)
        self.assert_fails(400, "cuGraphLaunch", executable, second)

    def test_what_a_capture_forbids(self):
        first, second, fork = stream(), stream(), event()
        x = Array("i", [0] * 32)
        at, graph = ctypes.c_uint64(), ctypes.c_void_p()
        cu("cuStreamBeginCapture_v2", first, 0)
        self.assert_fails(900, "cuStreamSynchronize", first)
        self.assert_fails(901, "cuStreamEndCapture", first, ctypes.byref(graph))
        cu("cuStreamBeginCapture_v2", first, 0)
        self.assert_fails(900, "cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(4))
        self.assert_fails(901, "cuStreamEndCapture", first, ctypes.byref(graph))
        cu("cuStreamBeginCapture_v2", first, 1)
        cu("cuEventRecord", fork, first)
        cu("cuStreamWaitEvent", second, fork, 0)
        launch(self.function("add"), (1,), (32,), [x, ctypes.c_int(1)], stream=second)
        self.assert_fails(907, "cuEventQuery", fork)
        self.assert_fails(901, "cuStreamEndCapture", first, ctypes.byref(graph))
        cu("cuStreamBeginCapture_v2", first, 1)
        cu("cuEventRecord", fork, first)
        cu("cuStreamWaitEvent", second, fork, 0)
        launch(self.function("add"), (1,), (32,), [x, ctypes.c_int(1)], stream=second)
        self.assert_fails(904, "cuStreamEndCapture", first, ctypes.byref(graph))
        self.assert_fails(401, "cuStreamEndCapture", first, ctypes.byref(graph))
        self.assertEqual(x.get(), [0] * 32)

    def test_threads_of_the_host_share_the_machine(self):
        blocks, results = 50, {}

        def work(number):
            cuda.start()
            own = stream()
            x = Array("i", [0] * 32)
            for _ in range(blocks):
                launch(self.function("add"), (1,), (32,), [x, ctypes.c_int(number)], stream=own)
                launch(self.function("store"), (64,), (32,), [Array("i", count=32), ctypes.c_int(number)], stream=own)
            cu("cuStreamSynchronize", own)
            results[number] = x.get()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {number: [number * blocks] * 32 for number in range(1, 7)})

    def test_host_functions_keep_their_place(self):
        first, seen = stream(), []
        x = Array("i", [0] * 32)
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(ctypes.c_int.from_address(x.at.value).value))
        for value in (4, 5):
            launch(self.function("store"), (1,), (32,), [x, ctypes.c_int(value)], stream=first)
            cu("cuLaunchHostFunc", first, callback, None)
        cu("cuStreamSynchronize", first)
        self.assertEqual(seen, [4, 5])

    def test_stale_handles(self):
        first, done = stream(), event()
        cu("cuStreamDestroy_v2", first)
        cu("cuEventDestroy_v2", done)
        self.assert_fails(400, "cuStreamSynchronize", first)
        self.assert_fails(400, "cuEventSynchronize", done)


if __name__ == "__main__":
    unittest.main()
