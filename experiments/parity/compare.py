"""What the two sides of each unit say about each other: tables and curves."""

import json
import statistics

LIMITS = {"f64": 1e-8, "f32": 1e-5}
LAST = 200  # losses whose mean is compared in the part long
THINNED = 20  # steps whose mean loss is kept of a long run
NAMES = {"xl": "Transformer-XL, cache", "knn": "kNN memory", "vq": "Transformer-VQ"}


class ParityError(Exception):
    """What is wrong with the command or its input, for one line on stderr."""


def largest_difference(ours, theirs):
    return max(abs(x - y) / abs(y) for x, y in zip(ours, theirs))


def thinned(losses):
    if len(losses) <= 200:
        return losses
    return [round(statistics.fmean(losses[i:i + THINNED]), 6) for i in range(0, len(losses), THINNED)]


def pair_of(unit, quire, torch):
    """What is kept of both sides."""
    return {"model": unit.model, "seed": unit.seed, "documents_ended": torch["ended"],
            "loss_difference": largest_difference(quire["loss"], torch["loss"]),
            "grad_norm_difference": largest_difference(quire["grad_norm"], torch["grad_norm"]),
            "weight_difference": torch["weights"],
            "last": {"quire": statistics.fmean(quire["loss"][-LAST:]), "torch": statistics.fmean(torch["loss"][-LAST:])},
            "quire": thinned(quire["loss"]), "torch": thinned(torch["loss"])}


def as_text(result):
    """JSON with a line for each pair."""
    pairs = ",\n  ".join(json.dumps(pair) for pair in result["pairs"])
    head = json.dumps({key: value for key, value in result.items() if key != "pairs"})
    return head[:-1] + ', "pairs": [\n  ' + pairs + "]}\n"


def report_steps(result):
    """The table of a part whose losses are compared step by step, and whether they agree."""
    limit = LIMITS[result["part"]]
    lines = [f"Part {result['part']}: {result['steps']} steps. Largest relative differences; the limit is {limit:g} for a "
             "loss.", "",
             "| model | documents that ended | of a loss | of a gradient norm | of a weight at the end | agrees |",
             "|---|---|---|---|---|---|"]
    agrees = True
    for pair in result["pairs"]:
        fits = pair["loss_difference"] <= limit
        agrees = agrees and fits
        lines.append(f"| {NAMES[pair['model']]} | {pair['documents_ended']} | {pair['loss_difference']:.1e} | "
                     f"{pair['grad_norm_difference']:.1e} | {pair['weight_difference']:.1e} | "
                     f"{'yes' if fits else 'NO'} |")
    return lines, agrees


def report_long(result):
    """The table of means of the last losses, and whether they differ by less than seeds do."""
    lines = [f"Part long: mean of the last {LAST} of {result['steps']} losses, in nats per byte; mean and standard deviation "
             "over seeds.", "",
             "| model | seeds | quire | PyTorch | difference of the means | largest difference of a seed | agrees |",
             "|---|---|---|---|---|---|---|"]
    agrees = True
    for model in dict.fromkeys(pair["model"] for pair in result["pairs"]):
        last = [pair["last"] for pair in result["pairs"] if pair["model"] == model]
        sides = {side: [means[side] for means in last] for side in ("quire", "torch")}
        differences = [x - y for x, y in zip(sides["quire"], sides["torch"])]
        spread = {side: statistics.stdev(values) for side, values in sides.items()}
        fits = abs(statistics.fmean(differences)) <= min(spread.values())
        agrees = agrees and fits
        cells = [f"{statistics.fmean(sides[side]):.4f} ± {spread[side]:.4f}" for side in sides]
        lines.append(f"| {NAMES[model]} | {len(last)} | {cells[0]} | {cells[1]} | {statistics.fmean(differences):+.5f} | "
                     f"{max(differences, key=abs):+.5f} | {'yes' if fits else 'NO'} |")
    return lines, agrees


def report(results):
    lines, agrees = [], True
    for result in results:
        more, fits = (report_long if result["part"] == "long" else report_steps)(result)
        lines += ["", *more] if lines else more
        agrees = agrees and fits
    return lines, agrees


def draw(results, path):
    """Above: both losses of the long runs. Below: their relative difference, step by step, in f64 and f32."""
    try:
        import matplotlib
    except ModuleNotFoundError as missing:
        raise ParityError("matplotlib is missing (Debian: python3-matplotlib)") from missing
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "parity"  # the same picture every time
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(NAMES), figsize=(4.2 * len(NAMES), 6), squeeze=False)
    for column, (model, name) in enumerate(NAMES.items()):
        above, below = axes[0][column], axes[1][column]
        for result in results:
            for pair in (pair for pair in result["pairs"] if pair["model"] == model):
                if result["part"] == "long":
                    steps = range(THINNED, result["steps"] + 1, THINNED)
                    color = f"C{pair['seed'] - 1}"
                    above.plot(steps, pair["quire"], color=color, linewidth=2.5, alpha=0.4,
                               label=f"quire, seed {pair['seed']}")
                    above.plot(steps, pair["torch"], color=color, linewidth=0.8, linestyle="--",
                               label=f"PyTorch, seed {pair['seed']}")
                else:
                    below.semilogy([max(abs(x - y) / y, 1e-17) for x, y in zip(pair["quire"], pair["torch"])],
                                   label=result["part"])
        above.set(title=name, xlabel="step", ylabel="nats per byte, mean of 20 steps")
        below.set(xlabel="step", ylabel="relative difference of the loss")
        for axis in (above, below):
            axis.grid(alpha=0.3)
            if axis.lines:
                axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
