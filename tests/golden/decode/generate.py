#!/usr/bin/env python3
"""Small picture files of many kinds and what they must decode to: generate.py FOLDER.

needs: cjpeg djpeg

Those are libjpeg-turbo's (Debian: libjpeg-turbo-progs); Pillow and numpy as in tests/requirements.txt. Deterministic.

index.tsv, one row a file:
    file     name in this folder
    want     "ok", or the kind of the error
    partial  whether the picture is marked as partial
    max      largest allowed difference of a sample
    mean     largest allowed mean difference
    edge     how many columns at the right and rows at the bottom are left out of the comparison
    pixels   name of the expected pixels (binary PPM), several files may share one; "-" for none

Expected pixels come from the arrays that the files were made of where the format is lossless, from `djpeg -dct int` for
JPEG of one and three components, and from Pillow for CMYK JPEG and lossy WebP.
"""
import io
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

FOLDER = Path(sys.argv[1])
W, H = 37, 29
WHITE = 255
rows = []


def photo(w, h, channels=3):
    """A smooth picture with some noise, so that chroma interpolation shows."""
    rng = np.random.default_rng(w * 1000 + h + channels)
    y, x = np.mgrid[0:h, 0:w]
    waves = [np.sin(x / 9 + y / 17), np.cos(x / 13 - y / 7), np.sin((x + y) / 11), np.cos(x / 5)]
    a = 127 + 100 * np.stack(waves[:channels], 2) + rng.normal(0, 6, (h, w, channels))
    return a.clip(0, 255).astype(np.uint8)


def ppm(a):
    h, w, _ = a.shape
    return b"P6\n%d %d\n255\n" % (w, h) + a.tobytes()


def emit(name, data, want="ok", pixels=None, partial=False, maximum=0, mean=0.0, edge=0):
    (FOLDER / name).write_bytes(data)
    pixels_name = "-"
    if pixels is not None:
        body = ppm(np.ascontiguousarray(pixels, dtype=np.uint8))
        known = [n for n, b in emitted.items() if b == body]
        pixels_name = known[0] if known else name.rsplit(".", 1)[0] + ".ppm"
        if not known:
            emitted[pixels_name] = body
            (FOLDER / pixels_name).write_bytes(body)
    rows.append([name, want, str(partial).lower(), str(maximum), str(mean), str(edge), pixels_name])


emitted = {}


def run(command, data):
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


def cjpeg(a, *options, scans=None):
    with tempfile.NamedTemporaryFile("w") as script:
        if scans:
            script.write(scans)
            script.flush()
            options += ("-scans", script.name)
        return run(["cjpeg", "-quality", "90", *options], ppm(a))


def djpeg(data):
    out = subprocess.run(["djpeg", "-dct", "int", "-ppm"], input=data, capture_output=True).stdout
    return np.asarray(Image.open(io.BytesIO(out)).convert("RGB"))


# Close to djpeg. The mean of ordinary photographs is below 0.3, these small saturated pictures come to 0.39.
NEAR = {"maximum": 16, "mean": 0.4}


def jpeg(name, data, **kind):
    emit(name, data, pixels=djpeg(data), **{**NEAR, **kind})


def segments(data):
    """The file as a list of (marker, whole segment), the entropy-coded data with its SOS."""
    out, at = [(0xD8, data[:2])], 2
    while at < len(data):
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0] if data[at + 1] != 0xD9 else 0
        end = at + 2 + length
        if marker == 0xDA:
            while data[end] != 0xFF or data[end + 1] == 0 or 0xD0 <= data[end + 1] <= 0xD7:
                end += 1
        out.append((marker, data[at:end]))
        at = end
    return out


def without(data, *markers):
    return b"".join(body for marker, body in segments(data) if marker not in markers)


def with_sof(data, marker=None, **bytes_at):
    """The file with its frame header edited: another marker, or bytes at offsets in the segment (o4=12)."""
    parts = []
    for m, body in segments(data):
        if m in (0xC0, 0xC1, 0xC2):
            body = bytearray(body)
            body[1] = marker or m
            for key, value in bytes_at.items():
                body[int(key[1:])] = value
        parts.append(bytes(body))
    return b"".join(parts)


def app(marker, body):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def exif(value, big=False):
    e = ">" if big else "<"
    return (b"MM\0*" if big else b"II*\0") + struct.pack(e + "IHHHIHHI", 8, 1, 0x0112, 3, 1, value, 0, 0)


def after_soi(data, *parts):
    return data[:2] + b"".join(parts) + data[2:]


def upright(a, value):
    return {1: a, 2: a[:, ::-1], 3: a[::-1, ::-1], 4: a[::-1], 5: a.swapaxes(0, 1), 6: a[::-1].swapaxes(0, 1),
            7: a[::-1, ::-1].swapaxes(0, 1), 8: a[:, ::-1].swapaxes(0, 1)}[value]


def make_jpeg():
    a = photo(W, H)
    layouts = {"444": "1x1", "422": "2x1", "420": "2x2", "440": "1x2", "411": "4x1", "410": "4x2", "24": "2x4",
               "422chroma": "2x2,1x2,1x2"}
    for name, sample in layouts.items():
        for process in ("baseline", "progressive"):
            option = ["-progressive"] if process == "progressive" else []
            # The last chroma sample is interpolated with the encoder's padding.
            jpeg(f"jpeg-{name}-{process}.jpg", cjpeg(a, "-sample", sample, *option), edge=1)
    for w, h in ((1, 1), (8, 8), (16, 16), (17, 16), (16, 17), (33, 31), (5, 40), (40, 5), (15, 1), (64, 2)):
        jpeg(f"jpeg-420-{w}x{h}.jpg", cjpeg(photo(w, h), "-sample", "2x2"), edge=1)
    # libjpeg does not interpolate chroma of two columns or fewer, zune-jpeg does.
    for w, sample in ((1, "2x2"), (2, "2x1"), (3, "2x2"), (4, "2x1"), (4, "2x2"), (4, "2x4")):
        jpeg(f"jpeg-narrow-{w}-{sample}.jpg", cjpeg(photo(w, 20), "-sample", sample), maximum=40, mean=8)
    jpeg("jpeg-444-1x40.jpg", cjpeg(photo(1, 40), "-sample", "1x1"))
    jpeg("jpeg-quality-5.jpg", run(["cjpeg", "-quality", "5"], ppm(a)), edge=1)
    jpeg("jpeg-quality-100.jpg", run(["cjpeg", "-quality", "100", "-sample", "1x1"], ppm(a)))
    jpeg("jpeg-optimised.jpg", cjpeg(a, "-optimize"), edge=1)
    for rst in ("1B", "2B", "1"):
        for process in ("baseline", "progressive"):
            option = ["-progressive"] if process == "progressive" else []
            jpeg(f"jpeg-restart-{rst}-{process}.jpg", cjpeg(a, "-restart", rst, *option), edge=1)
    jpeg("jpeg-grey.jpg", cjpeg(a, "-grayscale"))
    jpeg("jpeg-grey-progressive.jpg", cjpeg(a, "-grayscale", "-progressive"))
    grey = cjpeg(a, "-grayscale")
    jpeg("jpeg-grey-sampling-2x2.jpg", with_sof(grey, o11=0x22))

    # Which colour space: the rules of libjpeg.
    ycc = cjpeg(a, "-sample", "1x1")
    rgb = cjpeg(a, "-rgb")
    ids = {"o10": ord("R"), "o13": ord("G"), "o16": ord("B")}

    def named_rgb(data):
        """Components named R, G, B, in the frame and in its only scan."""
        out = []
        for marker, body in segments(with_sof(data, **ids)):
            if marker == 0xDA:
                body = bytearray(body)
                body[5], body[7], body[9] = b"RGB"
            out.append(bytes(body))
        return b"".join(out)

    adobe = [app(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([t])) for t in range(3)]
    jfif = next(body for marker, body in segments(ycc) if marker == 0xE0)
    bare_ycc, bare_rgb = without(ycc, 0xE0), without(rgb, 0xE0, 0xEE)
    jpeg("jpeg-colour-none.jpg", bare_ycc)
    jpeg("jpeg-colour-adobe-0.jpg", after_soi(bare_rgb, adobe[0]))
    jpeg("jpeg-colour-adobe-1.jpg", after_soi(bare_ycc, adobe[1]))
    jpeg("jpeg-colour-adobe-2.jpg", after_soi(bare_ycc, adobe[2]))
    jpeg("jpeg-colour-jfif-adobe-0.jpg", after_soi(bare_ycc, jfif, adobe[0]))
    jpeg("jpeg-colour-ids-rgb.jpg", named_rgb(bare_rgb))
    jpeg("jpeg-colour-ids-rgb-jfif.jpg", after_soi(named_rgb(bare_ycc), jfif))
    jpeg("jpeg-colour-ids-rgb-adobe-1.jpg", after_soi(named_rgb(bare_ycc), adobe[1]))

    # Four components: Pillow's conversion. An Adobe transform of 2 makes Y Cb Cr K of the same bytes.
    four = Image.fromarray(photo(W, H, 4), "CMYK")
    for name, options in (("", {}), ("-progressive", {"progressive": True}), ("-420", {"subsampling": 2})):
        b = io.BytesIO()
        four.save(b, "JPEG", quality=90, **options)
        bare = without(b.getvalue(), 0xE0, 0xEE)
        edge = 1 if "420" in name else 0
        for kind, data in (("cmyk-adobe", after_soi(bare, adobe[0])), ("cmyk-plain", bare),
                           ("ycck-adobe", after_soi(bare, adobe[2]))):
            want = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
            emit(f"jpeg-{kind}{name}.jpg", data, pixels=want, edge=edge, **NEAR)

    # Orientation, the block in both byte orders, broken blocks, other segments that begin alike.
    b = cjpeg(a, "-sample", "1x1")
    decoded = djpeg(b)
    for value in range(1, 9):
        data = after_soi(b, app(0xE1, b"Exif\0\0" + exif(value, big=value % 2 == 0)))
        emit(f"jpeg-orientation-{value}.jpg", data, pixels=upright(decoded, value), **NEAR)
    for name, block in (("value-0", exif(0)), ("value-9", exif(9)), ("cut", exif(6)[:15]), ("empty", b"")):
        emit(f"jpeg-exif-{name}.jpg", after_soi(b, app(0xE1, b"Exif\0\0" + block)), pixels=decoded, **NEAR)
    xmp = app(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>")
    emit("jpeg-exif-after-xmp.jpg", after_soi(b, xmp, app(0xE1, b"Exif\0\0" + exif(6))),
         pixels=upright(decoded, 6), **NEAR)
    emit("jpeg-icc-ignored.jpg", after_soi(b, app(0xE2, b"ICC_PROFILE\0\1\1" + bytes(200))), pixels=decoded, **NEAR)

    # Odd but whole.
    emit("jpeg-trailing-garbage.jpg", b + bytes(range(256)), pixels=decoded, **NEAR)
    emit("jpeg-two-pictures.jpg", b + grey, pixels=decoded, **NEAR)
    emit("jpeg-fill-bytes.jpg", b"".join(body if m == 0xD8 else b"\xff\xff" + body for m, body in segments(b)),
         pixels=decoded, **NEAR)
    emit("jpeg-junk-between-segments.jpg", b"".join(body + (b"junk" if m != 0xDA else b"") for m, body in segments(b)[:-1])
         + b"\xff\xd9", pixels=decoded, **NEAR)
    emit("jpeg-no-huffman-tables.jpg", without(b, 0xC4), pixels=decoded, **NEAR)
    emit("jpeg-adobe-cut.jpg", after_soi(b, app(0xEE, b"Adobe\0")), pixels=decoded, **NEAR)
    jpeg("jpeg-444-separate-scans.jpg", cjpeg(a, "-sample", "1x1", scans="0;1;2;"))
    jpeg("jpeg-422-separate-scans.jpg", cjpeg(a, "-sample", "2x1", scans="0;1;2;"), edge=1)
    jpeg("jpeg-420-progressive-separate.jpg",
         cjpeg(a, "-sample", "2x2", scans="".join(f"{c}: 0-0,0,0;" for c in range(3))
               + "".join(f"{c}: 1-63,0,0;" for c in range(3))), edge=1)

    # Partial: no end-of-image marker; data missing with and without it is in the tests of every cut.
    emit("jpeg-no-eoi.jpg", b[:-2], pixels=decoded, partial=True, **NEAR)

    # Refused.
    plain = cjpeg(a, "-sample", "2x2")
    emit("jpeg-12-bit.jpg", with_sof(plain, 0xC1, o4=12), "unsupported-12-bit")
    emit("jpeg-16-bit-samples.jpg", with_sof(plain, o4=16), "corrupt")
    emit("jpeg-arithmetic.jpg", cjpeg(a, "-arithmetic"), "unsupported-arithmetic")
    emit("jpeg-arithmetic-progressive.jpg", cjpeg(a, "-arithmetic", "-progressive"), "unsupported-arithmetic")
    for marker in (0xC3, 0xCB):
        emit(f"jpeg-lossless-{marker:02x}.jpg", with_sof(plain, marker), "unsupported-lossless")
    for marker in (0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF):
        emit(f"jpeg-hierarchical-{marker:02x}.jpg", with_sof(plain, marker), "unsupported-hierarchical")
    emit("jpeg-hierarchical-dhp.jpg", after_soi(plain, app(0xDE, b"\x08\0\x1d\0\x25\0")), "unsupported-hierarchical")
    emit("jpeg-height-0.jpg", with_sof(plain, o5=0, o6=0), "unsupported")
    emit("jpeg-width-0.jpg", with_sof(plain, o7=0, o8=0), "corrupt")
    emit("jpeg-65500x65500.jpg", with_sof(plain, o5=0xFF, o6=0xDC, o7=0xFF, o8=0xDC), "too-large")
    emit("jpeg-progressive-65500x65500.jpg",
         with_sof(cjpeg(a, "-progressive"), o5=0xFF, o6=0xDC, o7=0xFF, o8=0xDC), "too-large")
    emit("jpeg-no-frame.jpg", without(plain, 0xC0), "corrupt")
    emit("jpeg-no-scan.jpg", without(plain, 0xDA), "corrupt")
    emit("jpeg-soi-eoi.jpg", b"\xff\xd8\xff\xd9", "corrupt")
    emit("jpeg-soi.jpg", b"\xff\xd8", "truncated")
    # The feature `libjpeg` decodes these, so they have pixels as well; `want` speaks of the default build.
    for name, options, scans in (("420-separate-scans", ("-sample", "2x2"), "0;1;2;"),
                                 ("440-separate-scans", ("-sample", "1x2"), "0;1;2;"),
                                 ("422-partly-separate-scans", ("-sample", "2x1"), "0,1;2;")):
        data = cjpeg(a, *options, scans=scans)
        emit(f"jpeg-{name}.jpg", data, "unsupported-sampling", pixels=djpeg(data))
    for name, sample in (("luma-below-chroma", "1x1,2x2,2x2"), ("thirds", "3x1"), ("crossed", "2x1,1x2,1x2")):
        data = cjpeg(a, "-sample", sample)
        emit(f"jpeg-sampling-{name}.jpg", data, "unsupported-sampling", pixels=djpeg(data))


def png(w, h, depth, colour, scanlines, *chunks):
    """A PNG file of raw scanlines."""
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in scanlines), 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunk(*c) for c in chunks)
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def over(rgb, alpha, background=WHITE):
    rgb, alpha = rgb.astype(int), alpha.astype(int)[..., None]
    return ((rgb * alpha + background * (255 - alpha)) / 255 + 0.5).astype(np.uint8)


def saved(image, form, **options):
    b = io.BytesIO()
    image.save(b, form, **options)
    return b.getvalue()


def make_lossless():
    a = photo(W, H)
    alpha = photo(W, H, 4)[..., 3]
    alpha[:4], alpha[4:8] = 0, 255
    grey = a[..., 0]
    grey3 = np.repeat(grey[..., None], 3, 2)
    rgba = np.dstack([a, alpha])
    palette_image = Image.fromarray(a).quantize(16, dither=0)
    palette_rgb = np.asarray(palette_image.convert("RGB"))
    indices = np.asarray(palette_image)
    bits = grey > 127
    bits3 = np.repeat((bits * 255).astype(np.uint8)[..., None], 3, 2)

    emit("png-rgb.png", saved(Image.fromarray(a), "PNG"), pixels=a)
    emit("png-grey.png", saved(Image.fromarray(grey), "PNG"), pixels=grey3)
    emit("png-1-bit.png", saved(Image.fromarray(bits), "PNG"), pixels=bits3)
    emit("png-grey-alpha.png", saved(Image.fromarray(np.dstack([grey, alpha]), "LA"), "PNG"), pixels=over(grey3, alpha))
    emit("png-rgba.png", saved(Image.fromarray(rgba), "PNG"), pixels=over(a, alpha))
    emit("png-palette.png", saved(palette_image, "PNG"), pixels=palette_rgb)
    transparent = bytes([0, 128]) + bytes([255] * 14)
    index_alpha = np.frombuffer(transparent, np.uint8)[indices]
    emit("png-palette-transparent.png", saved(palette_image, "PNG", transparency=transparent),
         pixels=over(palette_rgb, index_alpha))
    rng = np.random.default_rng(5)
    wide = rng.integers(0, 65536, (H, W, 4)).astype(">u2")
    high = (wide >> 8).astype(np.uint8)
    lines = lambda v: [line.tobytes() for line in v]
    emit("png-16-grey.png", png(W, H, 16, 0, lines(wide[..., 0])), pixels=np.repeat(high[..., :1], 3, 2))
    emit("png-16-rgb.png", png(W, H, 16, 2, lines(wide[..., :3])), pixels=high[..., :3])
    emit("png-16-grey-alpha.png", png(W, H, 16, 4, lines(wide[..., :2])),
         pixels=over(np.repeat(high[..., :1], 3, 2), high[..., 1]))
    emit("png-16-rgba.png", png(W, H, 16, 6, lines(wide)), pixels=over(high[..., :3], high[..., 3]))
    key = a[3, 3]
    keyed = np.where((a == key).all(2), 0, 255)
    emit("png-rgb-key.png", png(W, H, 8, 2, lines(a), (b"tRNS", b"".join(b"\0" + bytes([v]) for v in key))),
         pixels=over(a, keyed))
    for value in (3, 6):
        emit(f"png-orientation-{value}.png", saved(Image.fromarray(a), "PNG", exif=exif(value)), pixels=upright(a, value))
    frames = [Image.fromarray(a), Image.fromarray(255 - a)]
    emit("png-animated.png", saved(frames[0], "PNG", save_all=True, append_images=frames[1:]), pixels=a)
    emit("png-huge.png", png(65500, 65500, 8, 2, [b""]), "too-large")
    whole = saved(Image.fromarray(a), "PNG")
    emit("png-cut.png", whole[: len(whole) // 2], "truncated")
    emit("png-damaged.png", whole[:60] + bytes([whole[60] ^ 0xFF]) + whole[61:], "corrupt")

    gif = Image.fromarray(a).quantize(256)
    emit("gif.gif", saved(gif, "GIF"), pixels=np.asarray(gif.convert("RGB")))
    emit("gif-transparent.gif", saved(palette_image, "GIF", transparency=3, optimize=False),
         pixels=over(palette_rgb, np.where(indices == 3, 0, 255)))
    animated = [palette_image, Image.fromarray(255 - a).quantize(16)]
    emit("gif-animated.gif", saved(animated[0], "GIF", save_all=True, append_images=animated[1:]), pixels=palette_rgb)

    emit("bmp-rgb.bmp", saved(Image.fromarray(a), "BMP"), pixels=a)
    emit("bmp-grey.bmp", saved(Image.fromarray(grey), "BMP"), pixels=grey3)
    emit("bmp-palette.bmp", saved(palette_image, "BMP"), pixels=palette_rgb)
    emit("bmp-1-bit.bmp", saved(Image.fromarray(bits), "BMP"), pixels=bits3)

    emit("webp-lossless.webp", saved(Image.fromarray(a), "WEBP", lossless=True), pixels=a)
    visible = rgba.copy()
    emit("webp-lossless-alpha.webp", saved(Image.fromarray(visible), "WEBP", lossless=True, exact=True),
         pixels=over(a, alpha))
    emit("webp-animated.webp", saved(frames[0], "WEBP", lossless=True, save_all=True, append_images=frames[1:]), pixels=a)
    emit("webp-orientation-6.webp", saved(Image.fromarray(a), "WEBP", lossless=True, exif=exif(6)),
         pixels=upright(a, 6))
    lossy = saved(Image.fromarray(a), "WEBP", quality=90)
    emit("webp-lossy.webp", lossy, pixels=np.asarray(Image.open(io.BytesIO(lossy)).convert("RGB")), maximum=4, mean=0.3)

    for name, options in (("", {}), ("-lzw", {"compression": "tiff_lzw"}), ("-deflate", {"compression": "tiff_adobe_deflate"}),
                          ("-packbits", {"compression": "packbits"})):
        emit(f"tiff-rgb{name}.tiff", saved(Image.fromarray(a), "TIFF", **options), pixels=a)
    emit("tiff-grey.tiff", saved(Image.fromarray(grey), "TIFF"), pixels=grey3)
    emit("tiff-rgba.tiff", saved(Image.fromarray(rgba), "TIFF"), pixels=over(a, alpha))
    emit("tiff-16-grey.tiff", saved(Image.fromarray(wide[..., 0].astype("<u2")), "TIFF"),
         pixels=np.repeat(high[..., :1], 3, 2))
    emit("tiff-orientation-8.tiff", saved(Image.fromarray(a), "TIFF", tiffinfo={274: 8}), pixels=upright(a, 8))
    emit("tiff-float.tiff", saved(Image.fromarray(grey.astype(np.float32)), "TIFF"), "unsupported")
    tiff = saved(Image.fromarray(a), "TIFF")
    emit("tiff-cut.tiff", tiff[: len(tiff) // 2], "truncated")

    emit("text.jpg", b"This is no picture, whatever its name says.\n", "not-an-image")
    emit("zeros.bin", bytes(100), "not-an-image")
    emit("heic.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "unsupported")
    emit("avif.avif", b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", "unsupported")


if __name__ == "__main__":
    make_jpeg()
    make_lossless()
    head = ["file", "want", "partial", "max", "mean", "edge", "pixels"]
    (FOLDER / "index.tsv").write_text("".join("\t".join(row) + "\n" for row in [head, *rows]))
