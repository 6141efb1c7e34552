#!/usr/bin/env python3
"""Why does a model with codewords recall the wrong thing? Reads a run of the recipe's vq again, without training it:
with the keys themselves behind the window in the place of their codewords, and with all logits larger.

    quire eval RUN --losses losses.h5
    python3 experiments/recall/exact_keys.py RUN losses.h5

Computed apart from quire, with every token against every earlier one, which is the same (Lingle 2024, theorem 3.6); as
it is trained the model must get the losses of the file. Takes some 5 seconds a document and reading. Needs NumPy and
h5py (Debian: python3-h5py).
"""

import argparse
import json
import pathlib
import sys

# recipe.yaml
WINDOW, BLOCK, EPS, BASE, BOS = 128, 128, 1e-5, 10000.0, 1
FLOOR = 0.01  # of the number of keys of a codeword
# (codewords or keys behind the window, factor of the logits)
READINGS = [(exact, factor) for exact in (False, True) for factor in (1.0, 1.25, 1.5, 2.0)]


class ExactKeysError(Exception):
    """Says what is wrong, for one line on stderr."""


def normalised(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * gain


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class Model:
    """Holds layers of softmax and of codewords, XL positions and token shift of half the features."""

    def __init__(self, weights):
        self.w = weights
        if "position.u" not in weights or not any("codebook" in name for name in weights):
            raise ExactKeysError("the run is none of the recipe's with codewords")
        self.heads, self.size = weights["position.u"].shape
        self.width = weights["embedding.weight"].shape[1]
        self.layers = sum(name.endswith("attention.query.weight") for name in weights)
        angles = np.arange(WINDOW + 1)[:, None] * BASE ** (-np.arange(0, self.width, 2) / self.width)
        self.sinusoids = np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)

    def logits(self, tokens, exact, factor):
        """Returns [T, vocabulary] of one document."""
        x = self.w["embedding.weight"][tokens]
        for layer in range(self.layers):
            name = f"blocks.{layer}."
            shifted = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
            half = self.width // 2
            z = normalised(np.concatenate([shifted[:, :half], x[:, half:]], -1), self.w[name + "attention_norm.weight"])
            x = x + self.attention(name + "attention.", z, exact, factor) @ self.w[name + "attention.out.weight"].T
            z = normalised(x, self.w[name + "mlp_norm.weight"])
            gate = z @ self.w[name + "mlp.gate.weight"].T
            up = z @ self.w[name + "mlp.up.weight"].T
            x = x + gate / (1 + np.exp(-gate)) * up @ self.w[name + "mlp.down.weight"].T
        return normalised(x, self.w["norm.weight"]) @ self.w["embedding.weight"].T

    def attention(self, name, z, exact, factor):
        count = len(z)
        q, k, v = ((z @ self.w[f"{name}{part}.weight"].T).reshape(count, self.heads, self.size)
                   for part in ("query", "key", "value"))
        r = (self.sinusoids @ self.w[name + "relative.weight"].T).reshape(WINDOW + 1, self.heads, self.size)
        u, bias = self.w["position.u"], self.w["position.v"]
        coded = name + "codebook.sum" in self.w
        if coded:
            gain = self.size**-0.25
            q, k, r, u, bias = normalised(q, gain), normalised(k, gain), r * gain, u * gain, bias * gain
            q = q * self.w.get(name + "scale", np.ones(self.heads, np.float32))[:, None]
        else:
            q, r, u, bias = (q + u) * self.size**-0.5, r, np.zeros_like(u), (bias - u) * self.size**-0.5
        distance = np.arange(count)[:, None] - np.arange(count)[None]
        # The window of a token with codewords reaches back from the beginning of its block.
        first = (np.arange(count) // BLOCK * BLOCK if coded else np.arange(count)) - WINDOW
        near = np.arange(count)[None] >= first[:, None]
        out = np.empty_like(v)
        for h in range(self.heads):
            position = np.take_along_axis((q[:, h] + bias[h]) @ r[:, h].T, distance.clip(0, WINDOW), 1)
            keys = self.quantised(name, h, k[:, h]) if coded else k[:, h]
            logits = (q[:, h] + u[h]) @ keys.T
            if coded and exact:
                logits = np.where(near, logits, (q[:, h] + u[h]) @ k[:, h].T)
            logits = logits + position * (distance <= WINDOW)
            if coded:
                logits = logits * factor
            seen = (distance >= 0) & (near | coded)
            out[:, h] = softmax(np.where(seen, logits, -np.inf)) @ v[:, h]
        return out.reshape(count, -1)

    def quantised(self, name, head, keys):
        counts = np.maximum(self.w[name + "codebook.count"][head], FLOOR)
        words = self.w[name + "codebook.sum"][head] / counts[:, None]
        return words[((words * words).sum(-1) - 2 * keys @ words.T).argmin(-1)]


def weights_of(run):
    steps = sorted((run / "checkpoints").glob("step-*")) if (run / "checkpoints").exists() else [run]
    if not steps or not (steps[-1] / "model.h5").exists():
        raise ExactKeysError(f"{run}: is no run and no checkpoint")
    with h5py.File(steps[-1] / "model.h5") as file:
        return {name.removeprefix("buffer."): item[:].astype(np.float32) for name, item in file["tensors"].items()}


def documents_of(path, most):
    """Returns (tokens, targets, losses, which are recalled) of the first documents."""
    with h5py.File(path) as file:
        if not {"offsets", "target", "nll", "recalled"} <= set(file):
            raise ExactKeysError(f"{path}: is no file of quire eval --losses of a corpus of task recall")
        offsets = file["offsets"][:most + 1]
        targets, nll, recalled = (file[name][:offsets[-1]] for name in ("target", "nll", "recalled"))
    for begin, end in zip(offsets, offsets[1:]):
        own = targets[begin:end].astype(np.int64)
        yield np.concatenate([[BOS], own[:-1]]), own, nll[begin:end], recalled[begin:end] != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("run", type=pathlib.Path, help="run or checkpoint of the recipe's vq")
    parser.add_argument("losses", help="file of quire eval --losses")
    parser.add_argument("--documents", type=int, default=10, help="number of documents (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    if arguments.documents < 1:
        raise ExactKeysError(f"--documents {arguments.documents}: at least 1")
    model = Model(weights_of(arguments.run))
    documents = list(documents_of(arguments.losses, arguments.documents))
    rows = []
    for exact, factor in READINGS:
        right, nats, count = [], 0.0, 0
        for tokens, targets, nll, recalled in documents:
            logits = model.logits(tokens, exact, factor)
            most = logits.max(-1)
            own = most + np.log(np.exp(logits - most[:, None]).sum(-1)) - logits[np.arange(len(targets)), targets]
            if not exact and factor == 1 and abs(own - nll).mean() > 1e-3:
                raise ExactKeysError(f"{arguments.losses}: is not what this model gets: {own.mean():.4f} nats a token "
                                     f"here, {nll.mean():.4f} there")
            right.append(logits.argmax(-1)[recalled] == targets[recalled])
            nats, count = nats + own.sum(), count + len(own)
        right = np.concatenate(right)
        rows.append({"keys": "exact" if exact else "codewords", "factor": factor, "recalled": len(right),
                     "right": float(right.mean()), "nats": float(nats / count)})
    if arguments.json:
        print(json.dumps({"documents": len(documents), "rows": rows}))
        return
    print(f"{'behind the window':18} {'logits':>7} {'right':>7} {'nats':>7}")
    for row in rows:
        print(f"{row['keys']:18} {row['factor']:7.2f} {row['right']:7.3f} {row['nats']:7.4f}")


if __name__ == "__main__":
    try:
        import h5py
        import numpy as np
        main()
    except ModuleNotFoundError as missing:
        print(f"exact_keys: error: the Python module {missing.name} is missing (Debian: python3-h5py)", file=sys.stderr)
        sys.exit(2)
    except KeyError as missing:
        print(f"exact_keys: error: the run is not the recipe's with codewords: it has no {missing}", file=sys.stderr)
        sys.exit(2)
    except (ExactKeysError, OSError) as error:
        print(f"exact_keys: error: {error}", file=sys.stderr)
        sys.exit(2)
