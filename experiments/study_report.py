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
    """(differences, baseline's values) of documents: the variant's value less the baseline's, averaged over the seeds
    that both have; and the mean difference over documents of each of these seeds."""
    by_document, by_seed, bases = {}, [], {}
    for seed in seeds:
        if (variant, seed) not in units or (baseline, seed) not in units:
            continue
        theirs = document_values(units[variant, seed]["evaluation"], metric)
        others = document_values(units[baseline, seed]["evaluation"], metric)
        both = sorted(theirs.keys() & others.keys())
        for name in both:
            by_document.setdefault(name, []).append(theirs[name] - others[name])
            bases.setdefault(name, []).append(others[name])
        if both:
            by_seed.append(statistics.fmean(theirs[name] - others[name] for name in both))
    return ([statistics.fmean(values) for _, values in sorted(by_document.items())],
            [statistics.fmean(values) for _, values in sorted(bases.items())], by_seed)


def mean_and_spread(values):
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"


def report_lines(study, units, speeds):
    seeds, baseline = study["seeds"], study["baseline"]
    done = [variant for variant in study["variants"] if any((variant, seed) in units for seed in seeds)]
    lines = [f"# {study['name']}", "", "Mean and standard deviation over seeds.", "",
             "| variant | seeds | " + " | ".join(study["metrics"]) + " |",
             "|---|---|" + "---|" * len(study["metrics"])]
    for variant in done:
        own = [units[variant, seed] for seed in seeds if (variant, seed) in units]
        cells = []
        for metric in study["metrics"]:
            values = [value_of(unit["evaluation"], metric) for unit in own]
            values = [value for value in values if value is not None]
            cells.append(mean_and_spread(values) if values else "-")
        lines.append(f"| {variant} | {len(own)} | " + " | ".join(cells) + " |")
    beside = study.get("beside", {})
    differences = []
    for variant in done:
        if variant != baseline:
            differences += difference_lines(variant, variant, baseline, study, units)
        if variant in beside:
            differences += difference_lines(f"{variant}, beside {beside[variant]}", variant, beside[variant], study, units)
    if differences:
        lines += ["", f"Differences from {baseline}, document by document (mean over seeds); 95 % bootstrap interval over "
                  "documents; the mean over documents of each seed.", "",
                  "| variant | metric | documents | difference | in percent | interval | by seed |",
                  "|---|---|---|---|---|---|---|", *differences]
    return lines + position_lines(study, units, done) + speed_lines(study, units, speeds, done)


def difference_lines(name, variant, other, study, units):
    lines = []
    for metric in study["metrics"]:
        differences, bases, by_seed = paired_differences(units, variant, other, study["seeds"], metric)
        if len(differences) < 2:
            continue
        low, high = bootstrap_interval(differences)
        mean, base = statistics.fmean(differences), statistics.fmean(bases)
        percent = f"{100 * mean / base:+.1f} %" if base else "-"
        lines.append(f"| {name} | {metric} | {len(differences)} | {mean:+.4f} | {percent} | "
                     f"{low:+.4f} to {high:+.4f} | {', '.join(f'{value:+.4f}' for value in by_seed)} |")
    return lines


def value_at(curve, metric, step):
    """The metric of a curve at a step, on a line between the evaluations beside it; None before the first."""
    points = [(line["step"], value_of(line, metric)) for line in curve]
    points = sorted((at, value) for at, value in points if value is not None)
    for (low, first), (high, second) in zip(points, points[1:]):
        if low <= step <= high:
            return first + (second - first) * (step - low) / (high - low)
    return points[-1][1] if points and step >= points[-1][0] else None


def speed_lines(study, units, speeds, done):
    """Step times, memory, and what the evaluations while training say at the time at which the fastest variant ends."""
    timed = [variant for variant in done if variant in speeds]
    if not timed:
        return []
    metrics = [metric for metric in study.get("curve", study["metrics"]) if "@" not in metric]
    steps = {variant: max(unit["curve"][-1]["step"] for (of, _), unit in units.items() if of == variant)
             for variant in timed}
    budget = min(steps[variant] * speeds[variant]["step_ms"] for variant in timed)
    lines = ["", f"Training steps timed in turns ({speeds[timed[0]]['rounds']} rounds, {speeds[timed[0]]['threads']} "
             "threads), the memory of tensors at most, and the evaluations while training after equal time: that of "
             "all steps of the fastest variant.", "",
             "| variant | parameters | ms a step | memory | steps in equal time | " + " | ".join(metrics) + " |",
             "|---|---|---|---|---|" + "---|" * len(metrics)]
    for variant in timed:
        speed = speeds[variant]
        step = budget / speed["step_ms"]
        cells = []
        for metric in metrics:
            values = [value_at(unit["curve"], metric, step)
                      for (of, _), unit in sorted(units.items()) if of == variant]
            values = [value for value in values if value is not None]
            cells.append(mean_and_spread(values) if values else "-")
        lines.append(f"| {variant} | {speed['parameters']} | {speed['step_ms']:.1f} | {speed['peak_bytes'] / 2**20:.0f} "
                     f"MiB | {step:.0f} | " + " | ".join(cells) + " |")
    return lines


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
    """False where matplotlib is missing, or does not go with what else is installed."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        return False
    matplotlib.rcParams["svg.hashsalt"] = "study"  # the same picture every time

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


def write_report(study, units, speeds, path, curves):
    """The report to the terminal and to path, and its curves; None: not to a file."""
    lines = report_lines(study, units, speeds)
    if path:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    if curves and not draw_curves(study, units, curves):
        print(f"study: no {curves.name}: matplotlib cannot be imported (Debian: python3-matplotlib); then --report draws them",
              file=sys.stderr)
