#!/usr/bin/env python3
"""Trains three small models in quire and in plain PyTorch, from the same weights on the same batches, and compares.

    python3 experiments/parity/parity.py --work /tmp/parity

Part f64: 100 steps, losses within 1e-8 of each other, relative. Part f32: 10 steps, within 1e-5. Part long: 2000 steps
in f32 with three seeds, means of the last 200 losses closer than the standard deviation over the seeds. Part long-f64:
2000 steps in f64, losses within 1e-5. Part changes: as f64, with a setting that quire alone gets, which the comparison
must notice. What is finished is kept in WORK/units, so the same command goes on where it was stopped. Exit code 1 says
that a part has not come out as it must. Needs the built program, PyTorch, NumPy, h5py and PyYAML; the text is the King
James Bible (Debian: bible-kjv), a document a chapter.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

import compare

HERE = pathlib.Path(__file__).resolve().parent
MODELS = ("xl", "knn", "vq")
PARTS = {  # precision, steps, warm-up, seeds
    "f64": ("f64", 100, 20, (1,)),
    "f32": ("f32", 10, 2, (1,)),
    "long": ("f32", 2000, 60, (1, 2, 3)),
    "long-f64": ("f64", 2000, 60, (1,)),
    "changes": ("f64", 100, 20, (1,)),
}
# Quire alone gets these in the part changes, one at a time. The losses must then differ.
CHANGES = {
    "xl": ("model.attention.softmax.carry.length=95", "model.attention.softmax.window=158", "model.position.xl.clamp=158"),
    "knn": ("model.memory.0.carry.length=699", "model.memory.0.top_k=15", "model.memory.0.write=evict",
            "model.attention.softmax.window=79", "model.position.t5.max_distance=120"),
    "vq": ("model.attention.vq.window=31", "model.attention.vq.current_codewords=true",
           "model.attention.vq.cache_gradient=false", "model.attention.vq.commitment=0.00011",
           "model.attention.vq.codebook.decay=0.98", "model.attention.vq.codebook.rounds=4",
           "model.attention.vq.codebook.reseed=1.2"),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--work", help="folder for the corpus, runs, results and the report")
    parser.add_argument("--quire", default="build/native/bin/quire", help="the program (default: %(default)s)")
    parser.add_argument("--texts", help="folder of texts, a document each, in place of the Bible")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS), help="default: all")
    parser.add_argument("--steps", type=int, help="instead of those of each part, which then is no such part any more")
    parser.add_argument("--report", metavar="FOLDER", help="only print the tables of these results")
    parser.add_argument("--curves", metavar="FILE", help="with --report: draw the curves, as SVG (needs matplotlib)")
    return parser.parse_args()


def run_parts(a):
    import units  # needs PyTorch, which a report does not

    runner = units.Runner(a.quire, a.work, a.texts)
    results = runner.work / "results"
    for part in a.part:
        precision, steps, warmup, seeds = PARTS[part]
        if a.steps:
            steps, warmup = a.steps, max(1, a.steps // 5)
        pairs = []
        for model in a.model:
            for seed in seeds:
                unit = units.Unit(HERE / f"{model}.yaml", model, seed, precision, steps, warmup)
                if part != "changes":
                    pairs.append(compare.pair_of(unit, runner.quire(unit), runner.torch(unit)))
                    continue
                runner.quire(unit)  # the port compares its weights at the end with it
                for change in CHANGES[model]:
                    changed = runner.quire(dataclasses.replace(unit, change=change))
                    pairs.append(compare.changed_pair_of(changed, runner.torch(unit)))
        result = {"part": part, "steps": steps, "precision": precision, "torch": units.torch_version(),
                  "quire": runner.version(), "pairs": pairs}
        (results / f"{part}.json").write_text(compare.as_text(result), encoding="utf-8")
    return [results / f"{part}.json" for part in a.part]


def main():
    a = parse_arguments()
    if bool(a.work) == bool(a.report):
        raise compare.ParityError("give either --work FOLDER or --report FOLDER")
    if a.curves and not a.report:
        raise compare.ParityError("--curves goes with --report")
    if a.steps is not None and a.steps < 2:
        raise compare.ParityError("--steps: at least 2")
    if a.report:
        files = [file for part in PARTS if (file := pathlib.Path(a.report) / f"{part}.json").exists()]
        if not files:
            raise compare.ParityError(f"{a.report}: holds no results")
    else:
        files = run_parts(a)
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    lines, agrees = compare.report(results)
    print("\n".join(lines))
    if a.curves:
        compare.draw(results, a.curves)
    return 0 if agrees else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (compare.ParityError, OSError) as error:
        print(f"parity: error: {error}", file=sys.stderr)
        sys.exit(2)
