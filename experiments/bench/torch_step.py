"""Runs one model of compare.py in plain PyTorch: times training steps on random tokens and prints one JSON object.

The arithmetic is that of the quire configuration of the same name: same shapes, same activations, same clipping, AdamW
with decay on matrices only. Attention is scaled_dot_product_attention where it can express the model.
"""

import argparse
import ctypes
import json
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_delta import DeltaAttention
from torch_drt import Drt
from torch_landmark import LandmarkAttention
from torch_loop import timed_steps


if hasattr(F, "rms_norm"):

    def rms_norm(x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), 1e-5)
else:

    def rms_norm(x, weight):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight


if hasattr(F, "scaled_dot_product_attention"):

    def causal_attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
else:  # before PyTorch 2.0

    def causal_attention(q, k, v):
        t = q.shape[-2]
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        logits = q @ k.transpose(-1, -2) * q.shape[-1]**-0.5
        return logits.masked_fill(hidden, float("-inf")).softmax(-1) @ v


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return rms_norm(x, self.weight)


class Rotary:
    """Holds cos and sin [T, D/2]; pairs are (i, i + D/2)."""

    def __init__(self, length, size, base=10000.0):
        angles = torch.arange(length)[:, None] * base ** (-torch.arange(0, size, 2) / size)
        self.cos, self.sin = angles.cos(), angles.sin()

    def __call__(self, x):  # [B, H, T, D]
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * self.cos - b * self.sin, b * self.cos + a * self.sin], dim=-1)


class SelfAttention(nn.Module):
    def __init__(self, width, heads, rotary=None):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, e // self.heads).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = self.rotary(q), self.rotary(k)
        y = causal_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, e))


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Mlp(nn.Module):
    def __init__(self, width, hidden, activation):
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(width, hidden), nn.Linear(hidden, width), activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class Block(nn.Module):
    def __init__(self, norm, attention, mlp):
        super().__init__()
        self.attention_norm, self.attention, self.mlp_norm, self.mlp = norm(), attention, norm(), mlp

    def forward(self, x, *carried):
        if carried:
            x = x + self.attention(self.attention_norm(x), self.attention_norm(carried[0]))
        else:
            x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class RelativeAttention(nn.Module):
    """Computes Transformer-XL attention (Dai et al. 2019, 3.3) over [carried; x]; u and v belong to the model."""

    def __init__(self, width, heads, u, v):
        super().__init__()
        self.heads, self.size, self.u, self.v = heads, width // heads, u, v
        self.query, self.key, self.value, self.relative, self.out = (
            nn.Linear(width, width, bias=False) for _ in range(5))
        self.angles = self.hidden = None

    def forward(self, x, carried):
        b, t, e = x.shape
        keys = torch.cat([carried, x], dim=1)
        s = keys.shape[1]
        if self.angles is None:
            distance = torch.arange(s - 1, -1, -1.0, device=x.device)[:, None] * 10000.0 ** (
                -torch.arange(0, e, 2, device=x.device) / e)
            self.angles = torch.cat([distance.sin(), distance.cos()], dim=-1)
            self.hidden = torch.ones(t, s, dtype=torch.bool).triu(1 + s - t)
        split = lambda y: y.view(y.shape[0], y.shape[1], self.heads, self.size).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(keys)), split(self.value(keys))
        r = self.relative(self.angles).view(s, self.heads, self.size).transpose(0, 1)
        content = (q + self.u[:, None]) @ k.transpose(-1, -2)
        position = (q + self.v[:, None]) @ r.transpose(-1, -2)
        # Row i moves left by t - 1 - i: pad a column, read the rows one further on, drop it.
        position = F.pad(position, (1, 0)).view(b, self.heads, s + 1, t)[:, :, 1:].view(b, self.heads, t, s)
        logits = (content + position) * self.size**-0.5
        p = logits.masked_fill(self.hidden, float("-inf")).softmax(-1)
        return self.out((p @ v).transpose(1, 2).reshape(b, t, e))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        e, heads, hidden = shape["width"], shape["heads"], shape["hidden"]
        self.embedding = nn.Embedding(shape.get("table", shape["vocabulary"]), e)
        self.stream = shape.get("stream", torch.float32)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.cache = shape.get("cache", 0)
        self.period = shape.get("period", 0)
        self.carried = None
        blocks = []
        if shape["kind"] == "llama":
            rotary = Rotary(shape["length"], e // heads)
            self.norm = RMSNorm(e)
            for _ in range(shape["layers"]):
                blocks.append(Block(lambda: RMSNorm(e), SelfAttention(e, heads, rotary), SwiGlu(e, hidden)))
        elif shape["kind"] == "landmark":
            rotary = Rotary(shape["length"], e // heads)
            self.norm = RMSNorm(e)
            self.landmark = nn.Parameter(0.02 * torch.randn(1, e))
            for _ in range(shape["layers"]):
                attention = LandmarkAttention(e, heads, rotary, shape["length"], shape["period"])
                blocks.append(Block(lambda: RMSNorm(e), attention, SwiGlu(e, hidden)))
        elif shape["kind"] == "delta":
            self.norm = RMSNorm(e)
            for _ in range(shape["layers"]):
                attention = DeltaAttention(e, heads, shape["by_feature"], shape["chunk"])
                blocks.append(Block(lambda: RMSNorm(e), attention, SwiGlu(e, hidden)))
        elif shape["kind"] == "drt":
            self.norm = RMSNorm(e)
            self.landmark = nn.Parameter(0.02 * torch.randn(1, e))
            blocks.append(Drt(shape, Rotary, lambda attention: Block(lambda: RMSNorm(e), attention, SwiGlu(e, hidden)),
                              lambda: RMSNorm(e), lambda: SwiGlu(e, hidden)))
        elif shape["kind"] == "gpt2":
            self.norm = nn.LayerNorm(e)
            gelu = lambda x: F.gelu(x, approximate="tanh")
            for _ in range(shape["layers"]):
                blocks.append(Block(lambda: nn.LayerNorm(e), SelfAttention(e, heads), Mlp(e, hidden, gelu)))
        else:
            self.u, self.v = (nn.Parameter(0.02 * torch.randn(heads, e // heads)) for _ in range(2))
            self.norm = RMSNorm(e)
            for _ in range(shape["layers"]):
                blocks.append(Block(lambda: RMSNorm(e), RelativeAttention(e, heads, self.u, self.v), Mlp(e, hidden, F.relu)))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, tokens, targets):
        x = self.embedding(tokens).to(self.stream)
        if self.period:
            is_landmark = torch.arange(x.shape[1], device=x.device) % self.period == self.period - 1
            x = torch.where(is_landmark[:, None], self.landmark, x)
            targets = targets.masked_fill(is_landmark, -100)
        states = []
        for i, block in enumerate(self.blocks):
            if self.cache:
                carried = self.carried[i] if self.carried else torch.zeros(x.shape[0], self.cache, x.shape[2], dtype=x.dtype)
                states.append(torch.cat([carried, x.detach()], dim=1)[:, -self.cache:])
                x = block(x, carried)
            else:
                x = block(x)
        self.carried = states
        logits = self.norm(x) @ self.embedding.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


SHAPES = {
    "llama": dict(kind="llama", width=256, layers=6, heads=4, hidden=688, vocabulary=256, rows=4, length=512),
    "landmark": dict(kind="landmark", width=256, layers=6, heads=4, hidden=688, vocabulary=256, rows=4, length=512,
                     period=51),
    "drt": dict(kind="drt", width=256, layers=6, heads=4, hidden=688, vocabulary=256, rows=1, length=4160, period=65,
                chunk=64, top_k=8, window=512, encoder=2),
    "delta": dict(kind="delta", width=256, layers=6, heads=4, hidden=688, vocabulary=256, rows=4, length=512,
                  by_feature=False, chunk=32),
    "kda": dict(kind="delta", width=256, layers=6, heads=4, hidden=688, vocabulary=256, rows=4, length=512,
                by_feature=True, chunk=32),
    "gpt2": dict(kind="gpt2", width=768, layers=12, heads=12, hidden=3072, vocabulary=50257, rows=1, length=512),
    "transformer-xl": dict(kind="xl", width=256, layers=6, heads=4, hidden=1024, vocabulary=256, rows=4, length=512,
                           cache=512),
}


def blas_name():
    """Returns the library that multiplies, and for OpenBLAS the kernels it chose."""
    with open("/proc/self/maps") as maps:
        paths = sorted({line.split()[-1] for line in maps if "blas" in line and line.rstrip().endswith((".so", ".so.0", ".so.3"))})
    for path in paths:
        try:
            name = ctypes.CDLL(path).openblas_get_corename
        except (OSError, AttributeError):
            continue
        name.restype = ctypes.c_char_p
        return f"OpenBLAS, {name().decode()}"
    known = [line.strip(" -") for line in torch.__config__.show().splitlines() if "Math Kernel" in line]
    return known[0].split(" Product")[0] if known else "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=SHAPES)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="through torch.compile")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: autocast over f32 weights")
    parser.add_argument("--rows", type=int, help="instead of the model's own")
    parser.add_argument("--length", type=int, help="of a row, and of the cache where there is one")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    shape = dict(SHAPES[arguments.model])
    shape["rows"] = arguments.rows or shape["rows"]
    shape["length"] = arguments.length or shape["length"]
    if arguments.length and "cache" in shape:
        shape["cache"] = arguments.length
    on_gpu = arguments.device != "cpu"
    if on_gpu:
        torch.set_default_device(arguments.device)  # PyTorch 2.0
        shape["table"] = -(-shape["vocabulary"] // 64) * 64  # which is faster there
    if arguments.precision == "bf16":
        shape["stream"] = torch.bfloat16  # the residual stream, which autocast leaves in f32
    mixed = torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.precision == "bf16")
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = Model(shape)
    forward = torch.compile(model) if arguments.compile else model
    times = timed_steps(model, forward, shape, mixed, arguments)
    print(json.dumps({
        "torch": torch.__version__,
        "blas": blas_name(),
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_ms": times,
        "imported_rss_bytes": imported * 1024,
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))


if __name__ == "__main__":
    main()
