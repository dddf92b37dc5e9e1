"""The body of soak.sh: soak.py PROGRAM CORPUS SECONDS [OPTION...] runs one job over the pictures of CORPUS, those of samples/ and
tests/golden/decode, and files that are none, again and again, and watches it."""

import collections
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

# Of the time until figures count, and at most so many seconds.
WARM_UP, WARM_UP_MOST_S = 0.25, 60
# How far memory may rise from the first third behind it to the last: for what a heap's own order takes.
RISE_BYTES, RISE = 32 << 20, 0.03
# Share of the first third's rate that the last one must have.
RATE = 0.9
# Pictures of a cycle that are like most: so many times each.
COMMON = 12
# Paths that are written at once.
CHUNK = 64
# Seconds for the start, and without a row at the end.
PATIENCE_S = 120


def cycle(corpus):
    """The paths of one cycle, in an order that is the same every time."""
    common = sorted(corpus.glob("500x375/*")) + sorted(corpus.glob("333x500/*"))
    large = sorted(path for size in ("1920x1080", "6000x4000") for path in corpus.glob(f"{size}/*"))
    odd = [path for path in sorted(pathlib.Path("tests/golden/decode").iterdir()) if path.suffix not in (".ppm", ".tsv", ".py")]
    odd += sorted(pathlib.Path("samples/photos").iterdir())
    bad = corpus / "bad"
    bad.mkdir()
    whole, rng = common[0].read_bytes(), random.Random(1)
    for n, content in enumerate([b"", b"no picture", whole[:300], whole[: len(whole) // 2], rng.randbytes(5000), b"\xff\xd8" + rng.randbytes(5000)]):
        (bad / f"{n}.jpg").write_bytes(content)
    paths = common * COMMON + large + odd + sorted(bad.iterdir()) + [bad / "missing.jpg"]
    rng.shuffle(paths)
    return [bytes(path) for path in paths]


class Job:
    """The program, fed by one thread and read by another."""

    def __init__(self, program, options, paths):
        command = [program, "classify", "-", "--format", "jsonl", "-q", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.paths = paths
        self.asked = self.rows = self.failed = 0
        self.wrong = collections.Counter()
        self.first_row = threading.Event()
        self.closing = threading.Event()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.feed, self.read)]
        for thread in self.threads:
            thread.start()

    def feed(self):
        paths = itertools.cycle(self.paths)
        try:
            while not self.closing.is_set():
                self.process.stdin.write(b"".join(path + b"\n" for path in itertools.islice(paths, CHUNK)))
                self.asked += CHUNK
            self.process.stdin.close()
        except OSError:
            # It has ended, which the exit code tells more about.
            pass

    def read(self):
        before = {}
        for path, row in zip(itertools.cycle(self.paths), self.process.stdout):
            if before.setdefault(path, row) != row:
                self.wrong["rows that changed"] += 1
            if path not in row:
                self.wrong["rows out of order"] += 1
            self.failed += b'"error":{' in row
            self.rows += 1
            self.first_row.set()

    def rss_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        return None

    def end(self):
        """The exit code, when everything that was asked has been answered."""
        self.closing.set()
        rows, since = self.rows, time.monotonic()
        # A slow machine needs long for what waits in the pipe.
        while (code := self.process.poll()) is None:
            if self.rows != rows:
                rows, since = self.rows, time.monotonic()
            if time.monotonic() - since > PATIENCE_S:
                self.process.kill()
                return "it hangs"
            time.sleep(0.05)
        for thread in self.threads:
            thread.join()
        return code


def device_bytes(pid):
    """Memory of the GPU that the process has; where the system does not tell whose it is, as in a container, all that is taken on
    the GPU. None without an NVIDIA GPU."""

    def query(what, *options):
        output = subprocess.run(["nvidia-smi", f"--query-{what}", "--format=csv,noheader,nounits", *options], capture_output=True, text=True, check=True)
        return [[field.strip() for field in line.split(",")] for line in output.stdout.splitlines()]

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"
    try:
        own = [int(used) for process, used in query("compute-apps=pid,used_memory") if process == str(pid)]
        used = sum(own) if own else int(query("gpu=memory.used", "-i", visible)[0][0])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return None
    return used << 20


def thirds(samples, key):
    """Medians of the first and the last third; None where there are none."""
    values = [sample[key] for sample in samples if sample[key] is not None]
    part = len(values) // 3
    return [statistics.median(values[:part]), statistics.median(values[-part:])] if part else [None, None]


def rates(samples):
    """Rows a second in the first and the last third."""
    part = max(1, (len(samples) - 1) // 3)

    def rate(begin, end):
        return (end["rows"] - begin["rows"]) / (end["at"] - begin["at"])

    return [rate(samples[0], samples[part]), rate(samples[-1 - part], samples[-1])]


def watch(job, seconds):
    """A sample a second; the time counts from the first row on."""
    if not job.first_row.wait(PATIENCE_S):
        return []
    started, samples, has_device = time.monotonic(), [], True
    while (at := time.monotonic() - started) < seconds and job.process.poll() is None:
        device = device_bytes(job.process.pid) if has_device else None
        has_device = device is not None
        samples.append({"at": time.monotonic() - started, "rows": job.rows, "rss": job.rss_bytes(), "device": device})
        time.sleep(max(0.0, at + 1 - (time.monotonic() - started)))
    return samples


def main():
    program, corpus, seconds, options = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    job = Job(program, options, cycle(corpus))
    samples = watch(job, seconds)
    code = job.end()
    warm = [sample for sample in samples if sample["at"] >= min(WARM_UP * seconds, WARM_UP_MOST_S)]
    problems = [f"{count} {what}" for what, count in job.wrong.items()]
    # Files that are none are among them: their rows are errors.
    if code != 3:
        problems.append(f"exit code {code}")
    if job.rows != job.asked:
        problems.append(f"{job.rows} rows for {job.asked} paths")
    figures = {"seconds": seconds, "images": job.rows, "failed": job.failed}
    if len(warm) < 6:
        problems.append(f"{len(warm)} samples: too few to tell anything")
    else:
        first, last = rates(warm)
        figures |= {"rate_first": round(first, 1), "rate_last": round(last, 1)}
        if last < RATE * first or first == 0:
            problems.append(f"the rate fell from {first:.1f} to {last:.1f} a second")
        for key in ("rss", "device"):
            first, last = thirds(warm, key)
            figures |= {f"{key}_first_bytes": first, f"{key}_last_bytes": last}
            if first is not None and last > first + RISE_BYTES + RISE * first:
                problems.append(f"{key} rose from {first / 2**20:.0f} to {last / 2**20:.0f} MiB")
    figures["problems"] = problems
    line = json.dumps(figures)
    print(line)
    if "SOAK_JSON" in os.environ:
        pathlib.Path(os.environ["SOAK_JSON"]).write_text(line + "\n")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
