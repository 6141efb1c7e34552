#!/usr/bin/env python3
"""Measures what a memory adds to a training step, in quire and in plain PyTorch, in turn.

    python3 experiments/memorizing/step.py --python PYTHON --output experiments/memorizing/results/step.json

PYTHON is an interpreter that has torch. Every round runs each of quire and PyTorch without memory and with full memories of
8192 and 65536 entries, one process after the other. Standard library only.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SIZES = (0, 8192, 65536)


def measured(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with status {done.returncode}")
    return json.loads(done.stdout)


def quire_command(program, size, steps, threads):
    # The memory of every row is full before a step is timed.
    memory = ["model.memory=[]"] if size == 0 else [f"model.memory.0.carry.length={size}"]
    return [program, "bench", HERE / "step.yaml", *memory, f"run.threads={threads}", "--json", "--warmup",
            str(size // 512 + 3), "--steps", str(steps)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/native/bin/quire")
    parser.add_argument("--python", help="interpreter with torch; without it only quire is timed")
    parser.add_argument("--size", action="append", type=int, help="of the memory, instead of 8192 and 65536; may be repeated")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    times, more = {}, {}
    sizes = [0] + sorted(set(arguments.size or SIZES) - {0})
    for _ in range(arguments.rounds):
        for size in sizes:
            run = measured(quire_command(arguments.quire, size, arguments.steps, arguments.threads))
            times.setdefault(("quire", size), []).append(run["step_ms"]["min"])
            more[size] = {"state_bytes": run["state_bytes"], "peak_bytes": run["peak_bytes"]}
            if arguments.python:
                run = measured([arguments.python, HERE / "torch_step.py", "--memory", str(size), "--steps",
                                str(arguments.steps), "--threads", str(arguments.threads)])
                times.setdefault((f"torch {run['torch']}", size), []).append(run["step_ms"]["min"])
    result = {"date": datetime.date.today().isoformat(), "threads": arguments.threads, "command": " ".join(sys.argv),
              "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, text=True,
                                       stdout=subprocess.PIPE, check=False).stdout.strip(),
              "step_ms": {}, "quire": more}
    for (name, size), values in times.items():
        result["step_ms"].setdefault(name, {})[size] = {"min": min(values), "median": sorted(values)[len(values) // 2]}
    print(f"{'':<16}" + "".join(f"{'M ' + str(size):>12}" for size in sizes)
          + "".join(f"{size:>10}" for size in sizes[1:]))
    for name, by_size in result["step_ms"].items():
        base = by_size[0]["min"]
        print(f"{name:<16}" + "".join(f"{by_size[size]['min']:>9.1f} ms" for size in sizes)
              + "".join(f"{by_size[size]['min'] / base:>9.2f}x" for size in sizes[1:]))
    # Counts the bytes of an entry in f32 with 4 heads of 64 features: keys and values.
    for size in sizes[1:]:
        entry = (more[size]["state_bytes"] - more[0]["state_bytes"]) / (4 * size)
        result["quire"][size]["bytes_per_entry"] = entry
        print(f"M {size}: {entry:.1f} bytes an entry, {entry / (2 * 256 * 4):.3f} of keys and values")
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
