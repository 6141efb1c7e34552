#!/usr/bin/env python3
"""Runs sliding-window models of bench.py in PyTorch, attention through FlexAttention: times training steps, prints JSON.

window-350m, window-124m: the rows of quire's step behind each other as one row of a document, whose window is a block
mask; no cache is needed then. cache-350m: rows of 512 tokens with keys and values of 512 carried, and T5 biases. Weights
are f32, arithmetic bf16 by autocast. The table of tokens has 50304 rows, a multiple of 64, which is faster there.

--masked computes attention with whole masks instead, on any device: what FlexAttention is held against in a test.
"""

import argparse
import json
import math
import pathlib
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
from torch_loop import timed_steps  # noqa: E402
from torch_step import Block, Mlp, RMSNorm, Rotary, SwiGlu  # noqa: E402

VOCABULARY = 50257
SHAPES = {
    "window-350m": dict(width=1024, layers=24, heads=16, hidden=2816, mlp="swiglu", window=512, cache=0),
    "window-124m": dict(width=768, layers=12, heads=6, hidden=3072, mlp="relu", window=1024, cache=0),
    "cache-350m": dict(width=1024, layers=24, heads=16, hidden=2816, mlp="swiglu", window=512, cache=512),
}
BUCKETS, FARTHEST = 32, 128  # of T5 (Raffel et al. 2020): the second half of the buckets grows with the logarithm


def t5_buckets(distances):
    exact = BUCKETS // 2
    rest = torch.log(distances.clamp(min=1) / exact) / math.log(FARTHEST / exact) * (BUCKETS - exact)
    return torch.where(distances < exact, distances, (exact + rest.long()).clamp(max=BUCKETS - 1))


class WindowAttention(nn.Module):
    """A query sees itself and `window` keys before it, cached ones among them. Biases by distance where there is a cache,
    rotary positions otherwise."""

    def __init__(self, shape, attend, rotary):
        super().__init__()
        width = shape["width"]
        self.heads, self.window, self.cache = shape["heads"], shape["window"], shape["cache"]
        self.attend, self.rotary = attend, rotary
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.carried = self.kept = None
        if self.cache:
            self.buckets = nn.Parameter(torch.zeros(self.heads, BUCKETS))
            self.register_buffer("bucket_of", t5_buckets(torch.arange(self.window + 1)), persistent=False)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, e // self.heads).permute(2, 0, 3, 1, 4)
        bias = None
        if self.cache:
            self.kept = (k.detach(), v.detach())
            k, v = (torch.cat([old, new], dim=2) for old, new in zip(self.carried, (k, v)))
            bias = self.buckets[:, self.bucket_of]
        else:
            q, k = (self.rotary(part).to(v.dtype) for part in (q, k))
        return self.out(self.attend(q, k, v, bias).transpose(1, 2).reshape(b, t, e))


def masked_attention(shape):
    def attend(q, k, v, bias):
        distance = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - torch.arange(k.shape[2])
        seen = (distance >= 0) & (distance <= shape["window"])
        added = torch.zeros(distance.shape) if bias is None else bias[:, distance.clamp(0, shape["window"])]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added.masked_fill(~seen, float("-inf")).to(q.dtype))

    return attend


def block_mask(flex, seen, length, window, cache, device, size=128):
    """Returns what flex.create_block_mask makes of `seen`, from blocks alone: it would look at all pairs, and compiled
    it sorts rows of hundreds of blocks in one kernel, which takes some compilers many minutes."""
    if length % size or cache % size:
        sys.exit(f"error: with FlexAttention --length and the cache are multiples of {size}, not {length} and {cache}")
    first_query = torch.arange(0, length, size, device=device)[:, None] + cache
    first_key = torch.arange(0, length + cache, size, device=device)
    nearest, farthest = (first_query - first_key + end for end in (1 - size, size - 1))
    whole = (nearest >= 0) & (farthest <= window)
    part = (farthest >= 0) & (nearest <= window) & ~whole
    lists = []
    for blocks in (part, whole):
        order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True)
        lists += [blocks.sum(-1).int()[None, None], order.int()[None, None]]
    return flex.BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=size, mask_mod=seen, seq_lengths=(length, length + cache))


def flex_attention(shape, device):
    from torch.nn.attention import flex_attention as flex

    window, cache = shape["window"], shape["cache"]

    def seen(b, h, a, c):
        return (a + cache - c >= 0) & (a + cache - c <= window)

    mask = block_mask(flex, seen, shape["length"], window, cache, device)

    def attend(q, k, v, bias):
        def with_bias(score, b, h, a, c):
            return score + bias[h, (a + cache - c).clamp(0, window)]

        return flex.flex_attention(q, k, v, score_mod=None if bias is None else with_bias, block_mask=mask)

    return attend


class Model(nn.Module):
    def __init__(self, shape, attend):
        super().__init__()
        width, hidden = shape["width"], shape["hidden"]
        self.embedding = nn.Embedding(shape["table"], width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        rotary = None if shape["cache"] else Rotary(shape["length"], width // shape["heads"])
        mlp = lambda: SwiGlu(width, hidden) if shape["mlp"] == "swiglu" else Mlp(width, hidden, F.relu)
        self.norm = RMSNorm(width)
        self.blocks = nn.ModuleList(
            Block(lambda: RMSNorm(width), WindowAttention(shape, attend, rotary), mlp()) for _ in range(shape["layers"]))

    def forward(self, tokens, targets):
        x = self.embedding(tokens).to(torch.bfloat16)  # the residual stream, which autocast leaves in f32
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.embedding.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--length", type=int, required=True, help="of a row")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--device", default="cuda", help="cpu or cuda")
    parser.add_argument("--masked", action="store_true", help="whole masks instead of FlexAttention, and no torch.compile")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=N", help="another shape, for a short try")
    arguments = parser.parse_args()
    if not hasattr(torch, "set_default_device"):
        sys.exit(f"torch_window: error: needs PyTorch 2.0 or newer, and this one is {torch.__version__}")
    torch.manual_seed(1)
    shape = dict(SHAPES[arguments.model], rows=arguments.rows, length=arguments.length, vocabulary=VOCABULARY)
    for pair in arguments.set:
        key, _, value = pair.partition("=")
        shape[key] = int(value)
    shape["table"] = shape.get("table", -(-shape["vocabulary"] // 64) * 64)
    if shape["cache"] > shape["length"]:
        sys.exit("torch_window: error: a cache is that of the subsequence before; it has no more tokens than a row")
    torch.set_default_device(arguments.device)
    attend = masked_attention(shape) if arguments.masked else flex_attention(shape, arguments.device)
    model = Model(shape, attend)
    compiled = model if arguments.masked else torch.compile(model)
    layers = [block.attention for block in model.blocks]
    mixed = torch.autocast(arguments.device, torch.bfloat16)
    size = shape["width"] // shape["heads"]
    for layer in layers if shape["cache"] else ():
        # Strides are those of what is carried later, so that nothing is compiled twice.
        empty = torch.zeros(shape["rows"], shape["length"], 3, shape["heads"], size, dtype=torch.bfloat16)
        layer.carried = tuple(part[:, :, -shape["cache"]:] for part in empty.permute(2, 0, 3, 1, 4)[1:])

    def forward(tokens, targets):
        loss = compiled(tokens, targets)
        if shape["cache"]:
            for layer in layers:
                layer.carried = tuple(part[:, :, -shape["cache"]:] for part in layer.kept)
        return loss

    if arguments.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = timed_steps(model, forward, shape, mixed, arguments)
    on_gpu = arguments.device != "cpu"
    print(json.dumps({
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_ms": times,
        "tokens_per_second": shape["rows"] * shape["length"] / times["median"] * 1e3,
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
    }))


if __name__ == "__main__":
    main()
