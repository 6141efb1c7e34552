#!/usr/bin/env python3
"""Times training steps of quire and of PyTorch on one GPU, in turn; prints ratios and writes JSON.

    python3 experiments/gpu/bench.py --quire BUNDLE/bin/quire [--output FILE] [CASE ...]

Every pair is one process of either, one after the other, so that both meet the same state of the card. The rate of a
large product and the bandwidth of a copy are measured in the same call: what a step could be at best. Needs PyTorch.

gpt2: 124 million parameters, rows of 1024 tokens. window-350m, window-124m: sliding windows over documents of 32768 and
65536 tokens; quire reads them in subsequences with a cache, PyTorch as one row through FlexAttention, equally many tokens
a step. cache-350m: subsequences of 512 with a cache of 512 and T5 biases, on both sides. llama, transformer-xl: when they
are named. --precisions f32 is for models without a window of their own. Ends with 1 when a program failed.
"""

import argparse
import json
import pathlib
import sys

from record import origin, run_pairs, shown, write

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parent / "bench"
# Enough work for a large card: rows, length of a row.
SIZES = {"llama": (32, 1024), "gpt2": (32, 1024), "transformer-xl": (32, 512)}
# Configuration of quire and what is set in it; rows and length of quire's step and of PyTorch's.
WINDOWS = {
    "window-350m": ("window-350m", [], (64, 512), (1, 32768)),
    "window-124m": ("window-124m", [], (64, 1024), (1, 65536)),
    "cache-350m": ("window-350m", ["model.position.kind=t5"], (64, 512), (64, 512)),
}
CASES = [*SIZES, *WINDOWS]
USUAL = ["gpt2", *WINDOWS]
PEAK = 989e12  # bf16 products of an H100 or H200 SXM, dense


def ceilings():
    """Returns FLOP/s of a bf16 product of random matrices, bytes a second of a copy (read and written)."""
    import torch

    measured = measure_ceilings(torch)
    torch.cuda.empty_cache()  # the card is for the programs that follow
    return measured


def measure_ceilings(torch):
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


def sides(model, precision, arguments):
    """Returns the commands of quire and of PyTorch, and rows and length of quire's step."""
    steps = ["--steps", arguments.steps, "--warmup", 5]
    device = "cuda"
    if model in WINDOWS:
        config, settings, (rows, length), other = WINDOWS[model]
        quire = [arguments.quire, "bench", HERE / f"{config}.yaml", *settings]
        peer = [sys.executable, HERE / "torch_window.py", model, "--device", device, "--rows", other[0], "--length", other[1],
                *steps, *(["--masked"] if arguments.no_compile else [])]
    else:
        rows, length = SIZES[model]
        cache = [f"model.attention.softmax.carry.length={length}"] if model == "transformer-xl" else []
        quire = [arguments.quire, "bench", BENCH / f"{model}.yaml", *cache]
        peer = [sys.executable, BENCH / "torch_step.py", model, "--device", device, "--precision", precision,
                "--rows", rows, "--length", length, *steps, *([] if arguments.no_compile else ["--compile"])]
    quire += [f"run.device={device}", f"run.precision={precision}", f"data.rows={rows}", f"data.subsequence={length}",
              *arguments.set, *steps, "--json"]
    return quire, peer, rows, length


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: "
                        f"{', '.join(USUAL)}")
    parser.add_argument("--quire", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precisions", nargs="*", default=["bf16"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="in quire's configuration")
    parser.add_argument("--no-compile", action="store_true", help="PyTorch as it comes, without torch.compile")
    parser.add_argument("--dry-run", action="store_true", help="print the commands of one pair of each case, in bf16")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "bench.json")
    arguments = parser.parse_args()
    for model in arguments.models:
        if model not in CASES:
            parser.error(f"there is no case '{model}'; cases: {', '.join(CASES)}")
    if arguments.dry_run:
        for model in arguments.models or USUAL:
            for command in sides(model, "bf16", arguments)[:2]:
                print(shown(command))
        return False
    results = {**origin(arguments.quire), **ceilings(), "steps": {}}
    print(f"{results['gpu']}: bf16 products {results['bf16_product_flops'] / 1e12:.0f} TFLOP/s, "
          f"copies {results['copy_bytes_per_second'] / 1e12:.2f} TB/s", flush=True)
    for model in arguments.models or USUAL:
        for precision in ["bf16"] if model in WINDOWS else arguments.precisions:
            *commands, rows, length = sides(model, precision, arguments)
            name = f"{model} {precision}"

            def keep(quire, torch):
                entry = {"rows": rows, "length": length, "quire": quire, "torch": torch}
                if "error" not in quire:
                    entry["tokens_per_second"] = rows * length / quire["step_ms_median"] * 1e3
                    rate = quire["model_flops"] / (quire["step_ms_median"] / 1000)
                    entry |= {"share_of_product_rate": rate / results["bf16_product_flops"], "share_of_peak": rate / PEAK}
                    if "error" not in torch:
                        entry["torch_over_quire"] = torch["step_ms_median"] / quire["step_ms_median"]
                results["steps"][name] = entry
                write(arguments.output, results)

            run_pairs(commands, arguments.pairs, keep)
            print(f"{name}: {json.dumps(results['steps'][name])}", flush=True)
    return any("error" in entry[side] for entry in results["steps"].values() for side in ("quire", "torch"))


if __name__ == "__main__":
    sys.exit(main())
