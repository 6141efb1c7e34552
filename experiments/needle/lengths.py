#!/usr/bin/env python3
"""Asks the runs of a sweep tasks of RULER and bAbI at many lengths, prints one table and draws one picture.

    python3 experiments/needle/lengths.py runs/*-1 --filler books.h5:test --results answers.jsonl --svg lengths.svg \\
        --set moba:model.attention.moba.carry.length=1024

Each run (a folder VARIANT-SEED) is asked by `quire needle`, one length after the other. What is in --results with as many
samples is not asked again, so that the same command goes on where it stopped, also with more samples than before. A line
of the picture is the mean score over the samples of all seeds of a variant, with its interval of 95 %. Needs matplotlib
for --svg (Debian: python3-matplotlib).
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TASKS = "niah_single_2,niah_multikey_1,vt,babi_1"
LENGTHS = "1k,2k,4k,8k,16k,32k,64k"


def interval(mean, samples):
    """Returns Wilson's interval of 95 % of a mean of values from 0 to 1."""
    z = 1.959963984540054
    middle = (mean + z * z / (2 * samples)) / (1 + z * z / samples)
    half = z / (1 + z * z / samples) * math.sqrt(mean * (1 - mean) / samples + z * z / (4 * samples * samples))
    return max(0.0, middle - half), min(1.0, middle + half)


def samples_of(text):
    """Parses "50,64k=10": samples by length, and under "" those of the others."""
    parts = [part.rpartition("=") for part in text.split(",")]
    right = all(number.isdecimal() and int(number) > 0 for _, _, number in parts)
    if not right or all(length for length, _, _ in parts):
        raise argparse.ArgumentTypeError(f"{text} is not N[,LENGTH=N...], with numbers from 1 on")
    samples = {length: int(number) for length, _, number in parts}
    return samples


def stored_answers(path):
    """Returns the answers of a file by run and length. A line that was cut off as it was written counts as absent."""
    answers = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        answers[answer["run"], answer["length"]] = answer
    return answers


def answers_of(run, length, stored, arguments):
    """Returns what quire needle says of a run at a length; asks it unless the answers are stored."""
    samples = arguments.samples.get(length, arguments.samples[""])
    variant = run.name.rsplit("-", 1)[0]
    overrides = [setting.split(":", 1)[1] for setting in arguments.set if setting.split(":", 1)[0] == variant]
    settings = {"task": arguments.tasks, "filler": arguments.filler or "built-in", "set": overrides}
    answers = stored.get((run.name, length))
    if answers and any(answers.get(key) != value for key, value in settings.items()):
        sys.exit(f"lengths: error: {arguments.results}: {run.name} was asked at {length} with other settings; choose "
                 "another --results")
    if answers and answers["samples"] >= samples:
        return answers
    command = [arguments.quire, "needle", run, *overrides, "--task", arguments.tasks, "--lengths", length, "--samples",
               samples, "--json"]
    if arguments.filler:
        command += ["--filler", arguments.filler]
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    answers = {**json.loads(done.stdout), "run": run.name, "length": length, "set": overrides}
    with arguments.results.open("a", encoding="utf-8") as results:
        results.write("\n" * (results.tell() > 0) + json.dumps(answers))
    return answers


def scores_of(runs, lengths, arguments):
    """Returns the scores of all seeds by variant, task and length."""
    scores = {}
    stored = stored_answers(arguments.results)
    for length in lengths:  # the short ones of all runs come first
        for run in runs:
            for cell in answers_of(run, length, stored, arguments)["cells"]:
                key = (run.name.rsplit("-", 1)[0], cell["task"], length)
                scores.setdefault(key, []).extend(cell["scores"])
    return scores


def print_table(scores, variants, lengths, tasks):
    print("| variant | task | " + " | ".join(lengths) + " |\n|---|---|" + "---|" * len(lengths))
    for task in tasks:
        for variant in variants:
            row = []
            for length in lengths:
                values = scores[variant, task, length]
                mean = sum(values) / len(values)
                low, high = interval(mean, len(values))
                row.append(f"{100 * mean:.0f} ({100 * low:.0f}-{100 * high:.0f})")
            print(f"| {variant} | {task} | " + " | ".join(row) + " |")


def draw(scores, variants, lengths, tasks, path):
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit("lengths: error: matplotlib cannot be imported (Debian: python3-matplotlib)")
    matplotlib.rcParams["svg.hashsalt"] = "study"
    columns = min(2, len(tasks))
    figure, axes = pyplot.subplots(-(-len(tasks) // columns), columns, squeeze=False, sharex=True, sharey=True,
                                   figsize=(5.5 * columns, 3.2 * -(-len(tasks) // columns)))
    for axis, task in zip(axes.flat, tasks):
        for variant in variants:
            cells = [scores[variant, task, length] for length in lengths]
            means = [sum(values) / len(values) for values in cells]
            ends = [interval(mean, len(values)) for mean, values in zip(means, cells)]
            line = axis.plot(range(len(lengths)), means, marker="o", markersize=3, label=variant)[0]
            axis.fill_between(range(len(lengths)), [low for low, _ in ends], [high for _, high in ends], alpha=0.12,
                              color=line.get_color(), linewidth=0)
        axis.set_title(task)
        axis.set_ylim(-0.02, 1.02)
        axis.set_xticks(range(len(lengths)), lengths)
        axis.set_ylabel("score")
        axis.grid(alpha=0.3)
    rows_of_names = -(-len(variants) // 5)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="lower center", ncol=5, fontsize="small")
    figure.tight_layout(rect=(0, 0.02 + 0.035 * rows_of_names, 1, 1))
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("runs", type=pathlib.Path, nargs="+", metavar="RUN", help="a run of a sweep, VARIANT-SEED")
    parser.add_argument("--results", type=pathlib.Path, required=True, metavar="FILE",
                        help="the answers, one line for each run and length")
    parser.add_argument("--tasks", default=TASKS, metavar="LIST")
    parser.add_argument("--lengths", default=LENGTHS, metavar="LIST")
    parser.add_argument("--samples", type=samples_of, default="50", metavar="N[,LENGTH=N...]",
                        help="samples of a task at a length, as in 50,32k=20,64k=10 (default: 50)")
    parser.add_argument("--filler", metavar="CORPUS[:SPLIT]", help="text between the facts")
    parser.add_argument("--set", action="append", default=[], metavar="VARIANT:KEY=VALUE",
                        help="a setting for reading with a variant; may be repeated")
    parser.add_argument("--svg", metavar="FILE", help="the picture")
    parser.add_argument("--quire", default=ROOT / "build/native/bin/quire", metavar="PROGRAM")
    arguments = parser.parse_args()
    runs = arguments.runs
    for run in runs:
        if not (run / "config.yaml").exists():
            sys.exit(f"lengths: error: {run}: is not a run (has no config.yaml)")
    lengths, tasks = arguments.lengths.split(","), arguments.tasks.split(",")
    variants = list(dict.fromkeys(run.name.rsplit("-", 1)[0] for run in runs))
    for setting in arguments.set:
        if ":" not in setting or setting.split(":", 1)[0] not in variants:
            sys.exit(f"lengths: error: --set {setting}: is not VARIANT:KEY=VALUE of a variant that is asked")
    scores = scores_of(runs, lengths, arguments)
    print_table(scores, variants, lengths, tasks)
    if arguments.svg:
        draw(scores, variants, lengths, tasks, arguments.svg)


if __name__ == "__main__":
    main()
