"""Other programs at the same work, in the same run: peers.py CORPORA --json FILE.

CORPORA holds a folder of JPEG files for each size, as `ocellus bench corpus` makes them. Each program is measured with a few
settings and then, with the best of them, REPEATS times: the median, and as spread the difference of the largest and the smallest.
FILE is written anew after each. Needs PyTorch with CUDA; nvImageCodec and DALI are left out where they are not installed.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

import torch
import torchvision

SECONDS = 1.0
REPEATS = 5
# Images that a decoder is given at once: enough to keep all engines busy.
DECODED = (64, 256, 1024)
TOP = 5


def rate(work, images):
    """Images a second of something that handles so many at a time."""
    torch.cuda.synchronize()
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS or done < 3:
        work()
        done += 1
    torch.cuda.synchronize()
    return images * done / (time.perf_counter() - started)


def measure(make, repeats):
    """Rates of what `make` gives: something to do and the images that it handles."""
    work, images = make()
    for _ in range(3):
        work()
    return [rate(work, images) for _ in range(repeats)]


def best(candidates):
    """The setting that is fastest, with its median rate and the spread."""
    rates = {}
    for setting, make in candidates:
        try:
            rates[setting] = (measure(make, 1)[0], make)
        except Exception as error:
            print(f"    {setting}: {type(error).__name__}: {str(error)[:150]}", flush=True)
            continue
        print(f"    {setting}: {rates[setting][0]:.0f} img/s", flush=True)
    setting, (_, make) = max(rates.items(), key=lambda item: item[1][0])
    values = measure(make, REPEATS)
    return {"setting": setting, "value": statistics.median(values), "spread": max(values) - min(values)}


def files_of(folder, count):
    """So many files, the same again and again where there are fewer."""
    files = [file.read_bytes() for file in sorted(folder.glob("*.jpg"))]
    return list(itertools.islice(itertools.cycle(files), count))


def torchvision_decoder(folder):
    """nvJPEG's batched decoder; it takes one batch at a time, whatever the number of threads."""

    def make(count):
        tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files_of(folder, count)]
        rgb = torchvision.io.ImageReadMode.RGB
        return lambda: torchvision.io.decode_jpeg(tensors, device="cuda", mode=rgb), count

    return [(f"batches of {count}", lambda count=count: make(count)) for count in DECODED]


def nvimagecodec_decoder(folder):
    """All backends, the engines alone, or the engines with a share for the others; in one decoder or in two that take turns."""
    from nvidia import nvimgcodec

    kinds = nvimgcodec.BackendKind
    rest = [nvimgcodec.Backend(kinds.HYBRID_CPU_GPU), nvimgcodec.Backend(kinds.GPU_ONLY)]
    backends = {
        "all backends": None,
        "engines": [nvimgcodec.Backend(kinds.HW_GPU_ONLY)],
        "engines for 70 %": [nvimgcodec.Backend(kinds.HW_GPU_ONLY, load_hint=0.7), *rest],
        "engines for 90 %": [nvimgcodec.Backend(kinds.HW_GPU_ONLY, load_hint=0.9), *rest],
    }

    def make(chosen, count, workers):
        threads = len(os.sched_getaffinity(0)) // workers
        decoders = [nvimgcodec.Decoder(max_num_cpu_threads=threads, backends=chosen) for _ in range(workers)]
        files = files_of(folder, count)
        pool = concurrent.futures.ThreadPoolExecutor(workers)
        images = [decoder.decode(files) for decoder in decoders]
        if any(image is None for image in images[0]):
            raise RuntimeError("not everything was decoded")

        def decode(worker):
            # The images of the last call are written again, where the version can.
            try:
                images[worker] = decoders[worker].decode(files, images=images[worker])
            except TypeError:
                images[worker] = decoders[worker].decode(files)

        return lambda: list(pool.map(decode, range(workers))), count * workers

    return [
        (f"{name}, {workers} x {count}", lambda chosen=chosen, count=count, workers=workers: make(chosen, count, workers))
        for name, chosen in backends.items()
        for count, workers in ((256, 1), (256, 2))
    ]


def on_gpu(net):
    return net.eval().half().cuda().to(memory_format=torch.channels_last)


@functools.cache
def cudnn(name):
    """A network of torchvision with its batch normalisations folded, for cuDNN."""
    import torch.fx.experimental.optimization as optimization

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    return on_gpu(optimization.fuse(torchvision.models.get_model(name).eval()))


@functools.cache
def inductor(name):
    """A network of torchvision that torch.compile makes kernels for, with its weights as constants; once for each size of a batch."""
    import torch._inductor.config

    torch.manual_seed(0)
    torch._inductor.config.freezing = True
    return torch.compile(on_gpu(torchvision.models.get_model(name)), dynamic=False)


def graph(net, batch, end):
    """A network and what comes behind it, captured in a CUDA graph: input, graph, output."""
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    with torch.no_grad():
        net(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(5):
            end(net(x))
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured):
        found = end(net(x))
    return x, captured, found


def network(net, batch):
    x, captured, scores = graph(net, batch, lambda scores: scores)
    # The graph works on these as long as it is kept.
    return lambda kept=(x, scores): captured.replay(), batch


def dali(folder, name):
    """Files to the best classes: DALI decodes and resizes, a network of torch.compile in a graph does the rest."""
    import nvidia.dali.fn as fn
    import nvidia.dali.types as types
    from nvidia.dali import pipeline_def

    files = [str(file) for file in sorted(folder.glob("*.jpg"))]

    @pipeline_def
    def pictures(hw_decoder_load):
        encoded, _ = fn.readers.file(files=files, read_ahead=True, prefetch_queue_depth=2)
        decoded = fn.decoders.image(encoded, device="mixed", output_type=types.RGB, hw_decoder_load=hw_decoder_load)
        resized = fn.resize(decoded, resize_shorter=256, interp_type=types.INTERP_LINEAR, antialias=True)
        mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
        return fn.crop_mirror_normalize(
            resized, dtype=types.FLOAT16, output_layout="HWC", crop=(224, 224), mean=mean, std=std
        )

    def make(batch, load):
        threads = len(os.sched_getaffinity(0))
        pipeline = pictures(load, batch_size=batch, num_threads=threads, device_id=0, prefetch_queue_depth=3)
        pipeline.build()
        x, captured, found = graph(inductor(name), batch, lambda scores: scores.softmax(1).topk(TOP))
        host = [torch.empty_like(part, device="cpu", pin_memory=True) for part in found]

        def work():
            (output,) = pipeline.run(torch.cuda.current_stream())
            x.copy_(torch.from_dlpack(output.as_tensor()).permute(0, 3, 1, 2))
            captured.replay()
            for to, part in zip(host, found):
                to.copy_(part, non_blocking=True)

        return work, batch

    return [
        (f"batch {batch}, {load:.0%} on the engines", lambda batch=batch, load=load: make(batch, load))
        for batch in (128, 256)
        for load in (0.65, 0.9)
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpora", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    results = []

    def add(name, peer, candidates):
        print(f"{name} {peer}", flush=True)
        try:
            found = best(candidates())
        except ImportError as error:
            print(f"    left out: {error}", flush=True)
            return
        except Exception:
            traceback.print_exc(limit=2)
            return
        results.append({"name": name, "peer": peer, **found})
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")

    # Small pictures first.
    sizes = [path for path in arguments.corpora.iterdir() if "x" in path.name and path.is_dir()]
    sizes.sort(key=lambda path: int(path.name.split("x")[0]))
    for folder in sizes:
        add(f"e2e.resnet50.fp16.{folder.name}", "DALI and torch.compile", lambda: dali(folder, "resnet50"))
    # torchvision's network that is nearest in size; it is smaller.
    small = sizes[0]
    add(f"e2e.efficientnet-lite0.fp16.{small.name}", "DALI and torch.compile, MobileNetV2", lambda: dali(small, "mobilenet_v2"))
    for folder in sizes:
        add(f"decode.hw.{folder.name}", "torchvision", lambda: torchvision_decoder(folder))
        add(f"decode.hw.{folder.name}", "nvImageCodec", lambda: nvimagecodec_decoder(folder))
    for batch in (256, 32, 1):
        for peer, make in (("torch.compile", inductor), ("cuDNN", cudnn)):
            candidates = [("channels last", lambda: network(make("resnet50"), batch))]
            add(f"infer.resnet50.fp16.b{batch}", f"{peer} in a CUDA graph", lambda: candidates)
    print()
    for result in results:
        value, spread = f"{result['value']:10.0f}", f"{result['spread']:8.0f}"
        print(f"{result['name']:30} {result['peer']:32} {value} +- {spread} img/s  {result['setting']}")


if __name__ == "__main__":
    sys.exit(main())
