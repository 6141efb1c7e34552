#!/usr/bin/env python3
"""What warps executed, by kernel, from the lines that QUIRE_TEST_PTX_COUNTS left (model.md, "What warps execute").

    python3 experiments/gpu/counts.py counts.jsonl [--least 100000]

Instructions are those of PTX and of whole warps; a KB is 32 sectors that accesses of global memory touched, from whichever
cache they came. `sectors` and `wavefronts` are in times of the fewest that lanes side by side would have needed.
"""

import argparse
import json
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--least", type=int, default=0, metavar="N", help="leave out kernels with fewer instructions")
    a = parser.parse_args()
    try:
        with open(a.file, encoding="utf-8") as file:
            kernels = [json.loads(line) for line in file]
    except (OSError, ValueError) as error:
        sys.exit(f"counts: error: {a.file}: {error}")
    print("| kernel | launches | instructions | a KB | sectors | wavefronts |\n|---|---|---|---|---|---|")
    for k in sorted(kernels, key=lambda k: -k["instructions"]):
        if k["instructions"] < a.least:
            continue

        def ratio(name, factor=1.0):
            return f"{factor * k[name[0]] / k[name[1]]:.2f}" if k[name[1]] else ""

        name = k["kernel"].removeprefix("void ").replace("quire::cuda::", "").replace("(anonymous namespace)::", "")
        print(f"| `{name}` | {k['launches']} | {k['instructions']} | {ratio(('instructions', 'sectors'), 32)} "
              f"| {ratio(('sectors', 'fewest_sectors'))} | {ratio(('wavefronts', 'fewest_wavefronts'))} |")


if __name__ == "__main__":
    main()
