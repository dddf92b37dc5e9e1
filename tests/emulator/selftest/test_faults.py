"""Each way in which a kernel can fail ends the process with a message that says where."""

import ctypes
import os
import subprocess
import sys
import unittest

import cuda
from test_kernels import DEFINES, FOLDER, HEADERS

# How the kernel `faults` is to fail, its number n, and what is said.
CASES = {
    "a barrier that some threads miss": (0, 0, ["no thread can go on", "(0, 0, 0) to (2, 0, 0) wait at __syncthreads", "(3, 0, 0) to (31, 0, 0) have returned"]),
    "a write past an allocation": (1, 10, ["after faults", "past the end of an allocation of 40 bytes"]),
    "a write before an allocation": (1, -1, ["after faults", "before the start of an allocation of 40 bytes"]),
    "a misaligned vector": (2, 0, ["not aligned", "faults.cu:", "thread (1, 0, 0)"]),
    "an index outside a shared array": (3, 8, ["an index outside its array", "faults.cu:", "thread (0, 0, 0)"]),
    "a write behind dynamic shared memory": (4, 64, ["byte 64 of its 64 bytes of shared memory"]),
    "a write far behind dynamic shared memory": (4, 4096, ["block (0, 0, 0), thread (0, 0, 0)", "Segmentation fault"]),
    "a copy that is not inside shared memory": (5, 64, ["cp_async: outside the launch's 64 bytes of shared memory, at byte 64"]),
    "a misaligned copy": (5, 4, ["cp_async: the shared address is not aligned to 16 bytes"]),
    "a wild address": (6, 0, ["kernel faults, block (0, 0, 0), thread (0, 0, 0)", "Segmentation fault"]),
    "more locals than fit": (10, 0, ["kernel faults, block (0, 0, 0), thread (0, 0, 0)", "Segmentation fault"]),
    "a wild address on another thread of the host": (11, 0, ["kernel faults, block (1, 0, 0), thread (0, 0, 0)", "Segmentation fault"]),
    "a warp that is apart": (7, 0, ["no thread can go on", "wait at a collective of their warp", "wait at __syncthreads"]),
    "a shift out of range": (8, 4, ["a shift by", "faults.cu:"]),
    "a sum that overflows": (9, 1, ["a signed sum that overflows", "faults.cu:"]),
}


def child(how, n):
    # Two OS threads on every machine: one of the cases needs them.
    environment = {**os.environ, "OCELLUS_EMULATOR_THREADS": "2"}
    return subprocess.run([sys.executable, __file__, str(how), str(n)], capture_output=True, text=True, timeout=60, env=environment)


class Faults(unittest.TestCase):
    def test_each(self):
        for name, (how, n, expected) in CASES.items():
            with self.subTest(name):
                ended = child(how, n)
                self.assertLess(ended.returncode, 0, ended.stderr)
                for part in ["faults", *expected]:
                    self.assertIn(part, ended.stderr)

    def test_a_lost_context_stays_lost(self):
        ended = subprocess.run([sys.executable, __file__, "lose"], capture_output=True, text=True, timeout=60, env={**os.environ, "OCELLUS_EMULATOR_FAIL": "upload:3:700"})
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_others_have_memory_too(self):
        environment = {**os.environ, "OCELLUS_EMULATOR_MEMORY_BYTES": str(8 << 20), "OCELLUS_EMULATOR_OTHERS": "3:2"}
        ended = subprocess.run([sys.executable, __file__, "share"], capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_none(self):
        ended = child(-1, 0)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


def fail(how, n):
    cuda.start()
    code, image, log = cuda.compile_source((FOLDER / "kernels.cu").read_text(), DEFINES, HEADERS, name="faults.cu")
    assert code == 0, log
    x = cuda.Array("f", [0.0] * 10)
    cuda.launch(cuda.Module(image).function("faults"), (2 if how == 11 else 1,), (32,), [x, ctypes.c_int(how), ctypes.c_int(n)], shared=64)
    cuda.cu("cuCtxSynchronize")


def code(call, *arguments):
    try:
        cuda.cu(call, *arguments)
    except cuda.CudaError as error:
        return error.code
    return 0


def lose():
    cuda.start()
    first, second = cuda.Array("f", [1.0]), cuda.Array("f", [2.0])
    assert (first.get(), second.get()) == ([1.0], [2.0])
    assert code("cuMemcpyHtoD_v2", first.at, b"1234", ctypes.c_size_t(4)) == 700
    # Every call from then on, of whatever kind.
    assert [code("cuMemFree_v2", first.at), code("cuCtxSynchronize"), code("cuMemcpyDtoH_v2", b"1234", second.at, ctypes.c_size_t(4))] == [700] * 3


def share():
    def free():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        cuda.cu("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        assert total.value == 8 << 20
        return free.value

    cuda.start()
    at = ctypes.c_uint64()
    found = []
    for _ in range(5):
        found.append((code("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(1 << 20)), free() >> 20))
    # The third brings the others, who are gone with the fourth.
    assert found == [(0, 7), (0, 6), (2, 0), (2, 6), (0, 5)], found


if __name__ == "__main__":
    if sys.argv[1:2] == ["lose"]:
        lose()
    elif sys.argv[1:2] == ["share"]:
        share()
    elif len(sys.argv) == 3:
        fail(int(sys.argv[1]), int(sys.argv[2]))
    else:
        unittest.main()
