#!/usr/bin/env python3
"""Says of which facts a model knows what: recalled tokens by the kind of fact and by how long ago it was last said.

    quire eval RUN --losses losses.h5
    python3 experiments/recall/look.py losses.h5

Of a corpus of task recall. Needs NumPy and h5py (Debian: python3-h5py).
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


def mentions(text, ends):
    """(fact, tokens since the value was last said or None, begin and end of the value) of every mention."""
    has_signs = KINDS["signs"].search(text) is not None
    for kind in ["signs"] if has_signs else ["names", "numbers", "definitions"]:
        said = {}
        for match in KINDS[kind].finditer(text):
            word, value = match[1], match[2]
            token = int(numpy.searchsorted(ends, match.start(2), side="right"))
            before = said.get(word)
            # In prose, anything may come after a word: a fact says the same again.
            again = before is not None and (kind == "signs" or before[1] == value)
            yield (word if kind == "signs" else kind, token - before[0] if again else None, match.start(2),
                   match.end(2))
            said[word] = (token, value)


def bin_of(distance, bounds):
    if distance is None:
        return "first"
    for low, high in zip(bounds, bounds[1:]):
        if low <= distance < high:
            return f"{low}-{high - 1}"
    return f"{bounds[-1]}-"


def table(path, bounds):
    """[fact, distance] -> targets, of them most likely, nats. Targets that write a space alone are left out."""
    sums = collections.defaultdict(lambda: [0, 0, 0.0])
    with h5py.File(path) as file:
        offsets, ends = file["offsets"][:], file["text_end"][:]
        right, nll, recalled = file["target"][:] == file["best"][:], file["nll"][:], file["recalled"][:]
        written = file["text"][:].tobytes()
    for begin, end in zip(offsets, offsets[1:]):
        own = ends[begin:end]
        start = ends[begin - 1] if begin else 0
        text = written[start:own[-1]].decode("latin-1")  # a character is a byte
        own = own - start
        for fact, distance, first, last in mentions(text, own):
            cells = [sums[fact, bin_of(distance, bounds)]]
            # Targets that write a part of the value.
            for at in range(numpy.searchsorted(own, first, side="right"), numpy.searchsorted(own, last) + 1):
                piece = text[own[at - 1] if at else 0:own[at]]
                if piece == " ":
                    continue
                for cell in cells + ([sums[fact, "recalled"]] if recalled[begin + at] else []):
                    cell[0] += 1
                    cell[1] += int(right[begin + at])
                    cell[2] += float(nll[begin + at])
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("losses", help="file of quire eval --losses")
    parser.add_argument("--bounds", default="0,64,256,512,1024", help="bounds of the distances (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    sums = table(arguments.losses, [int(bound) for bound in arguments.bounds.split(",")])
    rows = [{"fact": kind, "last_said": distance, "tokens": count, "right": right / count,
             "nats": nats / count} for (kind, distance), (count, right, nats) in sorted(sums.items())]
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f"{'fact':12} {'last said':12} {'tokens':>10} {'right':>7} {'nats':>7}")
    for row in rows:
        print(f"{row['fact']:12} {row['last_said']:12} {row['tokens']:10} {row['right']:7.3f} {row['nats']:7.3f}")


if __name__ == "__main__":
    sys.exit(main())
