#!/usr/bin/env python3
"""Training steps of quire and of PyTorch on one GPU, in turn; prints ratios and writes JSON.

    python3 experiments/gpu/bench.py --quire BUNDLE/bin/quire [--output FILE] [llama gpt2 transformer-xl]

Every pair is one process of either, one after the other, so that both meet the same state of the card. The rate of a
large product and the bandwidth of a copy are measured in the same call: what a step could be at best. Needs PyTorch.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parent / "bench"
# Enough work for a large card: rows, length of a row.
SIZES = {"llama": (32, 1024), "gpt2": (16, 1024), "transformer-xl": (32, 512)}


def ceilings():
    """FLOP/s of a bf16 product of random matrices, bytes a second of a copy (read and written)."""
    import torch

    def seconds(function, repeats=10):
        for _ in range(3):
            function()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            function()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000 / repeats

    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(1 << 30, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "bf16_product_flops": 2 * n**3 / seconds(lambda: torch.mm(a, b)),
        "copy_bytes_per_second": 2 * 4 * source.numel() / seconds(lambda: target.copy_(source)),
    }


def run_json(command):
    print("  $", " ".join(map(str, command)), file=sys.stderr, flush=True)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1], "status": done.returncode}
    return json.loads(done.stdout)


def summary(runs):
    failed = [run for run in runs if "error" in run]
    if failed:
        return failed[0]
    medians = sorted(run["step_ms"]["median"] for run in runs)
    kept = {key: runs[-1][key] for key in ("parameters", "peak_bytes", "model_flops", "backend", "torch") if key in runs[-1]}
    return {"step_ms_min": min(run["step_ms"]["min"] for run in runs), "step_ms_median": medians[len(medians) // 2], **kept}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(SIZES)}; default: all")
    parser.add_argument("--quire", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precisions", nargs="*", default=["bf16", "f32"])
    parser.add_argument("--no-compile", action="store_true", help="PyTorch as it comes, without torch.compile")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "bench.json")
    arguments = parser.parse_args()
    commit_file = pathlib.Path(arguments.quire).resolve().parent.parent / "COMMIT"
    results = {
        "date": datetime.date.today().isoformat(),
        "commit": commit_file.read_text().strip() if commit_file.exists() else "unknown",
        "command": " ".join(["python3", *sys.argv]),
        **ceilings(),
        "steps": {},
    }
    print(f"{results['gpu']}: bf16 products {results['bf16_product_flops'] / 1e12:.0f} TFLOP/s, "
          f"copies {results['copy_bytes_per_second'] / 1e12:.2f} TB/s", flush=True)
    for model in arguments.models or SIZES:
        rows, length = SIZES[model]
        for precision in arguments.precisions:
            own, peers = [], []
            for _ in range(arguments.pairs):
                quire = [arguments.quire, "bench", BENCH / f"{model}.yaml", "run.device=cuda", f"run.precision={precision}",
                         f"data.rows={rows}", f"data.subsequence={length}", "--steps", arguments.steps, "--warmup", 5, "--json"]
                if model == "transformer-xl":
                    quire.insert(3, f"model.attention.cache.length={length}")
                own.append(run_json(quire))
                torch_step = [sys.executable, BENCH / "torch_step.py", model, "--device", "cuda", "--precision", precision,
                              "--rows", rows, "--length", length, "--steps", arguments.steps, "--warmup", 5]
                peers.append(run_json(torch_step if arguments.no_compile else torch_step + ["--compile"]))
            quire, torch = summary(own), summary(peers)
            entry = {"rows": rows, "length": length, "quire": quire, "torch": torch}
            if "error" not in quire and "error" not in torch:
                entry["torch_over_quire"] = torch["step_ms_median"] / quire["step_ms_median"]
                entry["share_of_product_rate"] = (
                    quire["model_flops"] / (quire["step_ms_median"] / 1000) / results["bf16_product_flops"])
            results["steps"][f"{model} {precision}"] = entry
            print(f"{model} {precision}: {json.dumps(entry)}", flush=True)
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
