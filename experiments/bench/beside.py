#!/usr/bin/env python3
"""Times training steps of two configurations in turn and prints the ratio of their times.

    python3 experiments/bench/beside.py BASE.yaml OTHER.yaml [--pairs 6] [--both KEY=VALUE] [--of-base KEY=VALUE]
        [--of-other KEY=VALUE] [--operation NAME] [--output FILE]

A pair is a process of either, one after the other; which of them begins alternates. With --operation NAME also the time
inside operations of the profile whose names begin with NAME is compared, forward and backward. Standard library only.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys


def bench(arguments, config, overrides, extra):
    command = [arguments.quire, "bench", config, f"run.threads={arguments.threads}", *overrides, "--steps",
               str(arguments.steps), "--warmup", "1", *extra]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"beside: error: {command[0]}: {error.strerror}")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def operation_ms(text, names):
    """Returns milliseconds a step in operations of a printed profile whose names begin with one of these."""
    lines = [line.split() for line in text.splitlines()]
    return sum(float(line[2]) for line in lines
               if len(line) > 3 and re.fullmatch(r"[\d.]+", line[2]) and line[0].startswith(tuple(names)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("--quire", default="build/native/bin/quire")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    for side in ("both", "of-base", "of-other"):
        parser.add_argument(f"--{side}", action="append", default=[], metavar="KEY=VALUE", help="setting; may be repeated")
    parser.add_argument("--operation", action="append", default=[], metavar="NAME")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    sides = [(arguments.base, arguments.both + arguments.of_base), (arguments.other, arguments.both + arguments.of_other)]
    steps, operations = ([], []), ([], [])
    for pair in range(arguments.pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            steps[side].append(json.loads(bench(arguments, *sides[side], ["--json"]))["step_ms"])
            if arguments.operation:
                operations[side].append(operation_ms(bench(arguments, *sides[side], ["--profile"]), arguments.operation))
    median = [statistics.median(step["median"] for step in side) for side in steps]
    least = [min(step["min"] for step in side) for side in steps]
    pairs = [b["median"] / a["median"] for a, b in zip(*steps)]
    result = {"date": datetime.date.today().isoformat(), "command": " ".join(["python3", *sys.argv]),
              "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                                       cwd=pathlib.Path(__file__).parent, check=False).stdout.strip(),
              "cores": os.cpu_count(), "base_ms": median[0], "other_ms": median[1], "ratio": median[1] / median[0],
              "least_ratio": least[1] / least[0], "pairs": [min(pairs), statistics.median(pairs), max(pairs)]}
    print(f"{arguments.base.name} {median[0]:.1f} ms, {arguments.other.name} {median[1]:.1f} ms: "
          f"{result['ratio']:.3f} (least {result['least_ratio']:.3f}, pairs {min(pairs):.3f} to {max(pairs):.3f})")
    if arguments.operation:
        inside = [min(side) for side in operations]
        result |= {"base_operation_ms": inside[0], "other_operation_ms": inside[1],
                   "operation_ratio": inside[1] / inside[0]}
        print(f"inside {', '.join(arguments.operation)}: {inside[0]:.1f} ms, {inside[1]:.1f} ms: "
              f"{result['operation_ratio']:.3f} (least of {arguments.pairs})")
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
