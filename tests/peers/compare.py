#!/usr/bin/env python3
"""Times one network in Ocellus, ONNX Runtime and rten on the CPU, in the same minutes, and prints a table.

    python3 tests/peers/compare.py [--threads 2] [--batch 1,8] [--rounds 15] [--json FILE] MODEL.onnx...

Needs onnxruntime and numpy (tests/requirements.txt) and `cargo build --release` in this folder. Every engine runs in a
process or session of its own that is loaded once. Rounds take turns (A a few runs, B a few runs, ..., a pause between and
one run to warm up), so that a machine whose speed drifts slows all alike; the figure is the median over all runs of all
rounds, in ms an image. The outputs
are compared as well: a fast wrong answer is no result.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).resolve().parent
TARGET_DIR = Path(os.environ.get("CARGO_TARGET_DIR", HERE / "target"))
ENGINES = ("ocellus", "onnxruntime", "rten")
# ONNX Runtime's threads go on spinning for some time after a run and would take a core from whoever comes next.
PAUSE_S = 0.3
# Short turns and many: on a virtual machine the host moves the cores about, which changes everybody's speed for a while.
TURN_MS = 40


class Child:
    """An engine in a process of its own: a number of runs goes in as a line, their times in ms come back."""

    def __init__(self, engine, model, shape, threads, input_file, output_file):
        command = [TARGET_DIR / "release" / "peers", engine, model, ",".join(map(str, shape)), str(threads)]
        command += [input_file, output_file]
        env = dict(os.environ, RTEN_NUM_THREADS=str(threads))
        self.process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def run(self, count):
        print(count, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the engine ended, see its message above")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class OnnxRuntime:
    """ONNX Runtime's CPU provider, in this process."""

    def __init__(self, model, images, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.feed = {self.session.get_inputs()[0].name: images}
        self.outputs = self.session.run(None, self.feed)

    def run(self, count):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            self.session.run(None, self.feed)
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def close(self):
        pass


def input_shape(model, batch):
    """The model's N, C, H, W with its batch set where it is open; None where it has another one."""
    dims = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).get_inputs()[0].shape
    if isinstance(dims[0], int) and dims[0] != batch:
        return None
    size = [640, 640]
    return [batch] + [d if isinstance(d, int) else fallback for d, fallback in zip(dims[1:], [3] + size)]


def measure(model, batch, threads, rounds):
    shape = input_shape(model, batch)
    if shape is None:
        return None
    images = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        input_file = Path(folder) / "input.f32"
        images.tofile(input_file)
        reference = OnnxRuntime(model, images, threads)
        engines = {"onnxruntime": reference}
        files = {name: Path(folder) / f"{name}.f32" for name in ENGINES if name != "onnxruntime"}
        for name, file in files.items():
            engines[name] = Child(name, model, shape, threads, input_file, file)
        runs = max(1, int(TURN_MS / min(reference.run(3))))
        times = {name: [] for name in engines}
        for engine in engines.values():
            engine.run(2)
        for _ in range(rounds):
            for name, engine in engines.items():
                time.sleep(PAUSE_S)
                engine.run(1)
                times[name] += engine.run(runs)
        for engine in engines.values():
            engine.close()
        expected = np.concatenate([np.asarray(o, np.float32).ravel() for o in reference.outputs])
        row = {"model": Path(model).stem, "batch": batch, "threads": threads}
        for name, values in times.items():
            row[f"{name}_ms"] = statistics.median(values) / batch
        for name, file in files.items():
            got = np.fromfile(file, np.float32)
            row[f"{name}_error"] = float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="also write the rows to this file")
    args = parser.parse_args()
    rows = []
    print("| model | batch | Ocellus ms | ONNX Runtime ms | rten ms | rate / ONNX Runtime | rate / rten | error |")
    print("|---|---|---|---|---|---|---|---|")
    for model in args.models:
        for batch in map(int, args.batch.split(",")):
            row = measure(model, batch, args.threads, args.rounds)
            if row is None:
                continue
            rows.append(row)
            ours, theirs, rten = (row[f"{name}_ms"] for name in ENGINES)
            cells = [row["model"], str(batch), f"{ours:.2f}", f"{theirs:.2f}", f"{rten:.2f}"]
            cells += [f"{theirs / ours:.2f}", f"{rten / ours:.2f}", f"{row['ocellus_error']:.1e}"]
            print("| " + " | ".join(cells) + " |", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
