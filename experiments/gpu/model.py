#!/usr/bin/env python3
"""How long a step in bf16 should take on a GPU: bytes and floating-point operations of every operation, over rates.

    python3 experiments/gpu/model.py CONFIG --rows 16 --set data.subsequence=1024 [--quire build/native/bin/quire]

quire counts what its operations read, write and compute; two steps on the CPU, with one row and with two, tell what
grows with the rows. What grows is stored in bf16 on a GPU, half of what the CPU counts; the rest, weights and their
moments, stays f32. What products do to their results (biases, GELU, its derivative, residuals) counts within them, as
cuBLASLt does it. An operation takes the longer of its bytes over the bandwidth and its operations over the rate of its
kind, and no less than a launch. The rates are those of the table below, each an assumption until it is measured.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEAK = 989e12  # bf16 products of an H100 SXM, dense
BANDWIDTH = 2.7e12  # bytes/s: what large copies reach there, of 3.35e12
LAUNCH = 4e-6  # seconds
RATES = {
    "gemm": 0.70 * PEAK,  # large products of cuBLASLt reach 0.65 to 0.8
    # Own kernels by warpgroups, heads of 64 features. The backward pass computes 7 products of pairs and counts the
    # customary 5.
    "attention": 0.36 * PEAK,
    "attention_backward": 0.42 * 5 / 7 * PEAK,
}


def profile(quire, config, settings, rows):
    command = [quire, "bench", config, "run.device=cpu", "run.precision=f32", *settings, f"data.rows={rows}", "--steps", "1",
               "--warmup", "0", "--profile", "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"model: error: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--quire", default=ROOT / "build/native/bin/quire")
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    if a.rows < 1:
        sys.exit("model: error: --rows: at least one")
    one, two = (profile(a.quire, a.config, a.set, rows) for rows in (1, 2))
    more = {operation["name"]: operation for operation in two["operations"]}
    lines = []
    for first in one["operations"]:
        second = more[first["name"]]
        grown = {key: first[key] + (a.rows - 1) * (second[key] - first[key]) for key in ("flops", "calls")}
        growth = second["bytes"] - first["bytes"]
        fixed = first["bytes"] - growth
        moved = fixed + a.rows * growth / 2
        rate = RATES.get(first["name"], 0.5 * PEAK)
        bytes_ms, flops_ms, launch_ms = moved / BANDWIDTH * 1e3, grown["flops"] / rate * 1e3, grown["calls"] * LAUNCH * 1e3
        lines.append({"name": first["name"], "calls": round(grown["calls"]), "gigabytes": moved / 1e9,
                      "gigaflop": grown["flops"] / 1e9, "ms": max(bytes_ms, flops_ms, launch_ms),
                      "bound": max((bytes_ms, "bytes"), (flops_ms, "flops"), (launch_ms, "launches"))[1]})
    lines.sort(key=lambda line: -line["ms"])
    total = sum(line["ms"] for line in lines)
    flops = one["model_flops"] + (a.rows - 1) * (two["model_flops"] - one["model_flops"])
    share = flops / (total / 1e3) / PEAK
    if a.json:
        print(json.dumps({"operations": lines, "step_ms": total, "share_of_peak": share}))
        return
    print("| operation | calls | GB | GFLOP | ms | bound by |\n|---|---|---|---|---|---|")
    for line in lines:
        if line["ms"] >= 0.005 * total:
            print(f"| {line['name']} | {line['calls']} | {line['gigabytes']:.2f} | {line['gigaflop']:.0f} | {line['ms']:.2f} "
                  f"| {line['bound']} |")
    print(f"\nA step: {total:.1f} ms, {100 * share:.0f} % of {PEAK / 1e12:.0f} TFLOP/s.")


if __name__ == "__main__":
    main()
