#!/usr/bin/env python3
"""Golden data of the resize: what Pillow 13 and torchvision do.

    pip install pillow==13.0.0 numpy       and, to check the geometry, torchvision
    python3 generate.py FOLDER

Pictures come from a formula that the test knows too, so only checksums of the results (zlib.crc32) and a few whole
results are stored.
"""

import csv
import pathlib
import random
import sys
import zlib

import numpy as np
import PIL
from PIL import Image

OUT = pathlib.Path(sys.argv[1])
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos3": Image.Resampling.LANCZOS,
}


def picture(width, height, seed):
    """The low bytes of SplitMix64 (tests::Random::bytes); for odd seeds gradients with a little of that noise."""
    i = np.arange(width * height * 3, dtype=np.uint64)
    z = np.uint64(seed) + (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    noise = (z ^ (z >> np.uint64(31))) & np.uint64(255)
    if seed % 2:
        c, x, y = i % 3, i // 3 % width, i // 3 // width
        noise = (x * 7 + y * 13) // 3 + c * 50 + noise % 16
    return (noise & np.uint64(255)).astype(np.uint8).reshape(height, width, 3)


def resize(rgb, size, name):
    return np.asarray(Image.fromarray(rgb).resize(size, FILTERS[name]))


def sizes(rng):
    """Sizes of source and result: down, up, mixed, one axis kept, thin pictures, Pillow's vertical-first rule."""
    yield from [
        (500, 375, 341, 256),
        (375, 500, 256, 341),
        (640, 480, 224, 224),
        (1, 1, 7, 5),
        (1, 40, 9, 3),
        (40, 1, 3, 9),
        (3000, 1, 3, 1),
        (3000, 2, 224, 224),
        (2, 3000, 224, 224),
        (7, 9, 700, 9),
        (9, 7, 9, 700),
        (100, 400, 90, 100),  # vertical first
        (300, 900, 300, 64),
        (64, 900, 200, 30),  # vertical first
        (33, 35, 33, 35),
    ]
    for _ in range(85):
        yield tuple(rng.randint(1, rng.choice([8, 60, 300])) for _ in range(4))


def main():
    assert PIL.__version__.split(".")[0] == "13", PIL.__version__
    rng = random.Random(13)
    with open(OUT / "resize.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["source_width", "source_height", "width", "height", "filter", "seed", "crc32"])
        for seed, (sw, sh, dw, dh) in enumerate(sizes(rng)):
            rgb = picture(sw, sh, seed)
            for name in FILTERS:
                rows.writerow([sw, sh, dw, dh, name, seed, zlib.crc32(resize(rgb, (dw, dh), name).tobytes())])
    for sw, sh, dw, dh, seed in [(61, 47, 40, 31, 2), (40, 31, 61, 47, 3), (20, 90, 18, 21, 4)]:
        for name in FILTERS:
            result = resize(picture(sw, sh, seed), (dw, dh), name)
            (OUT / f"{sw}x{sh}_{dw}x{dh}_{name}_{seed}.bin").write_bytes(result.tobytes())
    geometry(rng)


def shortest(image, short, width, height):
    """torchvision's Resize(short) and CenterCrop((height, width)) of a PIL image, after its functional.py."""
    w, h = image.size
    short_side, long_side = min(w, h), max(w, h)
    long = int(short * long_side / short_side)
    image = image.resize((short, long) if w <= h else (long, short), Image.Resampling.BILINEAR)
    resized = image.size
    w, h = resized
    if width > w or height > h:
        padded = Image.new("RGB", (max(w, width), max(h, height)))
        padded.paste(image, (max(width - w, 0) // 2, max(height - h, 0) // 2))
        image, (w, h) = padded, padded.size
    left, top = int(round((w - width) / 2.0)), int(round((h - height) / 2.0))
    return resized, image.crop((left, top, left + width, top + height))


def geometry(rng):
    """Shorter side and centre crop; checked against torchvision where that is installed."""
    try:
        from torchvision.transforms import functional
    except ImportError:
        functional = None
        print("torchvision is not installed: its formulas are used unchecked")
    with open(OUT / "shortest.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["source_width", "source_height", "short", "width", "height",
                       "resized_width", "resized_height", "seed", "crc32"])
        for seed in range(120):
            sw, sh, short = rng.randint(1, 200), rng.randint(1, 200), rng.randint(1, 120)
            width, height = rng.randint(1, 150), rng.randint(1, 150)
            image = Image.fromarray(picture(sw, sh, seed))
            resized, cropped = shortest(image, short, width, height)
            if functional:
                want = functional.center_crop(functional.resize(image, short), [height, width])
                assert cropped.tobytes() == want.tobytes(), (sw, sh, short, width, height)
            rows.writerow([sw, sh, short, width, height, *resized, seed, zlib.crc32(cropped.tobytes())])


if __name__ == "__main__":
    main()
