#!/usr/bin/env python3
"""Prints the tables of README.md from the manifests in results/ and from what `quire prepare --json` said.

    python3 experiments/corpora/tables.py
"""

import json
import pathlib

RESULTS = pathlib.Path(__file__).parent / "results"


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def tokens_of(manifest, split):
    made = manifest["corpora"].get("corpus-spm.h5")
    return f"{made['tokens'][split]:,}" if made else "-"


def main():
    manifests = {name: load(name) for name in ("proofs", "proofs-labels", "code", "bible")}
    for name, manifest in manifests.items():
        for split, of in manifest["splits"].items():
            print(f"| {name} | {split} | {of['documents']} | {of['bytes']:,} | {of['smallest']:,}, {of['median']:,}, "
                  f"{of['largest']:,} | {tokens_of(manifest, split)} |")
    print()
    for name, manifest in manifests.items():
        shared = manifest["shared_passages"]
        between = shared.get("bytes_of_test_in_valid")
        print(f"| {name} | {shared['passages']} | {shared['bytes']:,} | {shared['bytes_removed']:,} | "
              f"{len(shared['documents_left_out'])} | {'-' if between is None else f'{between:,}'} |")
    print()
    for name in ("code", "proofs"):
        for split in ("train", "valid"):
            apart = load(f"{name}-default-tokenizer")["splits"][split]
            runs = manifests[name]["corpora"]["corpus-spm.h5"]["tokens"][split]
            print(f"| {name} | {split} | {apart['bytes'] / apart['tokens']:.3f} | {apart['bytes'] / runs:.3f} | "
                  f"{1 - runs / apart['tokens']:.1%} |")


if __name__ == "__main__":
    main()
