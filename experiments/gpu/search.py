#!/usr/bin/env python3
"""Times exact search of an external memory: quire, PyTorch and FAISS on one GPU, in turn; prints ratios and writes JSON.

    python3 experiments/gpu/search.py --program BUNDLE/tests/bench_search [--output FILE]

16 heads, each with keys of its own, 512 queries of 64 features, the 32 largest products; bf16. PyTorch multiplies and then
takes the largest, FAISS (knn_gpu, exact, in f16, where the module is there) searches head by head. Times are the best of
all rounds, on a GPU those of a call when CALLS of them follow each other. Ends with 1 when quire failed.
"""

import argparse
import json
import pathlib
import sys

from record import origin, run_json, write

HERE = pathlib.Path(__file__).resolve().parent
HEADS, QUERIES, SIZE, WANTED = 16, 512, 64, 32
ENTRIES = (8192, 65536, 262144)
CALLS = 10


def peers(device, entries, repeats):
    """Returns milliseconds of the libraries that are there."""
    import torch

    torch.manual_seed(1)
    make = lambda length: torch.rand(HEADS, length, SIZE, device=device, dtype=torch.bfloat16 if device == "cuda" else None)
    q, keys = make(QUERIES) * 2 - 1, make(entries) * 2 - 1
    searches = {"torch": lambda: torch.topk(q @ keys.transpose(1, 2), WANTED, dim=-1)}
    if device == "cuda":
        try:
            import faiss
            import faiss.contrib.torch_utils  # noqa: F401: tensors of PyTorch as arguments
        except ImportError:
            print("search: FAISS is not there", flush=True)
        else:
            resources = faiss.StandardGpuResources()
            halves = q.half(), keys.half()
            searches["faiss"] = lambda: [faiss.knn_gpu(resources, a, b, WANTED, metric=faiss.METRIC_INNER_PRODUCT)
                                         for a, b in zip(*halves)]

    calls = CALLS if device == "cuda" else 1

    def milliseconds(function):
        import time
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / calls

    times = {}
    for name, search in searches.items():
        try:
            times[name] = min([milliseconds(search) for _ in range(repeats + 1)][1:])
        except Exception as error:  # of a library: the others go on without it
            print(f"search: {name}: {error}", flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: in f32, to try this script")
    parser.add_argument("--entries", type=int, nargs="+", default=ENTRIES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10, help="of a round")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "search.json")
    a = parser.parse_args()
    results = {**origin(a.program), "gpu": "", "heads": HEADS, "queries": QUERIES, "size": SIZE, "top_k": WANTED, "entries": {}}
    for entries in a.entries:
        command = [a.program, "--device", a.device, "--type", "bf16" if a.device == "cuda" else "f32", "--heads", HEADS,
                   "--queries", QUERIES, "--size", SIZE, "--entries", entries, "--top-k", WANTED, "--repeats", a.repeats,
                   "--calls", CALLS if a.device == "cuda" else 1]
        own, others = [], []
        for _ in range(a.rounds):
            own.append(run_json(command))
            if "error" in own[-1]:
                break
            if not a.no_torch:
                others.append(peers(a.device, entries, a.repeats))
        if "error" in own[-1]:
            results["entries"][entries] = own[-1]
            write(a.output, results)
            print(f"{entries} entries: {json.dumps(own[-1])}", flush=True)
            continue
        results["gpu"] = own[0]["gpu"]
        best = min(run["ms"] for run in own)
        entry = {"quire_ms": best, "quire_tflops": max(run["tflops"] for run in own)}
        for name in sorted({name for run in others for name in run}):
            entry[f"{name}_ms"] = min(run[name] for run in others if name in run)
            entry[f"{name}_over_quire"] = entry[f"{name}_ms"] / best
        results["entries"][entries] = entry
        print(f"{entries} entries: {json.dumps(entry)}", flush=True)
        write(a.output, results)
    return any("error" in entry for entry in results["entries"].values())


if __name__ == "__main__":
    sys.exit(main())
