"""Puts a run's logs and figures together: report.py FOLDER COMMIT writes FOLDER/report.json and prints a table."""

import datetime
import json
import pathlib
import re
import subprocess
import sys


def tests(folder):
    """Counts over the logs of the test programs; a program that ended badly without saying so counts as one failure."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for log in sorted(folder.glob("gpu_*.log")):
        text = log.read_text(errors="replace")
        found = re.findall(r"(\d+) passed; (\d+) failed; (\d+) ignored", text)
        for passed, failed, ignored in found:
            counts["passed"] += int(passed)
            counts["failed"] += int(failed)
            counts["skipped"] += int(ignored)
        status = log.with_suffix(".status").read_text().strip()
        if status != "0" and not any(int(failed) for _, failed, _ in found):
            counts["failed"] += 1
        counts["skipped"] += len(re.findall(r"^skipped ", text, re.MULTILINE))
    return counts


def sanitizer(folder):
    """What compute-sanitizer found, by tool."""
    errors = {}
    for tool in ("memcheck", "racecheck", "initcheck"):
        for log in sorted(folder.glob(f"{tool}-*.log")):
            text = log.read_text(errors="replace")
            counts = re.findall(r"ERROR SUMMARY: (\d+) error", text) + re.findall(r"RACECHECK SUMMARY: (\d+) hazard", text)
            errors[tool] = errors.get(tool, 0) + (sum(map(int, counts)) if counts else 1)
    return errors


def agreement(folder):
    """Share of photos with the same first class on the CPU in fp32 and on the GPU, in percent, by model."""
    results = []
    for cpu in sorted(folder.glob("agreement-*-cpu.jsonl")):
        model = cpu.name.removeprefix("agreement-").removesuffix("-cpu.jsonl")
        cuda = folder / f"agreement-{model}-cuda.jsonl"
        if not cuda.exists():
            continue
        # A row without a label tells of an error.
        first = [
            {row["path"]: row["top"][0]["class"] for row in map(json.loads, file.open()) if row.get("top")}
            for file in (cpu, cuda)
        ]
        if not first[0]:
            continue
        same = sum(first[1].get(path) == label for path, label in first[0].items())
        results.append({
            "name": f"agreement.{model}.fp16.top1",
            "value": 100 * same / len(first[0]),
            "unit": "%",
            "spread": 0.0,
            "bound_percent": None,
        })
    return results


def gpu():
    """Name and driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ["unknown", "unknown"]


def main():
    folder, commit = pathlib.Path(sys.argv[1]), sys.argv[2]
    results = agreement(folder)
    for file in sorted(folder.glob("bench-*.json")):
        results += json.loads(file.read_text())
    peers = {}
    if (folder / "peers.json").exists():
        for peer in json.loads((folder / "peers.json").read_text()):
            peers.setdefault(peer["name"], []).append(peer)
    for result in results:
        # The fastest peer is the one to be compared with.
        best = max(peers.get(result["name"], []), key=lambda peer: peer["value"], default=None)
        if best:
            result["peer"], result["peer_value"] = best["peer"], best["value"]
    name, driver = gpu()
    report = {
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "gpu": name,
        "driver": driver,
        "tests": tests(folder),
        "sanitizer": sanitizer(folder),
        "results": results,
    }
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{name}, driver {driver}: {report['tests']} {report['sanitizer']}")
    for result in results:
        peer = f"{result['value'] / result['peer_value']:6.2f} x {result['peer']}" if "peer" in result else ""
        bound = f"{result['bound_percent']:4.0f} %" if result.get("bound_percent") else ""
        print(f"{result['name']:44} {result['value']:12.2f} {result['unit']:6} {bound:7} {peer}")


if __name__ == "__main__":
    main()
