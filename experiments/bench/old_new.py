#!/usr/bin/env python3
"""Times training steps of two builds of quire in turn, so that a change is seen not to cost speed or memory.

    python3 experiments/bench/old_new.py OLD_QUIRE NEW_QUIRE [--pairs 10] [--steps 5] [--output FILE] [CONFIG ...]

A round runs the old build, the new one and the old one again, each a process of its own; which of the first two begins
alternates. The ratio is that of the medians over rounds of each process's median step. The spread is the same ratio
between the two runs of the old build: a ratio within it cannot be told from 1. Standard library only.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = [HERE / "llama.yaml", HERE / "gpt2.yaml", HERE / "transformer-xl.yaml",
           HERE.parent.parent / "configs" / "vq-small.yaml", HERE.parent / "memorizing" / "step.yaml"]


def bench(quire, config, arguments):
    command = [quire, "bench", config, f"run.threads={arguments.threads}", "--steps", str(arguments.steps),
               "--warmup", "2", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"old_new: error: {command[0]}: {error.strerror}")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def median_ms(runs):
    return statistics.median(run["step_ms"]["median"] for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_intermixed_args()
    results = {"date": datetime.date.today().isoformat(), "pairs": arguments.pairs, "steps": arguments.steps,
               "threads": arguments.threads, "configs": {}}
    for config in arguments.configs or CONFIGS:
        old, new, again = [], [], []
        for pair in range(arguments.pairs):
            first, second = (old, new) if pair % 2 == 0 else (new, old)
            for runs in (first, second, again):
                runs.append(bench(arguments.new if runs is new else arguments.old, config, arguments))
        spread = [a["step_ms"]["median"] / o["step_ms"]["median"] for o, a in zip(old, again)]
        pairs = [n["step_ms"]["median"] / o["step_ms"]["median"] for o, n in zip(old, new)]
        entry = {
            "old_ms": median_ms(old + again), "new_ms": median_ms(new),
            "ratio": median_ms(new) / median_ms(old + again),
            "least_ratio": min(r["step_ms"]["min"] for r in new) / min(r["step_ms"]["min"] for r in old + again),
            "median_of_pairs": statistics.median(pairs),
            "spread_of_one_build": median_ms(again) / median_ms(old),
            "pairs_of_one_build": [min(spread), max(spread)],
            "peak_bytes_ratio": new[0]["peak_bytes"] / old[0]["peak_bytes"],
        }
        results["configs"][config.stem] = entry
        print(f"{config.stem}: {entry['old_ms']:.1f} ms, now {entry['new_ms']:.1f}: {entry['ratio']:.3f} (least "
              f"{entry['least_ratio']:.3f}, pairs {entry['median_of_pairs']:.3f}); one build beside itself "
              f"{entry['spread_of_one_build']:.3f}, its pairs {min(spread):.3f} to {max(spread):.3f}; peak bytes "
              f"{entry['peak_bytes_ratio']:.4f}", flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
