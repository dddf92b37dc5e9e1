"""The GPU tests under compute-sanitizer, each in a process of its own and many at once: sanitizer.py OUTPUT.

First every test runs plainly: that compiles its kernels into the shared cache, shows what is skipped or fails anyway, and how
long it takes. Then it runs under each tool, on one of the GPUs. Two of three processes take the longest test that is left, the
third the shortest, so that neither is lost where the time ends; what had to be stopped, or never began, counts as timed out and
never as clean. Tests that start the program have the program checked; where they need the exit code of a process that does
without CUDA, there is nothing to check. Logs, summary.json and jobs.json go to OUTPUT; a later run can go on from jobs.json. Run
it in the bundle's folder, through run.sh.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

TOOLS = ("memcheck", "racecheck", "initcheck")
# Their own processes only look whether there is a GPU.
STARTS_THE_PROGRAM = ("gpu_classify",)
# They use the GPU themselves, and start the program beside, which would wait for a tool that does not expect it: it runs without.
BESIDE_THE_PROGRAM = ("gpu_parity", "gpu_single")
# Of what the test tells the program, what is not about the tool, a variable a line.
ALONE = """IFS='
'
set -f
exec env -i $(env | grep -E '^(PATH|HOME|TMPDIR|LD_LIBRARY_PATH|CUDA_HOME|CUDA_VISIBLE_DEVICES|OCELLUS_[A-Z_]*|REQUIRE_[A-Z_]*)=')"""
# They launch no kernel that the others do not, again and again or in many processes.
LEFT_OUT = ("gpu_bench", "gpu_faults")
OPTIONS = [
    # Neither the workers that compile nor the tests' other children use the GPU.
    *("--target-processes", "application-only"),
    # `--device cpu`
    *("--require-cuda-init", "no"),
    *("--check-exit-code", "no"),
    # Host frames of every launch cost more than they tell of a stripped program.
    *("--show-backtrace", "no"),
    *("--launch-timeout", "120"),
    # The rest of the test is still worth checking.
    *("--destroy-on-device-error", "kernel"),
]
TOOL_OPTIONS = {
    "memcheck": ["--track-stream-ordered-races", "all"],
    # As many processes run as there are cores.
    "racecheck": ["--racecheck-num-workers", "1"],
    "initcheck": [],
}
# These have nvJPEG decode; initcheck does not see what the JPEG engines write, from which it copies rows into the planes.
DECODES = ("gpu_classify", "gpu_parity", "gpu_single")
DECODES_OPTIONS = {"initcheck": ["--check-api-memory-access", "no"]}
# In the log of a process that made no call of CUDA. Such a process's exit code is lost.
NO_CUDA = "Target application terminated before first instrumented API call"
# Lines of a log that are no findings.
NO_FINDING = re.compile(
    rf"COMPUTE-SANITIZER|\w+ SUMMARY|{NO_CUDA}|Tracking kernels launched by child|\d+ errors were|Warning: Error buffer overflow"
)
# Memory of the GPU that is free when one more process begins. A context takes half a gigabyte, each of ten decoders up to one.
RESERVE_MIB = 20 << 10
# Until a process that has begun shows in the memory that is free.
BEGINS_S = 0.5
# Ports that a process of the sanitizer tries.
PORTS = 10
# Of what is printed, so that the end of a long log holds it.
PRINTED_CHARACTERS = 8000
# Seconds between two lines that say how far it is.
REPORT_S = 30
# Of the bundle.
COMMIT = pathlib.Path("commit").read_text().strip() if pathlib.Path("commit").exists() else "unknown"


@dataclasses.dataclass
class Job:
    """A test under a tool, or plainly."""

    tool: str | None
    program: pathlib.Path
    test: str
    commit: str
    seconds: float = 0.0
    status: str = "timed out"
    errors: int = 0

    @property
    def name(self):
        return f"{self.program.name}::{self.test}"

    @property
    def key(self):
        return (self.tool, self.program.name, self.test)

    @property
    def is_done_with(self):
        """Whether it need not be run again."""
        return self.status in ("passed", "skipped") and not self.errors


class Queue:
    """What is to be run. A test comes under the tools after its plain run; what is among `ended`, by key, is not run again."""

    def __init__(self, listed, tools, ended):
        self.tools, self.ended = tools, ended
        self.plain, self.ready, self.running_plain = [], [], 0
        self.changed = threading.Condition()
        # A worker has failed: nobody may wait for what it would have done.
        self.closed = False
        for job in listed:
            if job.key in ended:
                self.add_tools(ended[job.key])
            else:
                self.plain.append(job)

    def take(self, longest):
        """The next job; None when there will be none."""
        with self.changed:
            while not self.closed:
                if self.plain:
                    self.running_plain += 1
                    return self.plain.pop(0)
                if self.ready:
                    self.ready.sort(key=lambda job: job.seconds)
                    return self.ready.pop(-1 if longest else 0)
                if not self.running_plain:
                    return None
                self.changed.wait()
            return None

    def close(self):
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def ran_plainly(self, job):
        with self.changed:
            self.running_plain -= 1
            self.add_tools(job)
            self.changed.notify_all()

    def add_tools(self, job):
        if job.status in ("passed", "timed out"):
            jobs = [Job(tool, job.program, job.test, COMMIT, job.seconds) for tool in self.tools]
            self.ready += [job for job in jobs if job.key not in self.ended]


class Room:
    """Lets a process begin when the GPU has memory for it, or no other one runs."""

    def __init__(self):
        self.door, self.lock = threading.Lock(), threading.Lock()
        self.running, self.began, self.least_free_mib = 0, 0.0, None

    def look(self):
        """Free memory, MiB; None where nobody says."""
        command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        try:
            free = min(map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()))
        except (OSError, ValueError, subprocess.CalledProcessError):
            return None
        self.least_free_mib = free if self.least_free_mib is None else min(free, self.least_free_mib)
        return free

    @contextlib.contextmanager
    def place(self):
        with self.door:
            while (free := self.look()) is not None and self.running:
                if free >= RESERVE_MIB and time.monotonic() - self.began >= BEGINS_S:
                    break
                time.sleep(BEGINS_S / 2)
            self.began = time.monotonic()
            with self.lock:
                self.running += 1
        try:
            yield
        finally:
            with self.lock:
                self.running -= 1


def visible_gpus():
    """Those that there are, or that the user allows, as CUDA_VISIBLE_DEVICES names them."""
    if allowed := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return allowed.split(",")
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ["0"]
    return [str(number) for number in range(max(1, len(listed.splitlines())))]


class Run:
    def __init__(self, output, tools, jobs, deadline, earlier):
        self.output, self.tools, self.jobs, self.deadline = output, tools, jobs, deadline
        self.earlier = earlier
        self.gpus = visible_gpus()
        self.done, self.lock, self.room = [], threading.Lock(), Room()
        # What ended a worker.
        self.failures = []
        self.ocellus = pathlib.Path("bin/ocellus").resolve()
        self.output.mkdir(parents=True, exist_ok=True)

    def listed(self):
        """Every test of the programs, those of the slowest one first."""
        programs = [program for program in pathlib.Path("bin").resolve().glob("gpu_*") if program.name not in LEFT_OUT]
        programs.sort(key=lambda program: program.name != "gpu_conv")
        for program in programs:
            listing = subprocess.run([program, "--list", "--format", "terse"], capture_output=True, text=True, check=True)
            for line in listing.stdout.splitlines():
                if line.endswith(": test"):
                    yield Job(None, program, line.removesuffix(": test"), COMMIT)

    def sanitizer(self, job, stem, slot):
        """The command line that runs something under the tool."""
        log = f"{stem}.%p.log"
        ports = ["--port", str(50000 + PORTS * slot), "--max-connections", str(PORTS)]
        options = [*OPTIONS, *TOOL_OPTIONS[job.tool], *ports]
        if job.program.name in DECODES:
            options += DECODES_OPTIONS.get(job.tool, [])
        return ["compute-sanitizer", "--tool", job.tool, "--log-file", log, *options]

    def command(self, job, stem, slot):
        """How to run a job, and with which program."""
        test = [job.program, "--exact", job.test, "--test-threads", "1"]
        if not job.tool:
            return test, self.ocellus
        command = self.sanitizer(job, stem, slot)
        if job.program.name in BESIDE_THE_PROGRAM:
            return [*command, *test], self.wrapper(stem, f'{ALONE} {self.ocellus} "$@"')
        if job.program.name not in STARTS_THE_PROGRAM:
            return [*command, *test], self.ocellus
        checked = " ".join(f"'{word}'" for word in command)
        return test, self.wrapper(
            stem, f'[ "$1" = jit-worker ] && exec {self.ocellus} "$@"\nexec {checked} {self.ocellus} "$@"'
        )

    def wrapper(self, stem, script):
        """What the test starts in the program's place."""
        wrapper = pathlib.Path(f"{stem}.sh")
        wrapper.write_text(f"#!/bin/sh\n{script}\n")
        wrapper.chmod(0o755)
        return wrapper

    def run(self, job, slot):
        left = self.deadline - time.monotonic()
        if left <= 0:
            return
        stem = self.output / f"{job.tool or 'plain'}-{job.program.name}-{job.test}"
        command, program = self.command(job, stem, slot)
        started = time.monotonic()
        with stem.with_suffix(".out").open("wb") as out:
            gpu = self.gpus[slot % len(self.gpus)]
            environment = os.environ | {"OCELLUS_TEST_PROGRAM": str(program), "CUDA_VISIBLE_DEVICES": gpu}
            if job.tool:
                environment["OCELLUS_TEST_TOOL"] = job.tool
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )
            try:
                process.wait(left)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            else:
                job.status = "passed" if process.returncode == 0 else "failed"
            job.seconds = time.monotonic() - started
        # A test's name stands before what it prints.
        said = stem.with_suffix(".out").read_text(errors="replace")
        if job.status == "passed" and re.search(r"(^|\.\.\. )skipped ", said, re.MULTILINE):
            job.status = "skipped"
        if job.tool:
            self.count_errors(job)

    def count_errors(self, job):
        logs = [log.read_text(errors="replace") for log in self.logs(job)]
        if job.status == "failed" and any(NO_CUDA in log for log in logs):
            job.status = "skipped"
        logs = [log for log in logs if NO_CUDA not in log]
        sums = [re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", log) for log in logs]
        # A tool that was stopped has no sum.
        job.errors = sum(int(found[1]) if found else len(list(blocks(log))) for found, log in zip(sums, logs))
        # What did not come to its end is not clean.
        if job.status == "passed" and not all(sums):
            job.status = "failed"

    def logs(self, job):
        return sorted(self.output.glob(f"{job.tool}-{job.program.name}-{job.test}.*.log"))

    def work(self, queue, slot):
        """A worker's life. An error of its own, not of a test, ends the run: what was not seen must not count as clean."""
        try:
            self.work_off(queue, slot)
        except BaseException as error:
            self.failures.append(error)
            queue.close()

    def work_off(self, queue, slot):
        while (job := queue.take(longest=slot % 3 != 2)) is not None:
            with self.room.place():
                self.run(job, slot)
            if not job.tool:
                queue.ran_plainly(job)
            with self.lock:
                self.done.append(job)

    def everything(self):
        listed = list(self.listed())
        programs = {job.key[1:]: job.program for job in listed}
        ended = {}
        for job in self.earlier:
            if job.is_done_with and job.key[1:] in programs:
                ended[job.key] = dataclasses.replace(job, program=programs[job.key[1:]])
        self.done += ended.values()
        queue = Queue(listed, self.tools, ended)
        threads = [threading.Thread(target=self.work, args=(queue, slot)) for slot in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(REPORT_S)
                with self.lock:
                    counts = collections.Counter(job.tool or "plain" for job in self.done)
                print(f"{self.deadline - time.monotonic():4.0f} s left, done: {dict(counts)}", flush=True)
        if self.failures:
            raise self.failures[0]


def blocks(log):
    """The findings in a tool's log, a list of lines each."""
    lines = [line.removeprefix("=========").removeprefix(" ") for line in log.splitlines() if line.startswith("=========")]
    finding = []
    for line in [*lines, ""]:
        # Details are indented.
        if not line.startswith(" "):
            if finding and not NO_FINDING.match(finding[0]):
                yield finding
            finding = [line] if line else []
        elif finding:
            finding.append(line)


def findings(run):
    """What the tools told: by tool, kind and kernel the tests and an example."""
    groups = {}
    for job in run.done:
        for log in run.logs(job) if job.tool else []:
            for block in blocks(log.read_text(errors="replace")):
                kind = re.sub(r"0x[0-9a-f]+|\d+", "#", " ".join(block[:2]))
                group = groups.setdefault((job.tool, kind), {"count": 0, "tests": set(), "example": block})
                group["count"] += 1
                group["tests"].add(job.name)
    return groups


def print_findings(groups):
    """The most frequent last, as many as fit."""
    printed, left = [], PRINTED_CHARACTERS
    # What a call returned matters less than what a kernel did.
    order = sorted(groups.items(), key=lambda item: ("Program hit" not in item[0][1], item[1]["count"]), reverse=True)
    for (tool, _), group in order:
        tests = sorted(group["tests"])
        text = f"--- {tool}, {group['count']} times in {len(tests)} tests: {', '.join(tests[:3])}\n"
        text += "".join(f"    {line[:170]}\n" for line in group["example"][:6])
        left -= len(text)
        if left < 0:
            break
        printed.append(text)
    if len(printed) < len(order):
        print(f"({len(order) - len(printed)} more kinds are in the logs)")
    print("".join(reversed(printed)), end="")


def print_unclean(run):
    unclean = {}
    for job in run.done:
        if job.status in ("failed", "timed out"):
            unclean.setdefault((job.status, job.name), []).append(job)
    for (status, name), jobs in sorted(unclean.items()):
        print(f"{status}: {name}", ", ".join(f"{job.tool or 'plain'} {job.seconds:.0f} s" for job in jobs))
        out = run.output / f"{jobs[0].tool or 'plain'}-{jobs[0].program.name}-{jobs[0].test}.out"
        text = out.read_text(errors="replace") if status == "failed" else ""
        print("".join(f"    {line[:170]}\n" for line in text.splitlines() if "panicked" in line or line.startswith("====")), end="")


def summary(run):
    """Counts by tool. A test that fails without a tool is checked by none."""
    plain_failures = sum(job.tool is None and job.status == "failed" for job in run.done)
    counts = {}
    for tool in run.tools:
        jobs = [job for job in run.done if job.tool == tool]
        statuses = collections.Counter(job.status for job in jobs)
        counts[tool] = {
            "tests": statuses["passed"] + statuses["failed"],
            "errors": sum(job.errors for job in jobs),
            "failed": plain_failures + statuses["failed"],
            "timed_out": statuses["timed out"],
            "seconds": round(sum(job.seconds for job in jobs), 1),
            # Where a run went on from that of another one.
            "commits": dict(collections.Counter(job.commit[:10] for job in jobs if job.status in ("passed", "failed"))),
        }
    return counts


def read_jobs(file):
    """Those of an earlier run."""
    return [Job(**job | {"program": pathlib.Path(job["program"])}) for job in json.loads(file.read_text())]


def write_jobs(file, jobs):
    lines = [json.dumps(dataclasses.asdict(job) | {"program": job.program.name}) for job in jobs]
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--tools", default=",".join(TOOLS), help="some of memcheck,racecheck,initcheck")
    parser.add_argument("--seconds", type=float, default=480.0, help="for everything together")
    parser.add_argument("--go-on", type=pathlib.Path, metavar="JOBS.json", help="of a run whose time ended: what was clean stays so")
    parser.add_argument("--jobs", type=int, default=max(2, len(os.sched_getaffinity(0)) - 2), help="processes at once")
    arguments = parser.parse_args()
    tools = list(filter(None, arguments.tools.split(",")))
    if unknown := set(tools) - set(TOOLS):
        parser.error(f"no tool {', '.join(sorted(unknown))}; there are {', '.join(TOOLS)}")
    started = time.monotonic()
    earlier = read_jobs(arguments.go_on) if arguments.go_on else []
    run = Run(arguments.output.resolve(), tools, arguments.jobs, started + arguments.seconds, earlier)
    try:
        run.everything()
    finally:
        write_jobs(run.output / "jobs.json", run.done)
    counts = summary(run)
    (run.output / "summary.json").write_text(json.dumps(counts, indent=1) + "\n")
    slowest = sorted((job for job in run.done if job.tool), key=lambda job: -job.seconds)[:12]
    if run.room.least_free_mib is not None:
        print(f"least free memory of the GPU: {run.room.least_free_mib} MiB")
    print("slowest:", ", ".join(f"{job.tool} {job.name} {job.seconds:.0f} s" for job in slowest))
    print_findings(findings(run))
    print_unclean(run)
    print(f"\n{'tool':10} {'tests':>6} {'errors':>7} {'failed':>7} {'timed out':>10} {'process seconds':>16}")
    for tool, count in counts.items():
        columns = f"{count['tests']:6} {count['errors']:7} {count['failed']:7} {count['timed_out']:10}"
        print(f"{tool:10} {columns} {count['seconds']:16.0f}")
    plain = collections.Counter(job.status for job in run.done if not job.tool)
    print(f"plainly {dict(plain)}; {time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()
