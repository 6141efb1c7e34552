#!/usr/bin/env python3
"""Says of which facts a model knows what: recalled tokens by the kind of fact and by how long ago it was last said.

    quire eval RUN --losses losses.h5
    python3 experiments/recall/look.py losses.h5

Of a corpus of task recall. Needs h5py (Debian: python3-h5py).
"""

import argparse
import bisect
import collections
import json
import re
import sys

# How the task writes its facts (data/tasks/recall_task.cpp): the word, and the value that follows it.
KINDS = {
    "names": re.compile(r"(?<![\w'])([A-Z][a-z]{3,}) ([A-Z][a-z]{3,})(?= )"),
    "numbers": re.compile(r"(?<!\w)([A-Z][a-z]{3,}) \(([0-9]{4})(?=\))"),
    "definitions": re.compile(r"The ([a-z]{4,}), that ([a-z]+ [a-z]+)(?=,)"),
    "signs": re.compile(r"(number|letter|mark) (\S)(?=;)"),
}


def mentions(text, ends):
    """Returns (fact, tokens since the value was last said or None, end of the word, begin and end of the value) of
    every mention. ends: where the text of every token ends."""
    has_signs = KINDS["signs"].search(text) is not None
    for kind in ["signs"] if has_signs else ["names", "numbers", "definitions"]:
        said = {}
        for match in KINDS[kind].finditer(text):
            word, value = match[1], match[2]
            token = bisect.bisect_right(ends, match.start(2))
            before = said.get(word)
            # In prose, anything may come after a word: a fact says the same again.
            again = before is not None and (kind == "signs" or before[1] == value)
            yield (word if kind == "signs" else kind, token - before[0] if again else None, match.end(1),
                   match.start(2), match.end(2))
            said[word] = (token, value)


def bin_of(distance, bounds):
    if distance is None:
        return "first"
    for low, high in zip(bounds, bounds[1:]):
        if low <= distance < high:
            return f"{low}-{high - 1}"
    return f"{bounds[-1]}-"


def read_losses(path):
    """Returns the documents of a file of quire eval --losses: the text, and of every token where its text ends, whether
    it was the most likely one, its nats and whether it is recalled."""
    import h5py
    with h5py.File(path) as file:
        values = {name: file[name][:].tolist() for name in ("offsets", "text_end", "target", "best", "nll", "recalled")}
        written = file["text"][:].tobytes()
    start = 0
    for begin, end in zip(values["offsets"], values["offsets"][1:]):
        ends = values["text_end"][begin:end]
        right = [target == best for target, best in zip(values["target"][begin:end], values["best"][begin:end])]
        # A character is a byte: facts are ASCII, and their places are counted in bytes.
        yield (written[start:ends[-1]].decode("latin-1"), [at - start for at in ends], right, values["nll"][begin:end],
               values["recalled"][begin:end])
        start = ends[-1]


def table(documents, bounds, chunk=None):
    """Returns [fact, distance] -> tokens, of them most likely, nats. Tokens that write a space alone are left out.
    chunk: recalled tokens apart, by whether the word was read in an earlier chunk of so many tokens than the token
    before theirs."""
    sums = collections.defaultdict(lambda: [0, 0, 0.0])
    for text, ends, right, nll, recalled in documents:
        for fact, distance, word, first, last in mentions(text, ends):
            read = bisect.bisect_left(ends, word) + 1  # the position of the word's last token, behind that of BOS
            # Tokens that write a part of the value.
            for at in range(bisect.bisect_right(ends, first), bisect.bisect_left(ends, last) + 1):
                if text[ends[at - 1] if at else 0:ends[at]] == " ":
                    continue
                keys = [bin_of(distance, bounds)] + (["recalled"] if recalled[at] else [])
                if recalled[at] and chunk is not None:
                    keys.append("word before" if read // chunk < at // chunk else "word within")
                for key in keys:
                    cell = sums[fact, key]
                    cell[0] += 1
                    cell[1] += int(right[at])
                    cell[2] += nll[at]
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("losses", help="file of quire eval --losses")
    parser.add_argument("--bounds", default="0,64,256,512,1024", help="bounds of the distances (default: %(default)s)")
    parser.add_argument("--chunk", type=int, help="recalled tokens apart, by whether the chunk of so many tokens in which "
                        "they are predicted begins behind the word (DRT chooses by the chunk before)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not re.fullmatch(r"\d+(,\d+)*", arguments.bounds):
        print(f"look: error: --bounds {arguments.bounds}: use numbers of tokens such as 0,64,256", file=sys.stderr)
        return 2
    if arguments.chunk is not None and arguments.chunk < 1:
        print(f"look: error: --chunk {arguments.chunk}: at least 1", file=sys.stderr)
        return 2
    try:
        sums = table(read_losses(arguments.losses), [int(bound) for bound in arguments.bounds.split(",")],
                     arguments.chunk)
    except ModuleNotFoundError:
        print("look: error: h5py is missing (Debian: python3-h5py)", file=sys.stderr)
        return 2
    except (OSError, KeyError) as error:
        print(f"look: error: {arguments.losses}: {error}", file=sys.stderr)
        return 2
    rows = [{"fact": fact, "last_said": distance, "tokens": count, "right": right / count, "nats": nats / count}
            for (fact, distance), (count, right, nats) in sorted(sums.items())]
    if arguments.json:
        print(json.dumps({"rows": rows}))
        return 0
    print(f"{'fact':12} {'last said':>12} {'tokens':>10} {'right':>7} {'nats':>7}")
    for row in rows:
        print(f"{row['fact']:12} {row['last_said']:>12} {row['tokens']:10} {row['right']:7.3f} {row['nats']:7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
