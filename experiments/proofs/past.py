#!/usr/bin/env python3
"""What is a longer past worth to a model that does not see it? Beside every token of an evaluation stands what followed
the last time that the tokens before it were read (the longest match of up to 24 tokens). How much better would the
model be if it gave that token a fixed share of its probability, one share for each length of match?

    quire eval RUN --losses losses.h5
    python3 experiments/proofs/past.py losses.h5 --from 128 --to 8192

Only matches that were read at least --from and at most --to tokens before count. The shares are chosen on the same
tokens, which flatters the gain by next to nothing: there are nine of them. Needs h5py and numpy (Debian: python3-h5py).
"""

import argparse
import json
import sys

LENGTHS = (24, 16, 12, 8, 6, 4, 3, 2)  # of matches


def last_matches(tokens, nearest, farthest):
    """Returns for every token of a document the length of the longest match, and whether the token is what followed it;
    0 where there is none."""
    places = {length: {} for length in LENGTHS}
    for i, token in enumerate(tokens):
        at = i - nearest  # the newest token that counts
        if at >= 0:
            for length in LENGTHS:
                if at >= length:
                    places[length][tuple(tokens[at - length:at])] = at
        found = (0, False)
        for length in LENGTHS:
            if i < length:
                continue
            at = places[length].get(tuple(tokens[i - length:i]))
            if at is not None and i - at <= farthest:
                found = (length, tokens[at] == token)
                break
        yield found


def gains(matches, nll):
    """Returns [(length, share of the tokens, share of them that match, mean nats, best share of probability, nats
    gained)]"""
    import numpy
    lengths = numpy.array([length for length, _ in matches])
    right = numpy.array([hit for _, hit in matches], dtype=float)
    nll = numpy.asarray(nll, dtype=float)
    rows = []
    for length in sorted(set(lengths.tolist())):
        chosen = lengths == length
        p, hit = numpy.exp(-nll[chosen]), right[chosen]
        # The best share, to a hundredth, 0 among them.
        shares = numpy.arange(0, 100) / 100
        gained = [(numpy.log((1 - share) * p + share * hit) - numpy.log(p)).sum() for share in shares]
        best = int(numpy.argmax(gained))
        rows.append((length, float(chosen.mean()), float(hit.mean()), float(nll[chosen].mean()), float(shares[best]),
                     float(gained[best])))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("losses", help="file of quire eval --losses")
    parser.add_argument("--from", dest="nearest", type=int, default=1, help="nearest match (default: %(default)s)")
    parser.add_argument("--to", dest="farthest", type=int, default=8192, help="farthest match (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if not 1 <= arguments.nearest <= arguments.farthest:
        print("past: error: use 1 <= --from <= --to", file=sys.stderr)
        return 2
    try:
        import h5py
        with h5py.File(arguments.losses) as file:
            offsets, targets, nll = (file[name][:].tolist() for name in ("offsets", "target", "nll"))
    except ModuleNotFoundError:
        print("past: error: h5py is missing (Debian: python3-h5py)", file=sys.stderr)
        return 2
    except (OSError, KeyError) as error:
        print(f"past: error: {arguments.losses}: {error}", file=sys.stderr)
        return 2
    matches = [match for begin, end in zip(offsets, offsets[1:])
               for match in last_matches(targets[begin:end], arguments.nearest, arguments.farthest)]
    rows = gains(matches, nll)
    total = sum(nll)
    gain = sum(row[5] for row in rows) / total
    if arguments.json:
        print(json.dumps({"from": arguments.nearest, "to": arguments.farthest, "tokens": len(nll), "gain": gain,
                          "rows": [dict(zip(("match", "tokens", "right", "nats", "share", "gain"),
                                            (*row[:5], row[5] / total))) for row in rows]}))
        return 0
    print(f"{'match':>5} {'of tokens':>10} {'right':>7} {'nats':>7} {'share':>6} {'gain':>7}")
    for row in rows:
        print(f"{row[0]:5} {row[1]:10.3f} {row[2]:7.3f} {row[3]:7.3f} {row[4]:6.2f} {100 * row[5] / total:6.2f} %")
    print(f"{100 * gain:.1f} % of the loss")
    return 0


if __name__ == "__main__":
    sys.exit(main())
