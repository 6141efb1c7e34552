"""Computes DRT (Hu et al. 2025) for torch_step.py: sliding windows with ALiBi in blocks, a chunk encoder, and grouped
cross-attention to copies of the chosen chunks, as in the published code without its fused kernel."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def attend(q, k, v, bias):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    logits = q @ k.transpose(-1, -2) * q.shape[-1]**-0.5
    return (logits if bias is None else logits + bias).softmax(-1) @ v


class WindowAttention(nn.Module):
    """Every block of `window` positions attends to itself and the block before it."""

    def __init__(self, width, heads, length, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.blocks = (length + window - 1) // window
        distance = torch.arange(window)[:, None] + window - torch.arange(2 * window)
        slope = 2.0 ** (-8 * (torch.arange(heads) + 1) / heads)
        bias = -slope[:, None, None] * distance
        bias = bias.masked_fill((distance < 0) | (distance > window), float("-inf"))
        bias = bias.repeat(self.blocks, 1, 1, 1)
        bias[0, :, :, :window] = float("-inf")
        self.bias = bias

    def forward(self, x):
        b, t, e = x.shape
        rest = self.blocks * self.window - t
        shape = (b, self.blocks, self.window, self.heads, e // self.heads)
        q, k, v = (F.pad(part, (0, 0, 0, rest)).view(shape).transpose(2, 3) for part in self.qkv(x).chunk(3, dim=-1))
        both = lambda y: torch.cat([F.pad(y, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1], y], dim=3)
        y = attend(q, both(k), both(v), self.bias)
        return self.out(y.transpose(2, 3).reshape(b, self.blocks * self.window, e)[:, :t])


class ChunkAttention(nn.Module):
    """Computes attention in both directions with rotary positions."""

    def __init__(self, width, heads, rotary):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, e // self.heads).permute(2, 0, 3, 1, 4)
        y = attend(self.rotary(q), self.rotary(k), v, None)
        return self.out(y.transpose(1, 2).reshape(b, t, e))


class Reader(nn.Module):
    """Computes the feed-forward part of an upper layer with what it reads of chunks: x + mlp(norm(x + o))."""

    def __init__(self, width, heads, norm, mlp):
        super().__init__()
        self.heads = heads
        self.query_norm, self.mlp_norm, self.mlp = norm(), norm(), mlp
        self.query = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, keys, values, weights):
        n, k, s, h, d = keys.shape
        chunks = x.view(n + 1, -1, x.shape[-1])
        q = self.query(self.query_norm(chunks[1:])).view(n, -1, h, d).transpose(1, 2)[:, None]
        logits = q @ keys.permute(0, 1, 3, 4, 2) * d**-0.5
        p = F.pad(logits, (0, 1)).softmax(-1)[..., :-1]  # one more term, exp(0)
        read = (p @ values.permute(0, 1, 3, 2, 4) * weights[:, :, None, None, None]).sum(1)
        o = self.out(read.transpose(1, 2).reshape(n, -1, h * d))
        o = F.pad(o, (0, 0, 0, 0, 1, 0)).view(x.shape)
        return x + self.mlp(self.mlp_norm(x + o))


class Drt(nn.Module):
    """Holds blocks, encoder and groups; block(attention) makes a layer, mlp() and norm() its parts."""

    def __init__(self, shape, rotary, block, norm, mlp):
        super().__init__()
        e, heads, self.chunk, self.top_k = shape["width"], shape["heads"], shape["chunk"], shape["top_k"]
        window = lambda: WindowAttention(e, heads, shape["length"], shape["window"])
        half = shape["layers"] // 2
        self.lower = nn.ModuleList(block(window()) for _ in range(half))
        turn = rotary(self.chunk + 1, e // heads)
        self.encoder = nn.ModuleList(block(ChunkAttention(e, heads, turn)) for _ in range(shape["encoder"]))
        self.encoder_norm, self.encoder_out = norm(), norm()
        self.key, self.value = (nn.Linear(e, e, bias=False) for _ in range(2))
        self.landmark_norm = norm()
        self.upper_norm = nn.ModuleList(norm() for _ in range(half))
        self.upper = nn.ModuleList(window() for _ in range(half))
        self.readers = nn.ModuleList(Reader(e, heads, norm, mlp()) for _ in range(half))

    def forward(self, x):
        for block in self.lower:
            x = block(x)
        rows, _, e = x.shape
        assert rows == 1
        encoded = self.encoder_norm(x).view(-1, self.chunk + 1, e)
        for block in self.encoder:
            encoded = block(encoded)
        encoded = self.encoder_out(encoded)
        n = encoded.shape[0]
        heads = self.readers[0].heads
        keys = self.key(encoded[:, :-1]).view(n, self.chunk, heads, e // heads)
        values = self.value(encoded[:, :-1]).view(n, self.chunk, heads, e // heads)
        marks = self.landmark_norm(x.view(n, self.chunk + 1, e)[:, -1])
        scores = (marks @ encoded[:, -1].T * e**-0.5)[:-1]
        later = torch.ones(n - 1, n, dtype=torch.bool).triu()
        noise = -torch.empty_like(scores).exponential_().log()
        found = (scores + noise).masked_fill(later, float("-inf")).topk(min(self.top_k, n), -1)
        nothing = found.values == float("-inf")
        weights = scores.gather(-1, found.indices).masked_fill(nothing, float("-inf")).softmax(-1).nan_to_num()
        chosen_keys, chosen_values = keys[found.indices], values[found.indices]
        for norm, attention, reader in zip(self.upper_norm, self.upper, self.readers):
            x = reader(x + attention(norm(x)), chosen_keys, chosen_values, weights)
        return x
