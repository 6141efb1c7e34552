#!/usr/bin/env python3
"""Times training steps of mechanisms beside quire's own sliding window, and of Transformer-VQ beside full attention.

    python3 experiments/gpu/mechanisms.py --quire BUNDLE/bin/quire [--output FILE] [CASE ...]

350 million parameters (window-350m.yaml), bf16, some 16384 tokens a step; times are compared by token. Both models run in
turn. Memories are full when timing begins: as many steps come before. full-8k, full-32k and full-128k: twelve layers of
gated attention units that read all earlier keys of one row, and the same units with caches of codewords; of bytes, as
Transformer-VQ is published, so that no head for 50257 tokens hides what layers cost. full-128k needs 71 GiB of a GPU
and a minute for ten steps (--steps). Ends with 1 when a program failed.
"""

import argparse
import json
import pathlib
import sys

from record import origin, run_pairs, shown, write

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE / "window-350m.yaml"
WINDOW = ["data.rows=32"]


def knn(size):
    memory = f"model.memory=[{{kind: knn, layers: [18], carry: {{length: {size}}}, top_k: 32}}]"
    return ["data.rows=32", memory], 32 * 512, size // 512


def gated(layers):
    """Returns settings of gated attention units of the same width, without feed-forward layers: two for a layer of the
    window's model."""
    return [f"model.layers={layers}", "model.heads=1", "model.head_size=128", "model.mlp={kind: none}", "model.position.kind=xl",
            "model.attention.kind=vq", "model.attention.vq.value_size=2048"]


def full(length):
    """Returns settings of one row of full attention, and of the same with caches of codewords."""
    row = [*gated(12), "data.vocabulary=256", "data.rows=1", f"data.subsequence={length}"]
    return ((row + [f"model.attention.vq.window={length}", f"model.attention.vq.block={length}",
                    "model.attention.vq.compressive_cache=false"], length, 1),
            (row + ["model.attention.vq.window=512", "model.attention.vq.block=512"], length, 1))


BASE = (WINDOW, 32 * 512, 1)
# Each case and its base: the settings of the configuration, tokens of a step, and steps until state is full.
CASES = {
    "xl": ((["data.rows=32", "model.position.kind=xl", "model.attention.softmax.carry={kind: hidden, length: 512}"], 32 * 512, 1), BASE),
    "knn-8k": (knn(8192), BASE),
    "knn-64k": (knn(65536), BASE),
    "landmark": ((["data.rows=32", "data.subsequence=510", "model.attention={kind: landmark, landmark: {block: 50}}"],
                  32 * 500, 1), BASE),
    "moba": ((["data.rows=32", "model.attention={kind: moba, moba: {block: 64, top_k: 4, carry: {length: 128}}}"], 32 * 512, 16), BASE),
    "drt": ((["data.rows=32", "data.subsequence=520", "model.position.kind=alibi",
              "model.stack={kind: drt, drt: {chunk: 64, top_k: 8, groups: 1, carry: {length: 512}}}"], 32 * 512, 64), BASE),
    "vq": (([*gated(48), "data.rows=8", "data.subsequence=2048", "model.attention.vq.window=512",
             "model.attention.vq.block=512"], 8 * 2048, 1), BASE),
    "full-8k": full(8192),
    "full-32k": full(32768),
    "full-128k": full(131072),
}


def command(arguments, side):
    settings, _, before = side
    return [arguments.quire, "bench", CONFIG, "run.device=cuda", "run.precision=bf16", *settings, *arguments.set,
            "--steps", arguments.steps, "--warmup", before + 4, "--json"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--quire", required=True)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="on both sides")
    parser.add_argument("--dry-run", action="store_true", help="print the commands of one pair of each case")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results" / "mechanisms.json")
    arguments = parser.parse_args()
    for case in arguments.cases:
        if case not in CASES:
            parser.error(f"there is no case '{case}'; cases: {', '.join(CASES)}")
    results = {**origin(arguments.quire), "gpu": "", "cases": {}}
    for case in arguments.cases or CASES:
        commands = [command(arguments, side) for side in CASES[case]]
        if arguments.dry_run:
            print("\n".join(map(shown, commands)))
            continue

        def keep(own, beside):
            entry = {"tokens": CASES[case][0][1], "beside_tokens": CASES[case][1][1], "step": own, "beside": beside}
            if "error" not in own and "error" not in beside:
                results["gpu"] = own["backend"]
                entry["ratio"] = own["step_ms_median"] / entry["tokens"] / (beside["step_ms_median"] / entry["beside_tokens"])
            results["cases"][case] = entry
            write(arguments.output, results)

        run_pairs(commands, arguments.pairs, keep)
        print(f"{case}: {json.dumps(results['cases'][case])}", flush=True)
    return any("error" in entry[side] for entry in results["cases"].values() for side in ("step", "beside"))


if __name__ == "__main__":
    sys.exit(main())
