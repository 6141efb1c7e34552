#!/usr/bin/env python3
"""Draws the evaluations while training of kept runs (`quire sweep --keep`) over their steps, as SVG.

    python3 experiments/curves.py experiments/recall/results/recipe.jsonl --output curves.svg \\
        --metric recall_accuracy --metric bits_per_byte

A line is the mean over the seeds of a variant, with a band from the smallest to the largest. The same runs give the same
picture. Needs matplotlib (Debian: python3-matplotlib).
"""

import argparse
import json
import statistics
import sys


def points_of(runs, variant, metric):
    """Returns the values of all seeds by step."""
    points = {}
    for run in runs:
        if run["variant"] != variant:
            continue
        for point in run["curve"]:
            if point[metric] is not None:
                points.setdefault(point["step"], []).append(point[metric])
    return dict(sorted(points.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("kept", help="file of quire sweep --keep")
    parser.add_argument("--output", required=True, metavar="FILE", help="the picture")
    parser.add_argument("--metric", action="append", choices=["bits_per_byte", "loss", "recall_accuracy"],
                        help="a chart of this figure; may be repeated (default: bits_per_byte)")
    arguments = parser.parse_args()
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit("curves: error: matplotlib cannot be imported (Debian: python3-matplotlib)")
    matplotlib.rcParams["svg.hashsalt"] = "study"
    with open(arguments.kept, encoding="utf-8") as file:
        runs = [json.loads(line) for line in file]
    metrics = arguments.metric or ["bits_per_byte"]
    figure, axes = pyplot.subplots(1, len(metrics), figsize=(5 * len(metrics), 3.6), squeeze=False)
    for axis, metric in zip(axes[0], metrics):
        for variant in dict.fromkeys(run["variant"] for run in runs):
            points = points_of(runs, variant, metric)
            if not points:
                continue
            drawn = axis.plot(list(points), [statistics.fmean(values) for values in points.values()], marker="o",
                              markersize=3, label=variant)[0]
            axis.fill_between(list(points), [min(values) for values in points.values()],
                              [max(values) for values in points.values()], alpha=0.2, color=drawn.get_color(), linewidth=0)
        axis.set_xlabel("step")
        axis.set_ylabel(metric)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(arguments.output, metadata={"Date": None})


if __name__ == "__main__":
    main()
