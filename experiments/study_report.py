"""The report of a study (study.py): tables, differences document by document, curves."""

import math
import random
import statistics
import sys


def nats_and_bytes(result, begin, end=None):
    """Of the targets of an evaluation, or of one of its documents, at positions from begin to end."""
    bins = [line for line in result.get("by_position", [])
            if line["begin"] >= begin and (not end or line["end"] <= end)]
    return sum(line["nll"] for line in bins), sum(line["bytes"] or 0 for line in bins)


def value_of(result, metric):
    """"recall.accuracy" of an evaluation, or "bits_per_byte@4096", of the targets from position 4096 on; None where it
    has none."""
    if "@" in metric:
        nats, count = nats_and_bytes(result, int(metric.split("@")[1]))
        return nats / (math.log(2) * count) if count else None
    for part in metric.split("."):
        result = result.get(part) if isinstance(result, dict) else None
    return result


def document_values(evaluation, metric):
    """The metric of every document, by name, where a document has it."""
    values = {}
    for document in evaluation["by_document"]:
        value = value_of(document, metric)
        if value is not None:
            values[document["name"]] = value
    return values


def bootstrap_interval(differences, samples=10000, seed=1):
    """95 % interval of the mean, documents drawn with replacement."""
    generator = random.Random(seed)
    count = len(differences)
    means = sorted(statistics.fmean(generator.choices(differences, k=count)) for _ in range(samples))
    return means[int(0.025 * samples)], means[int(0.975 * samples) - 1]


def paired_differences(units, variant, baseline, seeds, metric):
    """Per document: the variant's value less the baseline's, averaged over the seeds that both have."""
    by_document = {}
    for seed in seeds:
        if (variant, seed) not in units or (baseline, seed) not in units:
            continue
        theirs = document_values(units[variant, seed]["evaluation"], metric)
        others = document_values(units[baseline, seed]["evaluation"], metric)
        for name in theirs.keys() & others.keys():
            by_document.setdefault(name, []).append(theirs[name] - others[name])
    return [statistics.fmean(values) for _, values in sorted(by_document.items())]


def mean_and_spread(values):
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"


def report_lines(study, units):
    seeds, baseline = study["seeds"], study["baseline"]
    done = [variant for variant in study["variants"] if any((variant, seed) in units for seed in seeds)]
    lines = [f"# {study['name']}", "", "Mean and standard deviation over seeds.", "",
             "| variant | seeds | " + " | ".join(study["metrics"]) + " | training tokens/s |",
             "|---|---|" + "---|" * (len(study["metrics"]) + 1)]
    for variant in done:
        own = [units[variant, seed] for seed in seeds if (variant, seed) in units]
        cells = []
        for metric in study["metrics"]:
            values = [value_of(unit["evaluation"], metric) for unit in own]
            values = [value for value in values if value is not None]
            cells.append(mean_and_spread(values) if values else "-")
        speed = statistics.median(unit["tokens_per_second"] for unit in own)
        lines.append(f"| {variant} | {len(own)} | " + " | ".join(cells) + f" | {speed:.0f} |")
    lines += ["", f"Differences from {baseline}, document by document (mean over seeds); 95 % bootstrap interval over "
              "documents.", "", "| variant | metric | documents | difference | interval |", "|---|---|---|---|---|"]
    for variant in done:
        for metric in study["metrics"]:
            differences = [] if variant == baseline else paired_differences(units, variant, baseline, seeds, metric)
            if len(differences) < 2:
                continue
            low, high = bootstrap_interval(differences)
            lines.append(f"| {variant} | {metric} | {len(differences)} | {statistics.fmean(differences):+.4f} | "
                         f"{low:+.4f} to {high:+.4f} |")
    return lines + position_lines(study, units, done)


def position_lines(study, units, done):
    """Bits per byte by position in the document, from 256 on in powers of two; nothing without such metrics."""
    if not any("@" in metric for metric in study["metrics"]):
        return []
    ends = sorted({line["end"] for unit in units.values() for line in unit["evaluation"].get("by_position", [])})
    begins = [0] + [end for end in ends[:-1] if end >= 256]
    names = [f"{begin}-" for begin in begins]
    lines = ["", "Bits per byte by position in the document (from there to the next), mean over seeds.", "",
             "| variant | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for variant in done:
        cells = []
        for begin, end in zip(begins, begins[1:] + [None]):
            values = []
            for seed in study["seeds"]:
                if (variant, seed) in units:
                    nats, count = nats_and_bytes(units[variant, seed]["evaluation"], begin, end)
                    values += [nats / (math.log(2) * count)] if count else []
            cells.append(f"{statistics.fmean(values):.4f}" if values else "-")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    return lines


def draw_curves(study, units, path):
    """False without matplotlib."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "study"  # the same picture every time
    from matplotlib import pyplot

    metrics = study.get("curve", [metric for metric in study["metrics"] if "@" not in metric])
    figure, axes = pyplot.subplots(1, len(metrics), figsize=(5 * len(metrics), 3.6), squeeze=False)
    for axis, metric in zip(axes[0], metrics):
        for variant in study["variants"]:
            points = {}
            for seed in study["seeds"]:
                for line in units.get((variant, seed), {}).get("curve", []):
                    value = value_of(line, metric)
                    if value is not None:
                        points.setdefault(line["step"], []).append(value)
            steps = sorted(points)
            if not steps:
                continue
            means = [statistics.fmean(points[step]) for step in steps]
            drawn = axis.plot(steps, means, marker="o", markersize=3, label=variant)[0]
            axis.fill_between(steps, [min(points[step]) for step in steps], [max(points[step]) for step in steps],
                              alpha=0.2, color=drawn.get_color(), linewidth=0)
        axis.set_xlabel("step")
        axis.set_ylabel(metric)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True


def write_report(study, units, work):
    lines = report_lines(study, units)
    (work / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    if not draw_curves(study, units, work / "curves.svg"):
        print("study: no curves.svg: matplotlib is missing (Debian: python3-matplotlib); then --report draws them",
              file=sys.stderr)
