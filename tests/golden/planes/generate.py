#!/usr/bin/env python3
"""Planes of small JPEGs and the RGB pixels that libjpeg-turbo makes of them: generate.py FOLDER.

needs: cjpeg djpeg

Those are libjpeg-turbo's (Debian: libjpeg-turbo-progs). Each component has a scan of its own, so that it can be taken out
as a grey JPEG: planes and pixels then come from the same samples by the same exact inverse transform.

A file is called SAMPLING_WIDTHxHEIGHT.bin and holds Y, Cb, Cr (rows without padding) and the RGB pixels.
"""
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FOLDER = Path(sys.argv[1])
SAMPLINGS = {"444": (1, 1), "422": (2, 1), "420": (2, 2), "440": (1, 2), "411": (4, 1), "410": (4, 2)}
SIZES = [(1, 1), (2, 3), (3, 2), (4, 5), (5, 4), (6, 9), (9, 7), (16, 17), (17, 16), (33, 31), (40, 5), (5, 40)]
SOF0, SOS = 0xC0, 0xDA
SCANS = tempfile.NamedTemporaryFile("w", suffix=".txt")
SCANS.write("0; 1; 2;")
SCANS.flush()


def noise(w, h):
    """Saturated blotches with noise: every clip is met."""
    rng = np.random.default_rng(w * 1000 + h)
    small = rng.integers(0, 2, (h // 5 + 1, w // 5 + 1, 3)) * 255
    large = small.repeat(5, 0).repeat(5, 1)[:h, :w]
    return (large + rng.normal(0, 30, (h, w, 3))).clip(0, 255).astype(np.uint8)


def run(command, data):
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


def jpeg(pixels, h, v):
    height, width, _ = pixels.shape
    ppm = b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes()
    return run(["cjpeg", "-quality", "95", "-sample", f"{h}x{v}", "-scans", SCANS.name], ppm)


def samples(data, width, height):
    """What djpeg makes of a file."""
    pnm = run(["djpeg", "-dct", "int", "-pnm"], data)
    kind, size, most, body = pnm.split(b"\n", 3)
    assert (size, most) == (b"%d %d" % (width, height), b"255")
    assert len(body) == width * height * {b"P5": 1, b"P6": 3}[kind]
    return body


def segments(data):
    """Marker, body, entropy-coded data behind it; for each segment that has a body."""
    at = 2
    while data[at + 1] != 0xD9:
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        begin = end = at + 2 + length
        while marker == SOS and not (data[end] == 0xFF and data[end + 1] != 0):
            end += 1
        yield marker, data[at + 4 : begin], data[begin:end]
        at = end


def component(data, number, width, height):
    """A grey file of one component's scan."""
    out, scans = b"\xff\xd8", 0
    for marker, body, coded in segments(data):
        if marker == SOF0:
            ours = body[6 + 3 * number :][:3]
            body = b"\x08" + struct.pack(">HHB", height, width, 1) + bytes([ours[0], 0x11, ours[2]])
        if marker == SOS:
            scans += 1
            if scans != number + 1:
                continue
        if marker != 0xE0:
            out += bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body + coded
    return out + b"\xff\xd9"


for name, (h, v) in SAMPLINGS.items():
    for width, height in SIZES:
        data = jpeg(noise(width, height), h, v)
        chroma = -(-width // h), -(-height // v)
        sizes = [(width, height), chroma, chroma]
        planes = [samples(component(data, n, *size), *size) for n, size in enumerate(sizes)]
        (FOLDER / f"{name}_{width}x{height}.bin").write_bytes(b"".join(planes) + samples(data, width, height))
