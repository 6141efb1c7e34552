#!/usr/bin/env python3
"""Makes a corpus of long documents from a Debian package, or from a folder of books.

    python3 experiments/corpora/make.py proofs --output FOLDER [--vocabulary 4096]
    python3 experiments/corpora/make.py code --output FOLDER
    python3 experiments/corpora/make.py bible --output FOLDER
    python3 experiments/corpora/make.py books --input BOOKS --output FOLDER

FOLDER gets a text file for every document in train, valid and test, a corpus of bytes (corpus.h5), with --vocabulary a
SentencePiece model and its corpus (spm.model, corpus-spm.h5), and manifest.json, which says what they were made from.
The same package gives the same bytes. Nothing is installed, and FOLDER appears when all of it is done. Needs Python
3.9, and the built program unless --no-corpus.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import bible
import books
import go_code
import passages
import proofs
from common import Failure

SOURCES = {"proofs": proofs, "code": go_code, "bible": bible, "books": books}
SPLITS = ("train", "valid", "test")
# A training document of which a larger share stands in held-out ones is left out: the rest is likely a variant of them.
MOST_SHARED = 0.5
TOKENIZER_LINES = 200_000  # a random choice of the training documents' lines
# Disk that a byte of the source takes: documents (1), a corpus of bytes or of tokens (2 each), and a half in reserve.
DISK = {"documents": 1.5, "corpus": 2, "tokenizer": 2}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    choices = parser.add_subparsers(dest="corpus", required=True, metavar="|".join(SOURCES))
    for name, source in SOURCES.items():
        one = choices.add_parser(name, help=source.__doc__.strip(), description=source.__doc__.strip())
        one.add_argument("--output", required=True, type=pathlib.Path, metavar="FOLDER", help="made by this command")
        one.add_argument("--force", action="store_true", help="replace a FOLDER that this script has made")
        one.add_argument("--quire", default="build/native/bin/quire", help="the program (default: %(default)s)")
        one.add_argument("--no-corpus", action="store_true", help="only the text files and the manifest")
        one.add_argument("--vocabulary", type=int, metavar="N",
                         help="also train a SentencePiece model with N ids, and make its corpus")
        if source is not bible:
            one.add_argument("--least-bytes", type=int, default=source.LEAST_BYTES, metavar="N",
                             help="size of the smallest document (default: %(default)s)")
            one.add_argument("--share", type=float, default=0.05, metavar="X",
                             help="share of the documents in valid, and in test (default: %(default)s)")
        one.add_argument("--passage", type=int, default=200, metavar="N",
                         help="bytes of the shortest passage that counts as shared (default: %(default)s)")
        one.add_argument("--passages", choices=("remove", "report"), default="report" if source is bible else "remove",
                         help="what is done about training text that is also held out (default: %(default)s)")
        if source is not books:
            one.add_argument("--root", default="/", help="where the system with the package is (default: %(default)s)")
        source.add_options(one)
    return parser.parse_args()


def megabytes(count):
    return f"{count / 1e6:.1f} MB"


def check(arguments, source):
    """Checks what can be known before work begins."""
    if arguments.passage < 16:
        raise Failure(f"--passage {arguments.passage}: use 16 or more")
    if source.held_out is None and arguments.least_bytes < 1:
        raise Failure(f"--least-bytes {arguments.least_bytes}: use 1 or more")
    if source.held_out is None and not 0 < arguments.share <= 0.4:
        raise Failure(f"--share {arguments.share}: use a share above 0 and at most 0.4")
    if arguments.vocabulary is not None and (arguments.vocabulary < 300 or arguments.no_corpus):
        raise Failure("--vocabulary: use 300 or more, and not with --no-corpus")
    if not arguments.no_corpus and shutil.which(arguments.quire) is None:
        raise Failure(f"{arguments.quire}: no such program; build it, name it with --quire, or use --no-corpus")
    output = arguments.output
    if output.exists():
        if not (output / "manifest.json").is_file() or not (output / "train").is_dir():
            raise Failure(f"{output}: exists and was not made by this script")
        if not arguments.force:
            raise Failure(f"{output}: exists already; use --force to make it anew")
    folder = output.absolute().parent
    while not folder.exists():
        folder = folder.parent
    needed = source.bytes * (DISK["documents"] + (0 if arguments.no_corpus else DISK["corpus"]) +
                             (DISK["tokenizer"] if arguments.vocabulary else 0))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise Failure(f"{folder}: {megabytes(free)} are free; this needs about {megabytes(needed)}")


def write_documents(source, folder):
    """Writes one file a document and returns their names in the order of the source."""
    folder.mkdir(parents=True)
    names = []
    for name, text in source.documents():
        path = folder / f"{name}.txt"
        if path.exists():
            raise Failure(f"two documents have the name {name}")
        path.write_bytes(text)
        names.append(name)
    return names


def choose_splits(names, source, share):
    """Held-out documents are the first ones in the order of a hash of their names."""
    if source.held_out is not None:
        held_out = set(source.held_out)
        return {"train": [name for name in names if name not in held_out], "valid": list(source.held_out)}
    count = max(1, round(share * len(names)))
    if len(names) < 2 * count + 1:
        raise Failure(f"{len(names)} documents are too few for three splits; use a smaller --least-bytes")
    order = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen = {"valid": set(order[:count]), "test": set(order[count:2 * count])}
    chosen["train"] = set(order[2 * count:])
    return {split: [name for name in names if name in chosen[split]] for split in SPLITS}


def shared_spans(held_out, others, length):
    """Returns by name what a document of `others` shares with a held-out one; paths are read one at a time."""
    finder = passages.SharedPassages([path.read_bytes() for path in held_out], length)
    offsets = {path: finder.look(path.read_bytes()) for path in others}
    return {path: finder.spans(path.read_bytes(), offsets[path]) for path in others}


def treat_passages(folder, splits, length, remove):
    """Removes from the training documents what is also held out, and says how much there was."""

    def paths(split):
        return [folder / split / f"{name}.txt" for name in splits.get(split, [])]

    report = {"length": length, "passages": 0, "bytes": 0, "by_document": {}, "bytes_removed": 0,
              "documents_left_out": {}}
    shared = shared_spans(paths("valid") + paths("test"), paths("train"), length)
    for path, spans in shared.items():
        if not spans:
            continue
        text = path.read_bytes()
        found = sum(end - begin for begin, end in spans)
        report["passages"] += len(spans)
        report["bytes"] += found
        report["by_document"][path.stem] = found
        if not remove:
            continue
        if found > MOST_SHARED * len(text):
            report["documents_left_out"][path.stem] = len(text)
            report["bytes_removed"] += len(text)
            splits["train"].remove(path.stem)
            path.unlink()
        else:
            kept = passages.without(text, spans, length)
            report["bytes_removed"] += len(text) - len(kept)
            path.write_bytes(kept)
    if not splits["train"]:
        raise Failure("no training document is left: all stand in the held-out ones")
    if "test" in splits:
        between = shared_spans(paths("valid"), paths("test"), length)
        report["bytes_of_test_in_valid"] = sum(end - begin for spans in between.values() for begin, end in spans)
    return report


def describe_split(folder, names):
    """Returns the figures of a split. The hash is that of lines as sha256sum writes them, in the order of the names."""
    lines, sizes = hashlib.sha256(), []
    for name in sorted(names):
        text = (folder / f"{name}.txt").read_bytes()
        lines.update(f"{hashlib.sha256(text).hexdigest()}  {name}.txt\n".encode())
        sizes.append(len(text))
    return {"documents": len(sizes), "bytes": sum(sizes), "smallest": min(sizes), "largest": max(sizes),
            "median": sorted(sizes)[len(sizes) // 2], "sha256": lines.hexdigest()}


def quire(arguments, *command):
    done = subprocess.run([arguments.quire, *map(str, command), "--json"], stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode != 0:
        raise Failure(f"quire {command[0]} ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def prepare(arguments, folder, splits, name, *tokenizer):
    parts = [argument for split in splits for argument in ("--split", f"{split}={folder / split}")]
    report = quire(arguments, "prepare", *parts, *tokenizer, "--output", folder / name)
    file = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return {"sha256": file, "vocabulary": report["vocabulary"],
            "tokens": {split: report["splits"][split]["tokens"] for split in splits}}


def make(arguments, source, folder):
    """Makes everything in a folder that is renamed when it is done."""
    names = write_documents(source, folder / "all")
    splits = choose_splits(names, source, getattr(arguments, "share", None))
    for split, members in splits.items():
        (folder / split).mkdir()
        for name in members:
            (folder / "all" / f"{name}.txt").rename(folder / split / f"{name}.txt")
    (folder / "all").rmdir()
    package = source.package and {"name": source.package.name, "version": source.package.version}
    manifest = {"corpus": arguments.corpus, "package": package, "licence": SOURCES[arguments.corpus].LICENCE,
                "options": {name: getattr(arguments, name) for name in
                            ("least_bytes", "share", "passage", "passages", "letters", "vocabulary")
                            if hasattr(arguments, name)},
                "left_out": source.left_out,
                "shared_passages": treat_passages(folder, splits, arguments.passage, arguments.passages == "remove"),
                "splits": {split: describe_split(folder / split, members) for split, members in splits.items()}}
    if not arguments.no_corpus:
        manifest["corpora"] = {"corpus.h5": prepare(arguments, folder, splits, "corpus.h5")}
    if arguments.vocabulary:
        quire(arguments, "tokenizer", "train", "--input", folder / "train", "--vocab-size", arguments.vocabulary,
              "--space-runs", "--max-sentences", TOKENIZER_LINES, "--output", folder / "spm.model")
        made = prepare(arguments, folder, splits, "corpus-spm.h5", "--tokenizer", f"spm:{folder / 'spm.model'}")
        manifest["corpora"]["corpus-spm.h5"] = made
        made["model_sha256"] = hashlib.sha256((folder / "spm.model").read_bytes()).hexdigest()
        made["bytes_per_token"] = {split: round(manifest["splits"][split]["bytes"] / tokens, 4)
                                   for split, tokens in made["tokens"].items()}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def print_manifest(manifest, output):
    shared = manifest["shared_passages"]
    for split, of in manifest["splits"].items():
        tokens = manifest.get("corpora", {}).get("corpus-spm.h5", {}).get("tokens", {}).get(split)
        print(f"{split:5} {of['documents']:4d} documents {of['bytes']:10d} bytes, {of['smallest']} to {of['largest']}"
              + (f", {tokens} tokens" if tokens else ""))
    for what, count in manifest["left_out"].items():
        print(f"left out: {count} {what}")
    print(f"training text that is also held out: {shared['passages']} passages, {shared['bytes']} bytes; removed with "
          f"their lines: {shared['bytes_removed']} bytes; {len(shared['documents_left_out'])} documents left out")
    print(f"{output}: done")


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is half made is removed
    source = SOURCES[arguments.corpus].Source(arguments)
    check(arguments, source)
    output = arguments.output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=f"{output.name}.partial-", dir=output.parent))
    try:
        partial.chmod(0o755)
        manifest = make(arguments, source, partial)
        if output.exists():
            shutil.rmtree(output)
        os.replace(partial, output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print_manifest(manifest, arguments.output)


if __name__ == "__main__":
    try:
        main()
    except (Failure, OSError) as error:
        print(f"make: error: {error}", file=sys.stderr)
        sys.exit(2)
