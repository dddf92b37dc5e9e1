"""Puts a run's logs and figures together: report.py LOGS COMMIT REPORT.json writes REPORT.json and prints a table.

What an earlier run of the same commit left there stays, where LOGS has nothing in its place.
"""

import collections
import datetime
import json
import pathlib
import re
import subprocess
import sys


def tests(logs):
    """Counts over the logs of the test programs. A test that said why it did nothing was skipped, not passed; a program that ended
    badly without naming a test is a failure of its own."""
    passed, failures, skipped = 0, [], collections.Counter()
    for log in sorted(logs.glob("gpu_*.log")):
        text = log.read_text(errors="replace")
        status = log.with_suffix(".status").read_text().strip()
        passed += len(re.findall(r"^test .* \.\.\. ok$", text, re.MULTILINE))
        failed = re.findall(r"^test (.*) \.\.\. FAILED$", text, re.MULTILINE)
        if status == "124":
            failed.append("out of time")
        elif status != "0" and not failed:
            failed.append(f"status {status}")
        failures += [f"{log.stem}: {test}" for test in failed]
        skips = dict(re.findall(r"^skipped (.*?): (.*)$", text, re.MULTILINE))
        passed -= len(skips)
        skipped.update(skips.values())
    return {"passed": passed, "failed": len(failures), "failures": failures, "skipped": dict(sorted(skipped.items()))}


def agreement(logs):
    """Share of photos with the same first class on the CPU in fp32 and on the GPU, in percent, by model."""
    results = []
    for cpu in sorted(logs.glob("agreement-*-cpu.jsonl")):
        model = cpu.name.removeprefix("agreement-").removesuffix("-cpu.jsonl")
        cuda = logs / f"agreement-{model}-cuda.jsonl"
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
        name, value = f"agreement.{model}.fp16.top1", 100 * same / len(first[0])
        results.append({"name": name, "value": value, "unit": "%", "spread": 0.0, "bound_percent": None})
    return results


def read(file, otherwise):
    return json.loads(file.read_text()) if file.exists() else otherwise


def beside(results, peers):
    """Every result with the fastest peer."""
    for result in results:
        others = [peer for peer in peers if peer["name"] == result["name"]]
        if others:
            best = max(others, key=lambda peer: peer["value"])
            result |= {
                "peer": best["peer"],
                "peer_value": best["value"],
                "peer_spread": best["spread"],
                "ratio": result["value"] / best["value"],
            }


def gpu():
    """Name and driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ["unknown", "unknown"]


def combined(earlier, new):
    """Results and peers are told from one another by their names."""
    report = earlier | {key: value for key, value in new.items() if value}
    for key, identity in (("results", lambda one: one["name"]), ("peers", lambda one: (one["name"], one["peer"]))):
        ours = {identity(one) for one in new[key]}
        report[key] = [one for one in earlier.get(key, []) if identity(one) not in ours] + new[key]
    beside(report["results"], report["peers"])
    report["sanitizer"] = earlier.get("sanitizer", {}) | new["sanitizer"]
    return report


def show(report):
    print(f"\n{report['gpu']}, driver {report['driver']}, commit {report['commit'][:10]}")
    counts = report.get("tests", {})
    if counts:
        print(f"{counts['passed']} tests passed, {counts['failed']} failed, {sum(counts['skipped'].values())} skipped")
        for failure in counts["failures"]:
            print(f"    failed: {failure}")
        for reason, count in counts["skipped"].items():
            print(f"    skipped: {count} ({reason})")
    for tool, count in report["sanitizer"].items():
        print(f"{tool}: {', '.join(f'{value} {key}' for key, value in count.items())}")
    if soak := report.get("soak"):
        print(f"soak: {', '.join(f'{key} {value}' for key, value in soak.items())}")
    for result in report["results"]:
        figure = f"{result['value']:12.2f} +- {result['spread']:9.2f} {result['unit']:6}"
        bound = f"{result['bound_percent']:4.0f} %" if result.get("bound_percent") else ""
        peer = ""
        if "peer" in result:
            peer = f"{result['ratio']:6.2f} x {result['peer']} ({result['peer_value']:.0f} +- {result['peer_spread']:.0f})"
        split = ", ".join(f"{name} {percent:.0f} %" for name, percent in result.get("decoders_percent", {}).items())
        print(f"{result['name']:40} {figure} {bound:7} {peer}{split}")


def main():
    logs, commit, file = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    results = agreement(logs)
    for figures in sorted(logs.glob("bench-*.json")):
        results += json.loads(figures.read_text())
    name, driver = gpu()
    new = {
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "gpu": name,
        "driver": driver,
        "tests": tests(logs) if any(logs.glob("gpu_*.log")) else {},
        "sanitizer": read(logs / "sanitizer/summary.json", {}),
        "soak": read(logs / "soak.json", {}),
        "peers": read(logs / "peers.json", []),
        "results": results,
    }
    earlier = read(file, {})
    report = combined(earlier if earlier.get("commit") == commit else {}, new)
    file.write_text(json.dumps(report, indent=1) + "\n")
    show(report)


if __name__ == "__main__":
    main()
