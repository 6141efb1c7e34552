#!/usr/bin/env python3
"""Times one layer of Transformer-VQ beside a window, full attention and a port to PyTorch, forward and backward, one thread.

    cmake --build --preset native --target bench_vq
    experiments/vq/speed.py --python PYTHON_WITH_TORCH --output FILE

Programs take turns: every round runs each form and length once, in a process of its own, after one untimed step. Times
are the best of all rounds; the file has all of them. The port runs with several numbers of blocks at once, and the best
counts. It keeps memory it has freed (MALLOC_ below): returning it to the system costs it a third at 32768 tokens; quire
does not return it either. OPENBLAS_CORETYPE: OpenBLAS takes new AMD processors for old ones.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LENGTHS = {"vq": (2048, 8192, 32768, 131072), "window": (2048, 8192, 32768), "full": (2048, 8192, 32768)}
PORT_LENGTHS = (2048, 8192, 32768)
PORT_BLOCKS = (4, 16, 0)
PORT_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "SKYLAKEX",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}


def run(command, environment=None):
    done = subprocess.run([str(part) for part in command], env={**os.environ, **(environment or {})},
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def jobs(prefix, program, pythons, repeats, forms, only):
    """Returns (key, function) in the order of a round."""
    for tokens in sorted(set(PORT_LENGTHS) | set(t for lengths in LENGTHS.values() for t in lengths)):
        if only and tokens not in only:
            continue
        few = 2 if tokens >= 32768 else repeats
        for form, lengths in LENGTHS.items():
            if tokens in lengths and (not forms or form in forms):
                yield (form, tokens), lambda f=form, t=tokens, n=1 if form == "full" else few: run(
                    [*prefix, program, f, t, n])
        if tokens not in PORT_LENGTHS:
            continue
        for python in pythons:
            for blocks in PORT_BLOCKS:
                if blocks * 512 <= tokens:
                    yield (python, tokens), lambda p=python, t=tokens, b=blocks, n=few: run(
                        [*prefix, p, HERE / "torch_layer.py", "--tokens", t, "--repeats", n, "--blocks", b], PORT_ENVIRONMENT)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], help="an interpreter with PyTorch; may be repeated")
    parser.add_argument("--program", default=ROOT / "build/native/bin/bench_vq")
    parser.add_argument("--prefix", default="", help="a command to run every program under, such as taskset -c 0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--form", action="append", choices=LENGTHS, help="only this form; may be repeated")
    parser.add_argument("--tokens", action="append", type=int, help="only this length; may be repeated")
    parser.add_argument("--repeats", type=int, default=3, help="timed steps of a process, 2 from 32768 tokens on, 1 of full")
    parser.add_argument("--output")
    a = parser.parse_args()

    results = {}
    for _ in range(a.rounds):
        for key, work in jobs(a.prefix.split(), a.program, a.python, a.repeats, a.form, a.tokens):
            found = work()
            entry = results.setdefault(key, {"seconds": [], "resident_mb": 0, "version": found.get("version", ""),
                                             "best_blocks": None})
            if not entry["seconds"] or min(found["seconds"]) < min(entry["seconds"]):
                entry["best_blocks"] = found.get("blocks_at_once")
                entry["resident_mb"] = found["resident_mb"]
            entry["seconds"] += found["seconds"]

    def best(form, tokens):
        entry = results.get((form, tokens))
        return min(entry["seconds"]) if entry else None

    lengths = sorted({tokens for _, tokens in results})
    print("| us a token | " + " | ".join(f"T {tokens}" for tokens in lengths) + " |")
    print("|---" * (len(lengths) + 1) + "|")
    forms = list(dict.fromkeys(form for form, _ in results))
    names = {form: f"PyTorch {entry['version']}" if entry["version"] else form for (form, _), entry in results.items()}
    for form in forms:
        cells = [f"{best(form, t) / t * 1e6:.1f}" if best(form, t) else "" for t in lengths]
        print(f"| {names[form]} | " + " | ".join(cells) + " |")
    ratios = {}
    for tokens in lengths:
        vq = best("vq", tokens)
        for form in forms:
            other = best(form, tokens)
            if form == "vq" or not other or not vq:
                continue
            if form == "window":  # the one that is faster than vq
                ratios[f"vq over window at {tokens}"] = vq / other
            else:
                ratios[f"{names[form]} over vq at {tokens}"] = other / vq
    if best("vq", 131072) and best("vq", 8192):
        ratios["vq: a token at 131072 over one at 8192"] = best("vq", 131072) / best("vq", 8192) / 16
    for name, value in ratios.items():
        print(f"{name}: {value:.2f}")
    print("resident MB: " + ", ".join(f"{names[form]} {t}: {results[form, t]['resident_mb']:.0f}" for form, t in results))
    if a.output:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        pathlib.Path(a.output).write_text(json.dumps({
            "commit": commit.stdout.strip(),
            "runs": [{"form": names[form], "tokens": tokens, **entry,
                      "us_a_token": min(entry["seconds"]) / tokens * 1e6,
                      "median_us_a_token": statistics.median(entry["seconds"]) / tokens * 1e6}
                     for (form, tokens), entry in results.items()],
            "ratios": ratios,
        }, indent=1) + "\n")


if __name__ == "__main__":
    main()
