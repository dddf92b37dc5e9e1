"""Other programs at the same work, in the same run: peers.py CORPORA --json FILE.

CORPORA holds a folder of JPEG files for each size, as `ocellus bench corpus` makes them. What is not installed is left
out. Needs PyTorch with CUDA.
"""

import argparse
import json
import pathlib
import sys
import time
import traceback

import torch
import torchvision

SECONDS = 2.0


def rate(work, images):
    """Images a second of something that handles so many at a time."""
    work()
    torch.cuda.synchronize()
    started, done = time.time(), 0
    while time.time() - started < SECONDS or done < 3:
        work()
        done += 1
    torch.cuda.synchronize()
    return images * done / (time.time() - started)


def decoders(size, files):
    """Decoding into device memory."""
    tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
    rgb = torchvision.io.ImageReadMode.RGB
    yield "torchvision", rate(lambda: torchvision.io.decode_jpeg(tensors, device="cuda", mode=rgb), len(files))
    try:
        from nvidia import nvimgcodec
    except ImportError:
        return
    decoder = nvimgcodec.Decoder()
    yield "nvImageCodec", rate(lambda: decoder.decode(files), len(files))


def graph(net, batch):
    """A network with its batch normalisations folded, captured in a CUDA graph."""
    import torch.fx.experimental.optimization as optimization

    net = optimization.fuse(net.eval().float()).half().cuda().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(5):
            net(x)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured):
        net(x)
    return captured.replay


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("corpora", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    results = []

    def add(name, peer, value):
        results.append({"name": name, "peer": peer, "value": value})
        print(f"{name:32} {peer:20} {value:12.1f} img/s", flush=True)

    for folder in sorted(path for path in arguments.corpora.iterdir() if "x" in path.name and path.is_dir()):
        files = [file.read_bytes() for file in sorted(folder.glob("*.jpg"))]
        try:
            for peer, value in decoders(folder.name, files):
                add(f"decode.hw.{folder.name}", peer, value)
        except Exception:
            traceback.print_exc(limit=1)
    for batch in (1, 32, 256):
        try:
            torch.manual_seed(0)
            replay = graph(torchvision.models.resnet50(weights=None), batch)
            add(f"infer.resnet50.fp16.b{batch}", "cuDNN in a graph", rate(replay, batch))
        except Exception:
            traceback.print_exc(limit=1)
    arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
