"""Writes small valid inputs for every fuzz target, as starting points: seeds.py PROJECT_ROOT OUTPUT_FOLDER."""

import pathlib
import re
import struct
import sys


def exif_block(order, value, kind=3, prefix=b"Exif\0\0"):
    """An EXIF block whose only entry is the orientation: TIFF 6.0, section 2."""
    tag = struct.pack(order + "HHI", 0x0112, kind, 1)
    field = {1: "B3x", 3: "H2x", 4: "I"}[kind]
    header = (b"II" if order == "<" else b"MM") + struct.pack(order + "HIH", 42, 8, 1)
    return prefix + header + tag + struct.pack(order + field, value) + struct.pack(order + "I", 0)


def exif_seeds():
    for order in "<>":
        for kind in (1, 3, 4):
            for value in (1, 6, 8):
                yield exif_block(order, value, kind)
        yield exif_block(order, 3, prefix=b"")


def segment(marker, payload=b""):
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def frame(marker, bits, sampling):
    """A frame header (T.81, B.2.2) of 16 x 8 pixels."""
    components = b"".join(bytes([i + 1, s, 0]) for i, s in enumerate(sampling))
    return segment(marker, struct.pack(">BHHB", bits, 8, 16, len(sampling)) + components)


def jpeg_seeds(root):
    scan = segment(0xDA, b"\1\1\0\0\x3f\0") + b"\0\xff\0\0" + b"\xff\xd9"
    adobe = segment(0xEE, b"Adobe\0\x64\0\0\0\0\2")
    frames = [
        frame(0xC0, 8, [0x22, 0x11, 0x11]),
        frame(0xC0, 8, [0x11]),
        frame(0xC2, 8, [0x41, 0x11, 0x11]),
        frame(0xC1, 12, [0x11]),
        frame(0xC3, 8, [0x11]),
        frame(0xC9, 8, [0x11]),
        frame(0xC0, 8, [0x11, 0x11, 0x11, 0x11]),
    ]
    for header in frames:
        yield b"\xff\xd8" + segment(0xE1, exif_block("<", 6)) + header + scan
        yield b"\xff\xd8" + adobe + segment(0xDD, b"\0\4") + b"\xff\xff" + header + scan
    for photo in sorted((root / "samples/photos").glob("*.jpg")):
        yield photo.read_bytes()[:1500]


def card_seeds(root):
    for card in sorted((root / "configs").rglob("*.toml")):
        yield card.read_bytes()


def job_seeds(root):
    """Jobs as they are, and with every key that stands in a comment."""
    for job in sorted((root / "configs/pipelines").glob("*.toml")):
        text = job.read_text()
        yield text.encode()
        yield re.sub(r"^# ([a-z_]+ = )", r"\1", text, flags=re.MULTILINE).encode()


def onnx_seeds():
    try:
        from onnx import TensorProto, helper
    except ImportError:
        print("no seeds for onnx_import: needs the wheels of tests/requirements.txt (tests/run.sh installs them)")
        return

    def model(nodes, constants, shape=(1, 4, 8, 8), opset=13):
        """x -> nodes -> y; `constants` maps a name to (dims, values)."""
        tensors = []
        for name, (dims, values) in constants.items():
            kind = TensorProto.INT64 if isinstance(values[0], int) else TensorProto.FLOAT
            tensors.append(helper.make_tensor(name, kind, dims, values))
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "seed", [x], [y], tensors)
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets).SerializeToString()

    node = helper.make_node
    weights = ([2, 4, 3, 3], [0.5] * 72)
    yield model([node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2])], {"w": weights})
    yield model([node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", group=4)], {"w": ([4, 1, 3, 3], [0.5] * 36)})
    yield model([node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])], {"w": ([4, 2, 2, 2], [0.5] * 32)})
    channels = {name: ([4], [1.0] * 4) for name in "sbmv"}
    yield model([node("BatchNormalization", ["x", *"sbmv"], ["y"], epsilon=1e-3)], channels)
    for name in ("Relu", "Sigmoid", "HardSwish", "GlobalAveragePool", "Softmax", "Flatten", "Shape", "Identity"):
        yield model([node(name, ["x"], ["y"])], {}, opset=14)
    yield model([node("Clip", ["x"], ["y"], min=0.0, max=6.0)], {}, opset=9)
    yield model([node("Clip", ["x", "low", "high"], ["y"])], {"low": ([], [0.0]), "high": ([], [6.0])})
    yield model([node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], ceil_mode=1)], {})
    yield model([node("Resize", ["x", "", "scales"], ["y"], mode="linear")], {"scales": ([4], [1.0, 1.0, 2.0, 2.0])})
    yield model([node("Upsample", ["x", "scales"], ["y"])], {"scales": ([4], [1.0, 1.0, 2.0, 2.0])}, opset=9)
    yield model([node("Reshape", ["x", "shape"], ["y"])], {"shape": ([2], [0, -1])})
    slices = {"start": ([1], [1]), "end": ([1], [9223372036854775807]), "axes": ([1], [-1]), "step": ([1], [2])}
    yield model([node("Slice", ["x", "start", "end", "axes", "step"], ["y"])], slices)
    yield model([node("Pad", ["x", "pads"], ["y"], mode="reflect")], {"pads": ([8], [0, 0, 1, 1, 0, 0, 1, 1])})
    yield model([node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], {})
    yield model([node("Concat", ["x", "x"], ["y"], axis=1)], {})
    halves = [node("Split", ["x"], ["a", "b"], axis=1), node("Add", ["a", "b"], ["y"])]
    yield model(halves, {})
    yield model([node("Gemm", ["x", "w", "b"], ["y"], transB=1)], {"w": ([3, 4], [0.5] * 12), "b": ([3], [0.1] * 3)}, (1, 4))
    quantized = [node("QuantizeLinear", ["x", "s"], ["q"]), node("DequantizeLinear", ["q", "s"], ["y"])]
    yield model(quantized, {"s": ([], [0.1])})


def main():
    root, out = map(pathlib.Path, sys.argv[1:3])
    targets = {
        "exif": exif_seeds(),
        "job_file": job_seeds(root),
        "jpeg_header": jpeg_seeds(root),
        "model_card": card_seeds(root),
        "onnx_import": onnx_seeds(),
    }
    for target, seeds in targets.items():
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (folder / f"{number:03}").write_bytes(seed)


main()
