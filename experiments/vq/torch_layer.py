"""Computes the vq layer of speed.cpp in plain PyTorch: the block-parallel form of Transformer-VQ (Lingle 2024, appendix
E, with the corrections of its published code), on one thread. Prints one JSON object.

Blocks attend to themselves and to the block before with Transformer-XL biases, and to the cache of older codewords; the
three groups of logits are under one softmax. --blocks is how many blocks are computed at once: all of them, or fewer, so
that intermediate results stay in a cache. --check compares with attention to every earlier token, one by one.
"""

import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F

WIDTH, SIZE, VALUE, CODES, BLOCK = 256, 128, 512, 512, 512  # the window is one block
EPS = 1e-6


def rms(x):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (x.shape[-1],), None, EPS)
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt()


def parameters(width, size, value, generator):
    def normal(*shape, std):
        return (torch.randn(*shape, generator=generator) * std).requires_grad_()

    p = {name: normal(out, width, std=width ** -0.5) for name, out in
         (("query", size), ("key", size), ("value", value), ("gate", value), ("relative", size))}
    p["out"] = normal(width, value, std=value ** -0.5)
    p["u"], p["v_bias"] = normal(size, std=0.1), normal(size, std=0.1)
    p["gain"] = torch.ones(width, requires_grad=True)
    return p


def sinusoid(entries, width):
    angles = torch.arange(entries)[:, None] * 1e5 ** (-torch.arange(0, width, 2) / width)
    return torch.cat([angles.sin(), angles.cos()], -1).float()  # row m: distance m


def nearest(keys, codebook):
    with torch.no_grad():
        return (codebook.square().sum(-1) / 2 - keys @ codebook.T).argmin(-1)


def shifted(x):
    """Returns [R, L, 2L] by distance, column c belonging to distance 2L - 1 - c, to keys j - L of a block, j < 2L."""
    r, length, columns = x.shape
    # Key j of query i is at distance i + L - j, in column j + L - 1 - i: rows that are one longer lie one apart.
    flat = F.pad(x, (0, 1)).reshape(r, -1)
    return flat[:, length - 1:length - 1 + length * columns].reshape(r, length, columns)


class Layer:
    def __init__(self, tokens, width=WIDTH, size=SIZE, value=VALUE, codes=CODES, block=BLOCK):
        generator = torch.Generator().manual_seed(1)
        self.p = parameters(width, size, value, generator)
        self.size, self.block = size, block
        self.x = torch.randn(tokens, width, generator=generator).requires_grad_()
        self.dy = torch.randn(tokens, width, generator=generator)
        self.angles = sinusoid(block + 1, width)
        self.gain = size ** -0.25
        with torch.no_grad():
            keys = self.gain * rms(rms(self.x) @ self.p["key"].T)
        self.codebook = keys[:: tokens // codes][:codes].clone()
        i = torch.arange(block)[:, None]
        j = torch.arange(2 * block)[None, :]
        self.hidden = (j - block > i)  # [L, 2L]: keys of the block before and of this one

    def projections(self):
        p = self.p
        z = p["gain"] * rms(self.x)
        q, k = self.gain * rms(z @ p["query"].T), self.gain * rms(z @ p["key"].T)
        v, g = F.silu(z @ p["value"].T), F.silu(z @ p["gate"].T)
        r = self.gain * (self.angles @ p["relative"].T)
        return q, k, v, g, r

    def quantised(self, k):
        z = nearest(k, self.codebook)
        codeword = self.codebook[z]
        keys = codeword + (k - k.detach())  # exactly the codeword
        commitment = (k - codeword).square().sum() * (1e-4 / k.shape[0])
        # These are the inputs of the moving averages of the codebook.
        with torch.no_grad():
            sums = torch.zeros_like(self.codebook).index_add_(0, z, k)
            counts = torch.bincount(z, minlength=self.codebook.shape[0])
        self.statistics = sums, counts
        return z, keys, commitment

    def caches(self, z, v):
        """Returns what each block reads: means [R, S, Dv] and log counts [R, S] of all tokens before the block before it."""
        blocks, codes = v.shape[0] // self.block, self.codebook.shape[0]
        index = (torch.arange(blocks).repeat_interleave(self.block) * codes + z)
        sums = v.new_zeros(blocks * codes, v.shape[-1]).index_add(0, index, v).view(blocks, codes, -1)
        counts = torch.bincount(index, minlength=blocks * codes).view(blocks, codes).to(v.dtype)
        counts = F.pad(counts.cumsum(0), (0, 0, 2, 0))[:blocks]
        means = F.pad(sums.cumsum(0), (0, 0, 0, 0, 2, 0))[:blocks] / counts.clamp(min=1)[..., None]
        return means, counts.log()

    def mixed(self, q, keys, v, z, r, at_once):
        length, blocks = self.block, q.shape[0] // self.block
        q, keys, v_blocks = (t.view(blocks, length, -1) for t in (q, keys, v))
        means, log_counts = self.caches(z, v)
        before = lambda t: F.pad(t, (0, 0, 0, 0, 1, 0))[:blocks]
        window_k = torch.cat([before(keys), keys], 1)
        window_v = torch.cat([before(v_blocks), v_blocks], 1)
        # Column c: distance 2L - 1 - c; nothing beyond L.
        table = F.pad(r.flip(0), (0, 0, length - 1, 0))
        # split and not slices, whose gradients would each be as large as the whole.
        parts = zip(*(t.split(at_once) for t in (q, window_k, window_v, means, log_counts)))
        out = []
        for q, k, v, mean, log_count in parts:
            content = q + self.p["u"]
            window = content @ k.transpose(1, 2) + shifted((q + self.p["v_bias"]) @ table.T)
            window = window.masked_fill(self.hidden, float("-inf"))
            if not out:  # nothing comes before the first block
                nothing = torch.zeros(window.shape[0], 1, 2 * length, dtype=torch.bool)
                nothing[0, 0, :length] = True
                window = window.masked_fill(nothing, float("-inf"))
            cache = content @ self.codebook.T + log_count[:, None]
            p = torch.cat([window, cache], -1).softmax(-1)
            out.append(p[..., :2 * length] @ v + p[..., 2 * length:] @ mean)
        return torch.cat(out).view(blocks * length, -1) if len(out) > 1 else out[0].view(blocks * length, -1)

    def dense(self, q, keys, v, r):
        """Computes forward only, with every earlier token by itself."""
        i = torch.arange(q.shape[0])
        distance = i[:, None] - i[None, :]
        near = (distance >= 0) & (distance <= self.block)
        bias = ((q + self.p["v_bias"]) @ r.T).gather(1, distance.clamp(0, self.block)) * near
        logits = (q + self.p["u"]) @ keys.T + bias
        return logits.masked_fill(distance < 0, float("-inf")).softmax(-1) @ v

    def step(self, at_once):
        for t in (self.x, *self.p.values()):
            t.grad = None
        q, k, v, g, r = self.projections()
        z, keys, commitment = self.quantised(k)
        y = self.x + (self.mixed(q, keys, v, z, r, at_once) * g) @ self.p["out"].T
        torch.autograd.backward([y, commitment], [self.dy, torch.ones(())])


def check():
    torch.set_default_dtype(torch.float64)
    layer = Layer(40, width=6, size=4, value=5, codes=7, block=8)
    for name in ("x", "dy", "angles", "codebook"):
        setattr(layer, name, getattr(layer, name).double().detach())
    layer.p = {name: t.double().detach() for name, t in layer.p.items()}
    q, k, v, g, r = layer.projections()
    z, keys, _ = layer.quantised(k)
    for at_once in (1, 2, 5):
        error = (layer.mixed(q, keys, v, z, r, at_once) - layer.dense(q, keys, v, r)).abs().max().item()
        assert error < 1e-12, error
    print("the same as attention to every token")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=0, help="computed at once; 0: all")
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    torch.set_num_threads(1)
    if a.check:
        return check()
    layer = Layer(a.tokens)
    at_once = a.blocks or a.tokens // BLOCK
    layer.step(at_once)
    seconds = []
    for _ in range(a.repeats):
        begin = time.perf_counter()
        layer.step(at_once)
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"form": "pytorch", "tokens": a.tokens, "seconds": seconds, "blocks_at_once": at_once,
                      "version": torch.__version__,
                      "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
