"""Runs networks in ONNX Runtime and writes what went in and what came out, for tests/tests/networks.rs.

    make_network_golden.py OUT DATA

DATA is the folder of test data (models, models-registry/onnx, and photos/labelled or photos below it). OUT gets index.json and, for
every model and case, raw little-endian files: inputs (random: f32 NCHW; photos: u8 NHWC, normalised as (x - 127) / 128)
and outputs (f32). Nothing is written where OUT already holds the results of the same script, runtime and files.

ONNX Runtime's Sigmoid is off by up to 1.3e-7, which is two per cent of yunet's scores near 1e-5. So every Sigmoid is
written out as 1 / (1 + exp(-x)) before the run, which keeps the relative error of f32.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime as ort
from PIL import Image

# Rows and columns where the file leaves them open, and images in a random batch.
SIDE_PX = 224
BATCH = 3
# Photos for networks that are no classifiers.
FEW_PHOTOS = 1


def fingerprint(models, photos):
    """Changes where anything does that the results depend on."""
    stats = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in models + photos]
    script = pathlib.Path(__file__).read_bytes()
    versions = [ort.__version__, np.__version__, Image.__version__]
    return hashlib.sha256(script + json.dumps([stats, versions]).encode()).hexdigest()


def with_exact_sigmoid(path):
    """The model's bytes, every Sigmoid written out."""
    model = onnx.load(path)
    one = onnx.numpy_helper.from_array(np.float32(1), "sigmoid.one")
    model.graph.initializer.append(one)
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Sigmoid":
            nodes.append(node)
            continue
        (x,), (y,) = node.input, node.output
        steps = [("Neg", [x], f"{y}.neg"), ("Exp", [f"{y}.neg"], f"{y}.exp")]
        steps += [("Add", [f"{y}.exp", one.name], f"{y}.sum"), ("Reciprocal", [f"{y}.sum"], y)]
        nodes += [onnx.helper.make_node(op, operands, [result]) for op, operands, result in steps]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString()


def stretched(photo, width_px, height_px):
    return np.asarray(Image.open(photo).convert("RGB").resize((width_px, height_px), Image.BILINEAR))


def run(session, images):
    """The outputs for a batch, image by image where the file fixes the batch at one."""
    port = session.get_inputs()[0]
    step = port.shape[0] if isinstance(port.shape[0], int) else len(images)
    parts = [session.run(None, {port.name: images[i : i + step]}) for i in range(0, len(images), step)]
    return [np.concatenate(outputs) for outputs in zip(*parts)]


def main(out, data):
    models = sorted([*(data / "models").glob("*.onnx"), *(data / "models-registry/onnx").glob("*.onnx")])
    folder = data / "photos/labelled"
    folder = folder if folder.exists() else data / "photos"
    photos = sorted(p for p in folder.rglob("*") if p.suffix.lower() in {".jpg", ".jpeg", ".png"})
    index_file = out / "index.json"
    stamp = fingerprint(models, photos)
    if index_file.exists() and json.loads(index_file.read_text())["fingerprint"] == stamp:
        return
    index_file.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    index = []
    for model in models:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(with_exact_sigmoid(model), options, providers=["CPUExecutionProvider"])
        (port,) = session.get_inputs()
        height_px, width_px = (d if isinstance(d, int) else SIDE_PX for d in port.shape[2:])
        classifier = len(session.get_outputs()) == 1 and len(session.get_outputs()[0].shape) == 2

        random = np.random.default_rng(len(index)).standard_normal((BATCH, 3, height_px, width_px), np.float32)
        pixels = np.stack([stretched(p, width_px, height_px) for p in photos[: None if classifier else FEW_PHOTOS]])
        normalised = np.ascontiguousarray(((pixels.astype(np.float32) - 127) / 128).transpose(0, 3, 1, 2))
        cases = []
        for name, stored, images in [("random", random, random), ("photos", pixels, normalised)]:
            prefix = f"{model.stem}.{name}"
            stored.tofile(out / f"{prefix}.input")
            outputs = []
            for i, (output, values) in enumerate(zip(session.get_outputs(), run(session, images))):
                values.astype(np.float32).tofile(out / f"{prefix}.output{i}")
                outputs.append({"name": output.name, "file": f"{prefix}.output{i}", "dims": values.shape})
            cases.append({"name": name, "file": f"{prefix}.input", "images": len(images), "outputs": outputs})
        index.append({"path": str(model), "classifier": classifier, "cases": cases})
    # Last, so that a broken run is made again.
    index_file.write_text(json.dumps({"fingerprint": stamp, "models": index}, indent=1))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
