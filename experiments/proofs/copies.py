#!/usr/bin/env python3
"""Does a model look up what it has read before, and in which layer? Passages of held-out text are read twice in a row:
a model that looks up earlier occurrences knows the second copy. Then layer by layer with a short window there, from
which the first copy cannot be seen.

    python3 experiments/proofs/copies.py RUN --text corpora/proofs/valid --tokenizer spm:corpora/proofs/spm.model

RUN: a run or a checkpoint without memories, with a window or a cache that reaches over a passage. Needs h5py (Debian:
python3-h5py) and the built program.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

SKIPPED = 16  # tokens at the beginning of each copy, which say where in the text one is
SHORT = 8     # window of a layer that is to see nothing of the first copy


class CopiesError(Exception):
    """Says what is wrong, for one line on stderr."""


def write_passages(texts, count, characters, folder):
    """Writes documents of a passage and itself, drawn from the texts, the same every time."""
    generator = random.Random(1)
    texts = [text for text in texts if len(text) > characters]
    if not texts:
        raise CopiesError(f"no text has {characters} characters; use --characters")
    for i in range(count):
        text = generator.choice(texts)
        begin = generator.randrange(len(text) - characters)
        passage = text[begin:begin + characters].strip() + "\n"
        (folder / f"{i:05d}.txt").write_text(passage + passage, encoding="utf-8", newline="")


def means(path):
    """Returns mean nats of a token in first and in second copies, the first tokens of each left out."""
    import h5py
    with h5py.File(path) as file:
        offsets, ends, nll = (file[name][:].tolist() for name in ("offsets", "text_end", "nll"))
    sums = [[0.0, 0], [0.0, 0]]
    start = 0
    for begin, end in zip(offsets, offsets[1:]):
        half = (start + ends[end - 1]) / 2
        copies = [[at for at in range(begin, end) if (ends[at] > half) == second] for second in (False, True)]
        for of, tokens in zip(sums, copies):
            of[0] += sum(nll[at] for at in tokens[SKIPPED:])
            of[1] += len(tokens[SKIPPED:])
        start = ends[end - 1]
    if not sums[0][1] or not sums[1][1]:
        raise CopiesError(f"copies have no more than {SKIPPED} tokens; use --characters")
    return [total / count for total, count in sums]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("run", help="run or checkpoint")
    parser.add_argument("--text", required=True, type=pathlib.Path, help="folder of .txt files")
    parser.add_argument("--tokenizer", default="byte", help="that of the run, as for quire prepare (default: byte)")
    parser.add_argument("--passages", type=int, default=500, help="number of passages (default: %(default)s)")
    parser.add_argument("--characters", type=int, default=160, help="length of a passage (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=0, help="also with a short window in each of the first N layers")
    parser.add_argument("--quire", default="build/native/bin/quire", help="the program (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    texts = [path.read_text(encoding="utf-8") for path in sorted(arguments.text.glob("*.txt"))]
    if not texts:
        raise CopiesError(f"{arguments.text}: there are no .txt files")

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "copies").mkdir()
        write_passages(texts, arguments.passages, arguments.characters, folder / "copies")

        def quire(*command):
            done = subprocess.run([arguments.quire, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, check=False)
            if done.returncode != 0:
                raise CopiesError(f"quire {command[0]} ended with exit code {done.returncode}: {done.stderr.strip()}")

        quire("prepare", "--split", f"valid={folder / 'copies'}", "--tokenizer", arguments.tokenizer,
              "--output", str(folder / "copies.h5"))
        for layer in [None, *range(arguments.layers)]:
            losses = folder / f"losses-{layer}.h5"
            short = [] if layer is None else [f"model.layer_overrides=[{{layers: [{layer}], attention: "
                                              f"{{softmax: {{window: {SHORT}}}}}}}]"]
            quire("eval", arguments.run, "--corpus", str(folder / "copies.h5"), "--split", "valid", *short,
                  "--losses", str(losses))
            first, second = means(losses)
            rows.append({"short": layer, "first": first, "second": second})
    if arguments.json:
        print(json.dumps({"passages": arguments.passages, "characters": arguments.characters, "rows": rows}))
        return 0
    print(f"{'short window in':18} {'first copy':>10} {'second copy':>12}  nats a token")
    for row in rows:
        where = "no layer" if row["short"] is None else f"layer {row['short']}"
        print(f"{where:18} {row['first']:10.3f} {row['second']:12.3f}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ModuleNotFoundError:
        print("copies: error: h5py is missing (Debian: python3-h5py)", file=sys.stderr)
        sys.exit(2)
    except (CopiesError, OSError, ValueError) as error:
        print(f"copies: error: {error}", file=sys.stderr)
        sys.exit(2)
