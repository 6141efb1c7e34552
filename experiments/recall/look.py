#!/usr/bin/env python3
"""Says of which facts a model knows what: recalled characters by the kind of fact and by how long ago it was last said.

    quire eval RUN --losses losses.h5
    python3 experiments/recall/look.py losses.h5

Reads a corpus of task recall in bytes. Needs NumPy and h5py (Debian: python3-h5py).
"""

import argparse
import collections
import json
import re
import sys

import h5py
import numpy

# How the task writes its facts (data/tasks/recall_task.cpp): the word, and the value that follows it.
KINDS = {
    "names": re.compile(r"(?<![\w'])([A-Z][a-z]{3,}) ([A-Z][a-z]{3,})(?= )"),
    "numbers": re.compile(r"(?<!\w)([A-Z][a-z]{3,}) \(([0-9]{4})(?=\))"),
    "definitions": re.compile(r"The ([a-z]{4,}), that ([a-z]+ [a-z]+)(?=,)"),
    "signs": re.compile(r"(number|letter|mark) (\S)(?=;)"),
}


def mentions(text, kinds):
    """(kind, characters since the value was last said or None, begin and end of the value), in the order of the text."""
    found = []
    for kind in kinds:
        said = {}
        for match in KINDS[kind].finditer(text):
            word, begin = match[1], match.start(2)
            before = said.get(word)
            # Anything may be followed by anything else in prose: a fact says the same again.
            again = before is not None and before[1] == match[2]
            if again or kind == "signs":
                found.append((kind, begin - before[0] if before else None, begin, match.end(2)))
            else:
                found.append((kind, None, begin, match.end(2)))
            said[word] = (begin, match[2])
    return sorted(found, key=lambda mention: mention[2])


def bin_of(distance, bounds):
    if distance is None:
        return "first"
    for low, high in zip(bounds, bounds[1:]):
        if low <= distance < high:
            return f"{low}-{high - 1}"
    return f"{bounds[-1]}-"


def table(path, bounds):
    """[kind, distance] -> characters, of them most likely, nats; spaces left out."""
    sums = collections.defaultdict(lambda: [0, 0, 0.0])
    with h5py.File(path) as file:
        offsets = file["offsets"][:]
        target, best, nll, recalled = (file[name][:] for name in ("target", "best", "nll", "recalled"))
    for begin, end in zip(offsets, offsets[1:]):
        ids = target[begin:end]
        text = bytes(numpy.where(ids < 256, ids, 0).astype(numpy.uint8)).decode("latin-1")
        signs = "signs" if re.search(r"(number|letter|mark) \S;", text) else None
        for kind, distance, first, last in mentions(text, [signs] if signs else ["names", "numbers", "definitions"]):
            name = text[text.rfind(" ", 0, first - 1) + 1:first].strip() if kind == "signs" else kind
            for at in range(first, last):
                if text[at] == " ":
                    continue
                cell = sums[name, bin_of(distance, bounds)]
                cell[0] += 1
                cell[1] += int(best[begin + at] == ids[at])
                cell[2] += float(nll[begin + at])
                if recalled[begin + at]:
                    marked = sums[name, "recalled"]
                    marked[0] += 1
                    marked[1] += int(best[begin + at] == ids[at])
                    marked[2] += float(nll[begin + at])
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("losses", help="file of quire eval --losses")
    parser.add_argument("--bounds", default="0,64,256,512,1024", help="bounds of the distances (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    sums = table(arguments.losses, [int(bound) for bound in arguments.bounds.split(",")])
    rows = [{"fact": kind, "last_said": distance, "characters": count, "right": right / count,
             "nats": nats / count} for (kind, distance), (count, right, nats) in sorted(sums.items())]
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"{'fact':12} {'last said':12} {'characters':>10} {'right':>7} {'nats':>7}")
    for row in rows:
        print(f"{row['fact']:12} {row['last_said']:12} {row['characters']:10} {row['right']:7.3f} {row['nats']:7.3f}")


if __name__ == "__main__":
    sys.exit(main())
