#!/usr/bin/env python3
"""Planes of small JPEGs and the RGB pixels that libjpeg-turbo makes of them: generate.py FOLDER.

needs: cjpeg

Library: libturbojpeg.so.0 (Debian: libturbojpeg0), called by ctypes with its exact inverse transform, so that planes and
pixels come from the same samples.

A file is called SAMPLING_WIDTHxHEIGHT.bin and holds Y, Cb, Cr (rows without padding) and the RGB pixels.
"""
import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(sys.argv[1])
SAMPLINGS = {"444": (1, 1), "422": (2, 1), "420": (2, 2), "440": (1, 2), "411": (4, 1)}
SIZES = [(1, 1), (2, 3), (3, 2), (4, 5), (5, 4), (6, 9), (9, 7), (16, 17), (17, 16), (33, 31), (40, 5), (5, 40)]
TJPF_RGB = 0
TJFLAG_ACCURATEDCT = 4096

turbo = ctypes.CDLL("libturbojpeg.so.0")
turbo.tjInitDecompress.restype = ctypes.c_void_p
turbo.tjGetErrorStr.restype = ctypes.c_char_p
handle = ctypes.c_void_p(turbo.tjInitDecompress())


def noise(w, h):
    """Saturated blotches with noise: every clip is met."""
    rng = np.random.default_rng(w * 1000 + h)
    small = rng.integers(0, 2, (h // 5 + 1, w // 5 + 1, 3)) * 255
    large = small.repeat(5, 0).repeat(5, 1)[:h, :w]
    return (large + rng.normal(0, 30, (h, w, 3))).clip(0, 255).astype(np.uint8)


def jpeg(pixels, h, v):
    height, width, _ = pixels.shape
    ppm = b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes()
    command = ["cjpeg", "-quality", "95", "-sample", f"{h}x{v}"]
    return subprocess.run(command, input=ppm, capture_output=True, check=True).stdout


def checked(result):
    if result:
        sys.exit(turbo.tjGetErrorStr().decode())


for name, (h, v) in SAMPLINGS.items():
    for width, height in SIZES:
        data = jpeg(noise(width, height), h, v)
        sizes = [(width, height)] + [(-(-width // h), -(-height // v))] * 2
        # The library writes planes of whole sampling units, which may be a column or row larger.
        room = [(-(-width // h) * h, -(-height // v) * v)] + sizes[1:]
        planes = [np.zeros((r[1], r[0]), np.uint8) for r in room]
        pointers = (ctypes.c_void_p * 3)(*[p.ctypes.data for p in planes])
        pitches = (ctypes.c_int * 3)(*[p.shape[1] for p in planes])
        size = ctypes.c_ulong(len(data))
        checked(turbo.tjDecompressToYUVPlanes(handle, data, size, pointers, width, pitches, height, TJFLAG_ACCURATEDCT))
        rgb = np.zeros((height, width, 3), np.uint8)
        out = ctypes.c_void_p(rgb.ctypes.data)
        checked(turbo.tjDecompress2(handle, data, size, out, width, 0, height, TJPF_RGB, TJFLAG_ACCURATEDCT))
        body = b"".join(p[: s[1], : s[0]].tobytes() for p, s in zip(planes, sizes))
        (FOLDER / f"{name}_{width}x{height}.bin").write_bytes(body + rgb.tobytes())
