#!/usr/bin/env python3
"""Attention alone, forward and backward, of quire and of PyTorch on one GPU, in turn; prints ratios and writes JSON.

    python3 experiments/gpu/attention.py --program BUNDLE/tests/bench_attention [--output FILE]

Rates count 2 (D + Dv) floating-point operations a visible pair forward and 2.5 times as many backward. PyTorch's side is
scaled_dot_product_attention on cuDNN where it covers the case, and FlexAttention, compiled, where it does not. On a GPU
quire's kernels without warpgroups (QUIRE_CUDA_WARPGROUPS=0) are timed, too. Times are the best of all rounds.
"""

import argparse
import json
import os
import pathlib
import subprocess

from record import origin, write

HERE = pathlib.Path(__file__).resolve().parent
# rows, queries, heads, size, slots of the cache, window, terms; what PyTorch runs.
CASES = {
    "causal, size 128, 8192": ((2, 8192, 16, 128, 0, 0, "none"), "cudnn"),
    "causal, size 64, 1024": ((16, 1024, 12, 64, 0, 0, "none"), "cudnn"),
    "window 1024, size 64, 8192": ((4, 8192, 16, 64, 0, 1024, "none"), "flex"),
    "cache 512, T5 bias, size 64, 512": ((16, 512, 16, 64, 512, 512, "bias"), "flex"),
    "cache 512, Transformer-XL, size 64, 512": ((16, 512, 16, 64, 512, 512, "relative"), None),
}
FIELDS = ("rows", "queries", "heads", "size", "slots", "window", "terms")


def quire(program, case, device, repeats, environment=None):
    command = [program, "--device", device, "--type", "bf16" if device == "cuda" else "f32", "--repeats", repeats]
    for field, value in zip(FIELDS, case):
        command += [f"--{field}", value]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise SystemExit(f"attention: error: {done.stderr.strip()}")
    return json.loads(done.stdout)


def torch_side(kind, case, device, repeats):
    """forward_ms, backward_ms of the same attention in PyTorch."""
    import torch
    import torch.nn.functional as F

    rows, queries, heads, size, slots, window, terms = case
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    make = lambda length: torch.randn(rows, heads, length, size, device=device, dtype=dtype, requires_grad=True)
    q, k, v = make(queries), make(queries + slots), make(queries + slots)
    if kind == "cudnn":
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def forward():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if device == "cuda" else SDPBackend.MATH):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        bias = torch.randn(heads, window, device=device, requires_grad=terms == "bias")

        def visible(b, h, a, c):
            distance = a + slots - c
            return (distance >= 0) & (distance < window)

        def with_bias(score, b, h, a, c):
            return score + bias[h, (a + slots - c).clamp(0, window - 1)]

        mask = create_block_mask(visible, None, None, queries, queries + slots, device=device)
        compiled = torch.compile(flex_attention) if device == "cuda" else flex_attention
        forward = lambda: compiled(q, k, v, score_mod=with_bias if terms == "bias" else None, block_mask=mask)

    def seconds(function):
        if device != "cuda":
            import time
            start = time.perf_counter()
            function()
            return time.perf_counter() - start
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000

    dout = torch.randn(rows, heads, queries, size, device=device, dtype=dtype)
    inputs = [q, k, v] + ([bias] if kind == "flex" and terms == "bias" else [])
    times = {"forward_ms": [], "backward_ms": []}
    for repeat in range(repeats + 3):
        held = []
        forward_time = seconds(lambda: held.append(forward()))
        backward_time = seconds(lambda: torch.autograd.grad(held[0], inputs, dout))
        if repeat >= 3:
            times["forward_ms"].append(forward_time * 1e3)
            times["backward_ms"].append(backward_time * 1e3)
    return {key: min(values) for key, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: in f32, to try this script")
    parser.add_argument("--queries", type=int, help="of all cases, in the place of their own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10, help="of a round")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "attention.json")
    a = parser.parse_args()
    results = {**origin(a.program), "gpu": "", "cases": {}}
    for name, (case, peer) in CASES.items():
        if a.queries:
            case = (case[0], a.queries, *case[2:])
        if a.device == "cpu" and peer == "flex":
            peer = None  # it has no backward pass there
        own, without, other = [], [], []
        for _ in range(a.rounds):
            own.append(quire(a.program, case, a.device, a.repeats))
            if a.device == "cuda":
                without.append(quire(a.program, case, a.device, a.repeats, {"QUIRE_CUDA_WARPGROUPS": "0"}))
            if peer and not a.no_torch:
                other.append(torch_side(peer, case, a.device, a.repeats))
        results["gpu"] = own[0]["gpu"]
        entry = {"shape": dict(zip(FIELDS, case)), "peer": peer if other else None}
        for part in ("forward", "backward"):
            entry[f"quire_{part}_ms"] = min(run[f"{part}_ms"] for run in own)
            entry[f"quire_{part}_tflops"] = max(run[f"{part}_tflops"] for run in own)
            if without:
                entry[f"quire_{part}_tflops_without_warpgroups"] = max(run[f"{part}_tflops"] for run in without)
            if other:
                entry[f"torch_{part}_ms"] = min(run[f"{part}_ms"] for run in other)
                entry[f"{part}_torch_over_quire"] = entry[f"torch_{part}_ms"] / entry[f"quire_{part}_ms"]
        results["cases"][name] = entry
        print(f"{name}: {json.dumps(entry)}", flush=True)
        write(a.output, results)


if __name__ == "__main__":
    main()
