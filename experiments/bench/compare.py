#!/usr/bin/env python3
"""Times training steps of quire and PyTorch in turn, pair by pair, and prints ratios.

    python3 experiments/bench/compare.py [MODEL ...] --python PYTHON [--python OTHER] --output FILE

Each pair is one process of either, one after the other, so that a slow spell of the machine meets both. PYTHON is an
interpreter that has torch; give several to compare against the fastest of them. Standard library only.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ["llama", "gpt2", "transformer-xl", "landmark", "drt", "delta", "kda"]


def measured(command, environment=None):
    """Runs a command and returns its JSON output and the most memory that it had resident."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with status {status}")
    return json.loads(out) | {"peak_rss_bytes": usage.ru_maxrss * 1024}


def summary(runs):
    return {
        "step_ms_min": min(r["step_ms"]["min"] for r in runs),
        "step_ms_median": sorted(r["step_ms"]["median"] for r in runs)[len(runs) // 2],
        "peak_rss_bytes": max(r["peak_rss_bytes"] for r in runs),
    }


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="of " + ", ".join(MODELS) + "; default: all")
    parser.add_argument("--quire", default="build/native/bin/quire")
    parser.add_argument("--python", action="append", required=True, help="interpreter with torch; may be repeated")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--openblas-core", default="SKYLAKEX",
                        help="kernels that OpenBLAS uses; old versions take new AMD processors for very old ones")
    parser.add_argument("--output", type=pathlib.Path, help="also write the results as JSON")
    arguments = parser.parse_args()
    threads = arguments.threads
    results = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python3", *sys.argv]),
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout.strip(),
        "processor": processor(), "threads": threads, "models": {},
    }
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_CORETYPE": arguments.openblas_core}
    for model in arguments.models or MODELS:
        own, peers = [], {python: [] for python in arguments.python}
        for pair in range(arguments.pairs):
            own.append(measured([arguments.quire, "bench", HERE / f"{model}.yaml", f"run.threads={threads}",
                                 "--steps", str(arguments.steps), "--warmup", "2", "--json"]))
            for python in arguments.python:
                peers[python].append(measured([python, HERE / "torch_step.py", model, "--steps", str(arguments.steps),
                                               "--threads", str(threads)], environment))
            print(f"{model} pair {pair + 1}: quire {own[-1]['step_ms']['min']:.0f} ms, "
                  + ", ".join(f"torch {runs[-1]['torch']} {runs[-1]['step_ms']['min']:.0f} ms" for runs in peers.values()),
                  flush=True)
        quire = summary(own)
        quire |= {key: own[-1][key] for key in ("parameters", "model_flops", "peak_bytes", "backend")}
        quire["measured_peak_flops"] = max(r["measured_peak_flops"] for r in own)
        quire["model_flops_share"] = quire["model_flops"] / quire["step_ms_min"] * 1000 / quire["measured_peak_flops"]
        entry = {"quire": quire, "peers": []}
        print(f"{model}: quire {quire['step_ms_min']:.0f} ms (median {quire['step_ms_median']:.0f}), "
              f"{quire['peak_rss_bytes'] / 1e6:.0f} MB resident, {quire['peak_bytes'] / 1e6:.0f} MB tensors, "
              f"{100 * quire['model_flops_share']:.0f} % of {quire['measured_peak_flops'] / 1e9:.0f} GFLOP/s")
        for python, runs in peers.items():
            peer = summary(runs) | {key: runs[-1][key] for key in ("torch", "blas", "threads", "parameters", "imported_rss_bytes")}
            if peer["parameters"] != quire["parameters"]:
                sys.exit(f"{model}: {quire['parameters']} parameters here and {peer['parameters']} in torch: not the same model")
            peer["ratio_of_minima"] = peer["step_ms_min"] / quire["step_ms_min"]
            peer["ratio_of_medians"] = peer["step_ms_median"] / quire["step_ms_median"]
            entry["peers"].append(peer)
            print(f"  torch {peer['torch']} ({peer['blas']}): {peer['step_ms_min']:.0f} ms (median "
                  f"{peer['step_ms_median']:.0f}), {peer['peak_rss_bytes'] / 1e6:.0f} MB resident; "
                  f"quire is {peer['ratio_of_minima']:.2f}x as fast (medians {peer['ratio_of_medians']:.2f}x)", flush=True)
        results["models"][model] = entry
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
