"""What kernels compute on the emulator, against plain loops."""

import ctypes
import pathlib
import random
import struct
import unittest

import cuda
from cuda import Array, launch

FOLDER = pathlib.Path(__file__).parent
POISON = 0xFFFFFFFF
# Stands for the project's own header, which the emulator replaces: its text must not be read.
HEADERS = [("ptx.cuh", "#error the header of the real device"), ("twice.cuh", "inline float twice(float x) { return 2 * x; }")]
# Single letters are names that kernels get, whatever the emulator's own headers call their things.
DEFINES = ["FACTOR_OF_DEFINE=3", "FLAG", "PAIR(a,b)=a, b", *[f"{letter}=3" for letter in "ABCDEFGHIJKLMOPQRSTUVWXYZ"]]


def f16_bits(x):
    return struct.unpack("H", struct.pack("e", x))[0]


def f16_value(bits):
    return struct.unpack("e", struct.pack("H", bits))[0]


def f32_bits(x):
    return struct.unpack("I", struct.pack("f", x))[0]


def f32(bits):
    return struct.unpack("f", struct.pack("I", bits))[0]


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cuda.start()
        code, image, log = cuda.compile_source((FOLDER / "kernels.cu").read_text(), DEFINES, HEADERS)
        assert code == 0, log
        cls.module = cuda.Module(image)
        cls.random = random.Random(7)

    def launch(self, name, *arguments, **options):
        launch(self.module.function(name), *arguments, **options)

    def test_scale_with_a_tail(self):
        for n in (1, 31, 256, 1000):
            x = [self.random.uniform(-1, 1) for _ in range(n)]
            given, got = Array("f", x), Array("f", count=n)
            self.launch("scale", (n // 256 + 1,), (256,), [given, got, ctypes.c_float(0.5), ctypes.c_int(n)])
            for a, b in zip(got.get(), x):
                self.assertAlmostEqual(a, 3 * b, places=6)

    def test_coordinates(self):
        grid, block = (3, 2, 4), (5, 7, 2)
        blocks, threads = 24, 70
        out = Array("I", count=blocks * threads * 4)
        self.launch("coordinates", grid, block, [out])
        got, at = out.get(), 0
        for bz in range(4):
            for by in range(2):
                for bx in range(3):
                    for tz in range(2):
                        for ty in range(7):
                            for tx in range(5):
                                self.assertEqual(got[at : at + 4], [tx | ty << 10 | tz << 20, bx, by, bz])
                                at += 4

    def tile(self, name, depth, encode):
        a = [[encode(self.random.uniform(-2, 2)) for _ in range(depth)] for _ in range(16)]
        b = [[encode(self.random.uniform(-2, 2)) for _ in range(depth)] for _ in range(8)]
        c = [[f32(f32_bits(self.random.uniform(-2, 2))) for _ in range(8)] for _ in range(16)]

        def words(rows):
            flat = [bits for row in rows for bits, _ in row]
            return flat if depth == 8 else [lo | hi << 16 for lo, hi in zip(flat[::2], flat[1::2])]

        sums = Array("f", [x for row in c for x in row])
        self.launch(name, (1,), (32,), [Array("I", words(a)), Array("I", words(b)), sums])
        got = sums.get()
        for row in range(16):
            for column in range(8):
                exact = c[row][column] + sum(a[row][k][1] * b[column][k][1] for k in range(depth))
                self.assertAlmostEqual(got[row * 8 + column], exact, delta=2e-5)

    def test_mma_f16(self):
        self.tile("tile_f16", 16, lambda x: (f16_bits(x), f16_value(f16_bits(x))))

    def test_mma_bf16(self):
        self.tile("tile_bf16", 16, lambda x: (f32_bits(x) >> 16, f32(f32_bits(x) & 0xFFFF0000)))

    def test_mma_tf32_ignores_the_low_bits(self):
        self.tile("tile_tf32", 8, lambda x: (f32_bits(x), f32(f32_bits(x) & 0xFFFFE000)))

    def test_mma_s8_u8(self):
        a = [[self.random.randrange(-128, 128) for _ in range(32)] for _ in range(16)]
        b = [[self.random.randrange(256) for _ in range(32)] for _ in range(8)]
        c = [self.random.randrange(-1000, 1000) for _ in range(128)]
        words = lambda rows: list(struct.unpack(f"{len(rows) * 8}I", bytes(x & 0xFF for row in rows for x in row)))
        sums = Array("i", c)
        self.launch("tile_s8_u8", (1,), (32,), [Array("I", words(a)), Array("I", words(b)), sums])
        want = [c[i * 8 + j] + sum(x * y for x, y in zip(a[i], b[j])) for i in range(16) for j in range(8)]
        self.assertEqual(sums.get(), want)

    def test_bytes(self):
        out = Array("I", count=2)
        self.launch("bytes", (1,), (1,), [Array("i", [-5, 17, 300, 255]), out])
        self.assertEqual(out.get(), [0xFFFF1100, 0x77225500])

    def test_ldmatrix(self):
        values = [self.random.randrange(65536) for _ in range(256)]
        out = Array("I", count=256)
        self.launch("matrices", (1,), (32,), [Array("H", values), out], shared=512)
        got = out.get()
        for lane in range(32):
            row, column = lane // 4, lane % 4 * 2
            for m in range(4):
                at = lambda r, c: values[m * 64 + r * 8 + c]
                self.assertEqual(got[lane * 4 + m], at(row, column) | at(row, column + 1) << 16)
                self.assertEqual(got[128 + lane * 4 + m], at(column, row) | at(column + 1, row) << 16)

    def test_copies_in_the_background_arrive_at_their_wait(self):
        threads, valid = 64, 64 * 16 - 10
        data = [self.random.randrange(1, 200) for _ in range(threads * 16)]
        out, before = Array("B", count=threads * 20), Array("B", count=threads * 2)
        self.launch("copies", (2,), (threads,), [Array("B", data), out, before, ctypes.c_uint(valid)], shared=threads * 20)
        got = out.get()
        self.assertEqual(got[: threads * 16], data[:valid] + [0] * 10)
        self.assertEqual(got[threads * 16 :], data[: threads * 4])
        self.assertEqual(set(before.get()), {0xFF})

    def test_exchanges(self):
        n = 64
        out = Array("I", count=11 * n)
        self.launch("exchanges", (1,), (n,), [out])
        got = out.get()
        for t in range(n):
            lane, warp = t % 32, t - t % 32
            at = lambda l: (warp + l) ** 2 + 1
            want = [
                at(3),
                at(lane - 2 if lane >= 2 else lane),
                at(lane + 5 if lane + 5 < 32 else lane),
                at(lane ^ 7),
                at(lane // 8 * 8 + 1),
                at(lane + 3 if lane % 8 + 3 < 8 else lane),
                sum(1 << l for l in range(32) if (warp + l) % 3 == 0),
                (1 if warp == 0 else 0) | 2,
                at(lane ^ 1),
                n // 2,
                1,
            ]
            self.assertEqual([got[k * n + t] for k in range(11)], want, f"thread {t}")

    def test_sums_and_atomics(self):
        blocks, threads = 37, 128
        x = [self.random.randrange(1000) for _ in range(blocks * threads)]
        block_sums, total, floats, most = Array("I", count=blocks), Array("I", [0]), Array("f", [0.0]), Array("I", [0])
        self.launch("sums", (blocks,), (threads,), [Array("I", x), block_sums, total, floats, most])
        self.assertEqual(block_sums.get(), [sum(x[b * threads : (b + 1) * threads]) for b in range(blocks)])
        self.assertEqual((total.get(), floats.get(), most.get()), ([sum(x)], [float(blocks * threads)], [max(x)]))

    def test_shared_memory_starts_poisoned_in_every_block(self):
        out = Array("I", count=2)
        self.launch("untouched", (5,), (1,), [out], shared=16)
        self.assertEqual(out.get(), [POISON, POISON])

    def test_reading_past_an_allocation_gives_no_number(self):
        for n in (1, 2, 129):
            out = Array("f", [0.0] * 3)
            self.launch("behind", (1,), (1,), [Array("f", [0.0] * n), ctypes.c_int(n), out])
            self.assertTrue(all(x != x for x in out.get()))

    def test_roundings(self):
        x = [0.0, -0.0, 1.0, 65504.0, 65519.9, 65520.0, -1e9, float("inf"), 6e-8, 2.9e-8, 3e-8, 1e-40, 0.1, 1 / 3]
        x += [self.random.uniform(-1, 1) * 10 ** self.random.randrange(-9, 6) for _ in range(3000)]
        x = [f32(f32_bits(v)) for v in x]
        n, out = len(x), Array("I", count=3 * len(x))
        self.launch("roundings", (1,), (64,), [Array("f", x), out, ctypes.c_int(n)])
        got = out.get()
        for i, v in enumerate(x):
            try:
                half = f16_bits(v)
            except OverflowError:
                half = 0x7C00 | (0x8000 if v < 0 else 0)
            bits = f32_bits(v)
            bfloat = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            self.assertEqual((got[i] & 0xFFFF, got[i] >> 16), (half, bfloat), f"{v}")
            tf32 = bits if bits & 0x7F800000 == 0x7F800000 else (bits + 0x1000) & ~0x1FFF
            self.assertEqual(got[n + i], tf32, f"{v}")
            if half & 0x7C00 != 0x7C00:
                # 0x3c01 is 1 + 2^-10, 0xbc00 is -1; the exact sum fits a double for these magnitudes.
                exact = f16_value(half) * (1 + 2**-10) - 1
                want = f16_bits(exact) if abs(exact) < 65520 else 0x7C00 | (0x8000 if exact < 0 else 0)
                self.assertEqual(got[2 * n + i], want * 0x10001, f"{v}")

    def test_every_half_widens(self):
        out = Array("I", count=65536)
        self.launch("widen", (256,), (256,), [out])
        for i, bits in enumerate(out.get()):
            if i & 0x7C00 != 0x7C00:
                self.assertEqual(bits, f32_bits(f16_value(i)))
            elif i & 0x3FF:
                self.assertNotEqual(f32(bits), f32(bits))
            else:
                self.assertEqual(bits, 0x7F800000 | (i & 0x8000) << 16)


if __name__ == "__main__":
    unittest.main()
