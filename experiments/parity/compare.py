"""Compares the two sides of each unit: tables and curves."""

import json
import statistics

LIMITS = {"f64": 1e-8, "f32": 1e-5, "long-f64": 1e-5}
LAST = 200  # losses whose mean is compared in the part long
THINNED = 20  # steps whose mean loss is kept of a long run
NAMES = {"xl": "Transformer-XL, cache", "knn": "kNN memory", "vq": "Transformer-VQ"}


class ParityError(Exception):
    """Says what is wrong with the command or its input, for one line on stderr."""


def differences(ours, theirs):
    return [abs(x - y) / abs(y) for x, y in zip(ours, theirs)]


def thinned(values, what=statistics.fmean, digits=8):
    """Returns one number of a long run for THINNED steps."""
    if len(values) <= 200:
        return values
    return [float(f"{what(values[i:i + THINNED]):.{digits}g}") for i in range(0, len(values), THINNED)]


def pair_of(unit, quire, torch):
    """Returns what is kept of both sides."""
    return {"model": unit.model, "seed": unit.seed, "documents_ended": torch["ended"],
            "loss_difference": max(differences(quire["loss"], torch["loss"])),
            "grad_norm_difference": max(differences(quire["grad_norm"], torch["grad_norm"])),
            "weight_difference": torch["weights"],
            "last": {side: statistics.fmean(x["loss"][-LAST:]) for side, x in (("quire", quire), ("torch", torch))},
            "quire": thinned(quire["loss"]), "torch": thinned(torch["loss"]),
            "largest_differences": thinned(differences(quire["loss"], torch["loss"]), max, 3)}


def changed_pair_of(quire, torch):
    """Returns what is kept of a run that quire made with another setting: where it leaves the port's losses."""
    by_step = differences(quire["loss"], torch["loss"])
    beyond = [step for step, difference in enumerate(by_step, 1) if difference > LIMITS["f64"]]
    return {"model": quire["model"], "seed": quire["seed"], "change": quire["change"], "quire": quire["loss"],
            "first_step": beyond[0] if beyond else None, "loss_difference": max(by_step)}


def as_text(result):
    """Returns JSON with a line for each pair."""
    pairs = ",\n  ".join(json.dumps(pair) for pair in result["pairs"])
    head = json.dumps({key: value for key, value in result.items() if key != "pairs"})
    return head[:-1] + ', "pairs": [\n  ' + pairs + "]}\n"


def report_steps(result):
    """Returns the table of a part whose losses are compared step by step, and whether they agree."""
    limit = LIMITS[result["part"]]
    lines = [f"Part {result['part']}: {result['steps']} steps. Largest relative differences; the limit for a loss is "
             f"{limit:g}.", "",
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
    """Returns the table of means of the last losses, and whether they differ by less than seeds do."""
    lines = [f"Part long: mean of the last {LAST} of {result['steps']} losses, in nats per byte; mean and standard "
             "deviation over seeds.", "",
             "| model | seeds | quire | PyTorch | difference of the means | largest difference of a seed | agrees |",
             "|---|---|---|---|---|---|---|"]
    agrees = True
    for model in dict.fromkeys(pair["model"] for pair in result["pairs"]):
        last = [pair["last"] for pair in result["pairs"] if pair["model"] == model]
        sides = {side: [means[side] for means in last] for side in ("quire", "torch")}
        ahead = [x - y for x, y in zip(sides["quire"], sides["torch"])]
        spread = {side: statistics.stdev(values) for side, values in sides.items()}
        fits = abs(statistics.fmean(ahead)) <= min(spread.values())
        agrees = agrees and fits
        cells = [f"{statistics.fmean(sides[side]):.4f} ± {spread[side]:.4f}" for side in sides]
        lines.append(f"| {NAMES[model]} | {len(last)} | {' | '.join(cells)} | {statistics.fmean(ahead):+.5f} | "
                     f"{max(ahead, key=abs):+.5f} | {'yes' if fits else 'NO'} |")
    return lines, agrees


def report_changes(result):
    """Returns the table of settings that quire alone got, and whether all of them were noticed."""
    lines = [f"Part changes: {result['steps']} steps in f64, in which quire alone had another setting.", "",
             f"| model | changed in quire | first step that differs by more than {LIMITS['f64']:g} | "
             "largest difference | noticed |", "|---|---|---|---|---|"]
    for pair in result["pairs"]:
        lines.append(f"| {NAMES[pair['model']]} | `{pair['change']}` | {pair['first_step'] or '-'} | "
                     f"{pair['loss_difference']:.1e} | {'yes' if pair['first_step'] else 'NO'} |")
    return lines, all(pair["first_step"] for pair in result["pairs"])


def report(results):
    tables = {"long": report_long, "changes": report_changes}
    lines, agrees = [], True
    for result in results:
        more, fits = tables.get(result["part"], report_steps)(result)
        lines += ["", *more] if lines else more
        agrees = agrees and fits
    return lines, agrees


def draw(results, path):
    """Draws both losses of the long runs above, and below their largest relative difference in every 20 steps."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError as missing:
        raise ParityError("matplotlib cannot be imported (Debian: python3-matplotlib)") from missing
    matplotlib.rcParams["svg.hashsalt"] = "parity"  # the same picture every time

    figure, axes = pyplot.subplots(2, len(NAMES), figsize=(4.2 * len(NAMES), 6), squeeze=False)
    for column, (model, name) in enumerate(NAMES.items()):
        above, below = axes[0][column], axes[1][column]
        for result in (result for result in results if result["part"] in ("long", "long-f64")):
            for pair in (pair for pair in result["pairs"] if pair["model"] == model):
                steps = [(i + 1) * result["steps"] / len(pair["quire"]) for i in range(len(pair["quire"]))]
                label, color = f"seed {pair['seed']}", f"C{pair['seed'] - 1}"
                if result["part"] == "long":
                    above.plot(steps, pair["quire"], color=color, linewidth=2.5, alpha=0.4, label=f"quire, {label}")
                    above.plot(steps, pair["torch"], color=color, linewidth=0.8, linestyle="--",
                               label=f"PyTorch, {label}")
                below.semilogy(steps, pair["largest_differences"], label=f"{result['precision']}, {label}",
                               color=color if result["part"] == "long" else "black", linewidth=0.8)
        above.set(title=name, xlabel="step", ylabel="nats per byte, mean of 20 steps")
        below.set(xlabel="step", ylabel="relative difference of the loss")
        for axis in (above, below):
            axis.grid(alpha=0.3)
            if axis.lines:
                axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
