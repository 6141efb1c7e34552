#!/usr/bin/env python3
"""Which layers look facts up? Evaluates a trained model of a window on a corpus whose facts lie behind that window, with
a longer window and cache in one layer after the other, in the last two, the last three and so on.

    python3 experiments/recall/layers.py RUN --corpus task.h5 --length 1152
"""

import argparse
import json
import subprocess
import sys


class LayersError(Exception):
    """Says what is wrong, for one line on stderr."""


def layer_sets(count):
    """Returns every layer alone, then the last two, the last three, ... all."""
    return [[layer] for layer in range(count)] + [list(range(first, count)) for first in range(count - 2, -1, -1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("run", help="run or checkpoint: layers of attention with a window and a cache of keys and values")
    parser.add_argument("--corpus", required=True, help="corpus of task recall, with the tokenizer of the run")
    parser.add_argument("--length", type=int, required=True, help="tokens that a layer then sees behind the subsequence")
    parser.add_argument("--layers", type=int, default=3, help="number of layers of the model (default: %(default)s)")
    parser.add_argument("--quire", default="build/native/bin/quire", help="the program (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if arguments.layers < 1:
        raise LayersError(f"--layers {arguments.layers}: a model has at least one")
    rows = []
    for layers in [[], *layer_sets(arguments.layers)]:
        wide = [f"model.layer_overrides=[{{layers: {layers}, attention: {{softmax: {{window: none, carry: "
                f"{{length: {arguments.length}}}}}}}}}]"] if layers else []
        done = subprocess.run([arguments.quire, "eval", arguments.run, "--corpus", arguments.corpus, "--json", *wide],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LayersError(f"quire eval ended with exit code {done.returncode}: {done.stderr.strip()}")
        recall = json.loads(done.stdout).get("recall")
        if not recall:
            raise LayersError(f"{arguments.corpus}: nothing is marked as recalled; make it with quire prepare --task recall")
        rows.append({"layers": layers, "accuracy": recall["accuracy"], "chance": recall["chance"]})
    if arguments.json:
        print(json.dumps({"length": arguments.length, "rows": rows}))
        return 0
    print(f"{'layers that see farther':24} recalled tokens right (guessing: {100 * rows[0]['chance']:.1f} %)")
    for row in rows:
        print(f"{', '.join(map(str, row['layers'])) or 'none':24} {100 * row['accuracy']:.1f} %")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LayersError, OSError) as error:
        print(f"layers: error: {error}", file=sys.stderr)
        sys.exit(2)
