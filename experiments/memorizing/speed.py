#!/usr/bin/env python3
"""Times search of an external memory beside FAISS's flat index in one run, on one thread, and prints a table and JSON.

    python3 experiments/memorizing/speed.py [--python PYTHON] [--output FILE]

The program bench_knn_search has Debian's FAISS in it when libfaiss-dev was there as it was built. PYTHON is an
interpreter that has the faiss-cpu wheel (and numpy), a newer FAISS with other kernels: it runs between two runs of the
program. Standard library only.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# The same sizes as search.cpp: 16 pairs of a row and a head, 512 queries each.
WHEEL = """
import json, sys, time
import faiss, numpy
faiss.omp_set_num_threads(1)
out = []
for entries in map(int, sys.argv[1:]):
    random = numpy.random.default_rng(1)
    heads = []
    for _ in range(16):
        index = faiss.IndexFlatIP(64)
        index.add(random.standard_normal((entries, 64), dtype=numpy.float32))
        heads.append((index, random.standard_normal((512, 64), dtype=numpy.float32)))
    times = []
    for _ in range(4 if entries > 20000 else 10):
        start = time.perf_counter()
        for index, queries in heads:
            index.search(queries, 32)
        times.append((time.perf_counter() - start) * 1e6 / (16 * 512))
    times = sorted(times[1:])
    out.append({"entries": entries, "least": times[0], "median": times[len(times) // 2]})
print(json.dumps({"version": faiss.__version__, "options": faiss.get_compile_options().strip(), "times": out}))
"""


def run(command, environment):
    process = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with status {process.returncode}")
    return json.loads(process.stdout)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def kind_of(part):
    return next(kind for kind in ("search", "attention", "index") if kind in part)


def merged(runs):
    """Returns the least time and the median of the medians of several runs of the program."""
    result = json.loads(json.dumps(runs[0]))
    for i, part in enumerate(result):
        kind = kind_of(part)
        for name in part[kind]:
            every = [one[i][kind][name] for one in runs]
            part[kind][name] = {"least": min(t["least"] for t in every),
                                "median": sorted(t["median"] for t in every)[len(every) // 2]}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/native/bin/bench_knn_search")
    parser.add_argument("--entries", action="append", type=int,
                        help="time only search, of so many entries instead of all that the program knows; may be repeated")
    parser.add_argument("--python", help="interpreter with the faiss-cpu wheel")
    parser.add_argument("--openblas-core", default="SKYLAKEX",
                        help="kernels that OpenBLAS, which Debian's FAISS multiplies with, uses; old versions take new "
                             "AMD processors for very old ones")
    parser.add_argument("--output", type=pathlib.Path, help="also write the results as JSON")
    arguments = parser.parse_args()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": arguments.openblas_core}
    sizes = [str(entries) for entries in arguments.entries or []]
    runs = [run([arguments.program, *sizes], environment)]
    wheel = None
    if arguments.python:
        wheel = run([arguments.python, "-c", WHEEL, *(sizes or ["8192", "65536"])], environment)
    runs.append(run([arguments.program, *sizes], environment))
    results = {
        "date": datetime.date.today().isoformat(),
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True,
                                 check=False).stdout.strip(),
        "processor": processor(), "threads": 1, "head_size": 64, "top_k": 32, "runs": merged(runs), "wheel": wheel,
    }
    for part in results["runs"]:
        kind = kind_of(part)
        print(f"{kind}, {part['entries']} entries, {part['unit']} and head: least (median)")
        rows = dict(part[kind])
        if kind == "search" and wheel:
            times = next(t for t in wheel["times"] if t["entries"] == part["entries"])
            rows[f"FAISS {wheel['version']} wheel, flat f32"] = times
        own = rows.get("quire f32", {}).get("least")
        for name, times in rows.items():
            ratio = f"   {times['least'] / own:.2f}x of quire f32" if "FAISS" in name else ""
            print(f"  {name:34} {times['least']:9.2f} ({times['median']:.2f}){ratio}")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
