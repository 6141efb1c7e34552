#!/usr/bin/env python3
"""How many facts does a state of fixed size hold? Writes pairs of a key and a value, in random directions, one after the
other into a state, and reads every key again: a value counts as known when the nearest of the candidates is it. Nothing is
trained. The rules are those of the gated delta rule without decay (writing strength 1), of its additive form, and of the two
updates of Infini-attention.

    python3 experiments/recall/capacity.py --output capacity.json --svg capacity.svg
"""

import argparse
import json
import sys

import numpy

RULES = ("delta", "additive", "infini delta", "infini linear")
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def unit(x):
    return x / numpy.linalg.norm(x, axis=-1, keepdims=True)


def known_share(random, rule, size, count, candidates):
    """The share of `count` pairs whose values are known after all of them were written into a state of size x size."""
    directions = random.standard_normal((count, size))
    # Infini-attention makes keys positive by sigma(x) = elu(x) + 1; the others have keys of unit length.
    keys = unit(directions)
    if rule.startswith("infini"):
        keys = numpy.where(directions > 0, directions + 1, numpy.exp(numpy.minimum(directions, 0)))
    values = unit(random.standard_normal((max(candidates, count), size)))
    state, mass = numpy.zeros((size, size)), numpy.zeros(size)
    for key, value in zip(keys, values):
        read = 0
        if rule == "delta":
            read = state @ key
        elif rule == "infini delta" and mass @ key > 0:
            read = state @ key / (mass @ key)
        state += numpy.outer(value - read, key)
        mass += key
    nearest = numpy.argmax(keys @ state.T @ values.T, axis=1)
    return float((nearest == numpy.arange(count)).mean())


def draw(rows, path):
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    matplotlib.rcParams["svg.hashsalt"] = "capacity"  # the same picture every time
    figure, axes = pyplot.subplots(1, len(RULES), figsize=(11, 3), sharey=True)
    for axis, rule in zip(axes, RULES):
        for size in sorted({row["size"] for row in rows}):
            line = [row for row in rows if row["rule"] == rule and row["size"] == size]
            axis.plot([row["facts"] for row in line], [100 * row["known"] for row in line], marker=".",
                      label=f"{size} x {size}")
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
        axis.set_title(rule)
        axis.set_xlabel("pairs written")
    axes[0].set_ylabel("values known, %")
    axes[-1].legend(title="state")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 32, 64, 128],
                        help="features of a key and of a value (default: %(default)s)")
    parser.add_argument("--candidates", type=int, default=1024, help="values to choose from (default: %(default)s)")
    parser.add_argument("--trials", type=int, default=16, help="states of each kind (default: %(default)s)")
    parser.add_argument("--output", required=True, help="JSON file of the result")
    parser.add_argument("--svg", help="also draw it, with matplotlib")
    arguments = parser.parse_args()
    if min(arguments.trials, arguments.candidates, *arguments.sizes) < 1:
        parser.error("sizes, candidates and trials are at least 1")
    random = numpy.random.default_rng(1)
    rows = []
    for rule in RULES:
        for size in arguments.sizes:
            for count in COUNTS:
                known = [known_share(random, rule, size, count, arguments.candidates) for _ in range(arguments.trials)]
                rows.append({"rule": rule, "size": size, "facts": count, "known": round(sum(known) / len(known), 4)})
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump({"candidates": arguments.candidates, "trials": arguments.trials, "rows": rows}, file)
        file.write("\n")
    for rule in RULES:
        for size in arguments.sizes:
            held = [row["facts"] for row in rows if row["rule"] == rule and row["size"] == size and row["known"] >= 0.9]
            print(f"{rule:14} {size:4} x {size:<4} {max(held, default=0):4} pairs at 90 %")
    if arguments.svg:
        draw(rows, arguments.svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())
