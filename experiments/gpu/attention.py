#!/usr/bin/env python3
"""Times attention alone, forward and backward, of quire and of PyTorch on one GPU, in turn; prints ratios and writes JSON.

    python3 experiments/gpu/attention.py --program BUNDLE/tests/bench_attention [--output FILE]

Rates count 2 (D + Dv) floating-point operations a visible pair forward and 2.5 times as many backward. PyTorch's side is
scaled_dot_product_attention on cuDNN where it covers the case, and FlexAttention, compiled, where it does not. Times are
the best of all rounds; on a GPU that of a call when CALLS of them follow each other, so that it is the GPU's time and not
that of calls on the host. Ends with 1 when a case failed on a side.
"""

import argparse
import json
import pathlib
import sys

from record import origin, run_json, write

HERE = pathlib.Path(__file__).resolve().parent
# rows, queries, heads, size, slots of the cache, window, terms; what PyTorch runs.
CASES = {
    "causal, size 128, 8192": ((2, 8192, 16, 128, 0, 0, "none"), "cudnn"),
    "causal, size 64, 1024": ((16, 1024, 12, 64, 0, 0, "none"), "cudnn"),
    "window 1024, size 64, 8192": ((4, 8192, 16, 64, 0, 1024, "none"), "flex"),
    "cache 512, T5 bias, size 64, 512": ((16, 512, 16, 64, 512, 512, "bias"), "flex"),
    "cache 512, Transformer-XL, size 64, 512": ((16, 512, 16, 64, 512, 512, "relative"), None),
}
CALLS = 10
FIELDS = ("rows", "queries", "heads", "size", "slots", "window", "terms")


def quire(program, case, device, repeats):
    command = [program, "--device", device, "--type", "bf16" if device == "cuda" else "f32", "--repeats", repeats,
               "--calls", CALLS if device == "cuda" else 1]
    for field, value in zip(FIELDS, case):
        command += [f"--{field}", value]
    return run_json(command)


def torch_side(kind, case, device, repeats):
    """Returns forward_ms, backward_ms of the same attention in PyTorch."""
    import torch
    import torch.nn.functional as F

    if not hasattr(torch, "_dynamo"):
        raise RuntimeError(f"needs PyTorch 2.5 or newer, and this one is {torch.__version__}")
    torch._dynamo.reset()  # another case is no reason to compile for any shape
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
        compiled = torch.compile(flex_attention, dynamic=False) if device == "cuda" else flex_attention
        forward = lambda: compiled(q, k, v, score_mod=with_bias if terms == "bias" else None, block_mask=mask)

    calls = CALLS if device == "cuda" else 1

    def milliseconds(functions):
        """Returns the milliseconds of one of them."""
        if device != "cuda":
            import time
            start = time.perf_counter()
            results = [function() for function in functions]
            return (time.perf_counter() - start) * 1e3 / calls, results
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        results = [function() for function in functions]
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / calls, results

    dout = torch.randn(rows, heads, queries, size, device=device, dtype=dtype)
    inputs = [q, k, v] + ([bias] if kind == "flex" and terms == "bias" else [])
    times = {"forward_ms": [], "backward_ms": []}
    for repeat in range(repeats + 3):
        forward_time, outs = milliseconds([forward] * calls)
        backward_time, _ = milliseconds([lambda out=out: torch.autograd.grad(out, inputs, dout) for out in outs])
        if repeat >= 3:
            times["forward_ms"].append(forward_time)
            times["backward_ms"].append(backward_time)
    return {key: min(values) for key, values in times.items()}


def torch_or_error(*arguments):
    try:
        return torch_side(*arguments)
    except Exception as error:  # of whatever PyTorch consists of: the case goes on without it
        return {"error": str(error)[-2000:]}


def rates(own, other):
    """Returns what several rounds come to. A side that has failed says why."""
    failed = {name: runs[-1]["error"] for name, runs in (("quire", own), ("torch", other)) if runs and "error" in runs[-1]}
    entry = {"errors": failed} if failed else {}
    if "quire" in failed:
        return entry
    for part in ("forward", "backward"):
        entry[f"quire_{part}_ms"] = min(run[f"{part}_ms"] for run in own)
        entry[f"quire_{part}_tflops"] = max(run[f"{part}_tflops"] for run in own)
        if other and "torch" not in failed:
            entry[f"torch_{part}_ms"] = min(run[f"{part}_ms"] for run in other)
            entry[f"{part}_torch_over_quire"] = entry[f"torch_{part}_ms"] / entry[f"quire_{part}_ms"]
    return entry


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
        sides = [[], []]  # quire, PyTorch
        turns = [lambda: quire(a.program, case, a.device, a.repeats)]
        turns += [lambda: torch_or_error(peer, case, a.device, a.repeats) if peer and not a.no_torch else None]
        for _ in range(a.rounds):
            for runs, turn in zip(sides, turns):
                if runs and "error" in runs[-1]:
                    continue
                run = turn()
                if run is not None:
                    runs.append(run)
        results["gpu"] = sides[0][-1].get("gpu", results["gpu"])
        entry = {"shape": dict(zip(FIELDS, case)), "peer": peer if sides[1] else None, **rates(*sides)}
        results["cases"][name] = entry
        print(f"{name}: {json.dumps(entry)}", flush=True)
        write(a.output, results)
    return any("errors" in entry for entry in results["cases"].values())


if __name__ == "__main__":
    sys.exit(main())
