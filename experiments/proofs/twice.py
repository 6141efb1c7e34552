#!/usr/bin/env python3
"""Makes documents of passages that stand twice: random words, so that nothing but looking at the first copy tells what
comes next in the second. A model learns from them to look up what followed an earlier occurrence.

    python3 experiments/proofs/twice.py --output twice               # words of random letters
    python3 experiments/proofs/twice.py proofs/train --output twice  # the different words of texts

OUTPUT gets the folders train and valid. The same command gives the same documents.
"""

import argparse
import pathlib
import random
import string
import sys


class TwiceError(Exception):
    """Says what is wrong, for one line on stderr."""


def words_of(folder):
    """Returns the different words of the texts of a folder, in order."""
    texts = sorted(folder.glob("*.txt"))
    if not texts:
        raise TwiceError(f"{folder}: there are no .txt files")
    words = set()
    for path in texts:
        try:
            words.update(path.read_text(encoding="utf-8").split())
        except UnicodeDecodeError as error:
            raise TwiceError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start})") from error
    if len(words) < 2:
        raise TwiceError(f"{folder}: the texts have fewer than two different words")
    return sorted(words)


def random_words(count, syllables):
    """Returns words of 2 to 8 letters, three in ten with a capital, and one in ten a number. With syllables: words of one to
    three of them, and one in five a number of four digits."""
    generator = random.Random(2)
    onsets = [*"bdfghjklmnprstvz", "br", "dr", "gr", "kl", "st", "tr"]
    words = []
    for _ in range(count):
        if generator.random() < (0.2 if syllables else 0.1):
            words.append(str(generator.randint(1000, 9999) if syllables else generator.randrange(10000)))
            continue
        if syllables:
            parts = [onset + generator.choice("aeiou") for onset in generator.choices(onsets, k=generator.randint(1, 3))]
            word = "".join(parts) + generator.choice(["", *"klmnrst"])
        else:
            word = "".join(generator.choices(string.ascii_lowercase, k=generator.randint(2, 8)))
        words.append(word.capitalize() if generator.random() < 0.3 else word)
    return words


def document(generator, words, passages, distinct):
    """Returns passages of 4 to 14 words, each twice, a line each; distinct: a passage is of so many different words."""
    lines = []
    for _ in range(passages):
        among = generator.sample(words, distinct) if distinct else words
        passage = " ".join(generator.choices(among, k=generator.randint(4, 14)))
        lines.append(f"{passage} {passage}\n")
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("text", type=pathlib.Path, nargs="?",
                        help="folder of .txt files whose words are taken (default: 10000 words of random letters)")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="folder to make")
    parser.add_argument("--documents", type=int, default=1200, help="documents to train on (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=4, help="documents of the split valid (default: %(default)s)")
    parser.add_argument("--passages", type=int, default=50, help="passages of a document (default: %(default)s)")
    parser.add_argument("--syllables", action="store_true", help="without texts: words of syllables")
    parser.add_argument("--distinct", type=int, metavar="N", help="at most N different words in a passage, so that one "
                        "word does not say what follows (default: words are drawn from all)")
    arguments = parser.parse_args()
    if min(arguments.documents, arguments.held_out, arguments.passages) < 1:
        raise TwiceError("--documents, --held-out and --passages must be at least 1")
    if arguments.syllables and arguments.text:
        raise TwiceError("--syllables are for words without a text; leave one of the two out")
    words = words_of(arguments.text) if arguments.text else random_words(10000, arguments.syllables)
    if arguments.output.exists():
        raise TwiceError(f"{arguments.output}: exists already; remove it or choose another --output")
    if arguments.distinct is not None and not 2 <= arguments.distinct <= len(words):
        raise TwiceError(f"--distinct {arguments.distinct}: use 2 to {len(words)}, the number of words")
    generator = random.Random(1)
    for split, count in (("train", arguments.documents), ("valid", arguments.held_out)):
        folder = arguments.output / split
        folder.mkdir(parents=True)
        for i in range(count):
            text = document(generator, words, arguments.passages, arguments.distinct)
            (folder / f"{i:05d}.txt").write_text(text, encoding="utf-8", newline="")
    print(f"{arguments.output}: {arguments.documents} and {arguments.held_out} documents of {len(set(words))} different words")


if __name__ == "__main__":
    try:
        main()
    except (TwiceError, OSError) as error:
        print(f"twice: error: {error}", file=sys.stderr)
        sys.exit(2)
