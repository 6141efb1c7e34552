"""Runs the model of step.yaml in plain PyTorch: times training steps with a full memory and prints one JSON object.

Same shapes, same AdamW, same clipping. Local attention is scaled_dot_product_attention with the bias by distance as its
mask; the memory is searched exactly, by a product with all keys and topk.
"""

import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, LAYERS, HEADS, HIDDEN, VOCABULARY, ROWS, LENGTH, WINDOW, TOP_K = 256, 6, 4, 688, 256, 4, 512, 512, 32
SIZE = WIDTH // HEADS


def normalised(x):
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1):

    def attention(q, k, v, bias):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
else:

    def attention(q, k, v, bias):
        return (q @ k.transpose(-1, -2) + bias).softmax(-1) @ v


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * self.weight


def t5_buckets():
    """Returns the bucket of each pair of a query and a key of [cache; segment], and which pairs are hidden."""
    distance = torch.arange(LENGTH)[:, None] + WINDOW - torch.arange(WINDOW + LENGTH)[None, :]
    hidden = (distance < 0) | (distance > WINDOW)
    n = distance.clamp(min=0)
    large = 16 + (torch.log(n.clamp(min=1) / 16) / math.log(128 / 16) * 16).floor().long()
    return torch.where(n < 16, n, large.clamp(max=31)), hidden


class Attention(nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.bias = nn.Parameter(0.02 * torch.randn(HEADS, 32))
        self.scale = nn.Parameter(torch.ones(HEADS))
        self.buckets, self.hidden = t5_buckets()
        self.cache = torch.zeros(2, ROWS, HEADS, WINDOW, SIZE)
        self.memory = None
        if memory:
            self.gate = nn.Parameter(torch.zeros(HEADS))
            self.memory = torch.stack([normalised(torch.randn(ROWS, HEADS, memory, SIZE)),
                                       torch.randn(ROWS, HEADS, memory, SIZE)])
            self.oldest = 0

    def forward(self, x):
        q, k, v = self.qkv(x).view(ROWS, LENGTH, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        q, k = normalised(q), normalised(k)
        scale = self.scale.abs()[:, None, None]
        bias = (self.bias[:, self.buckets] * scale).masked_fill(self.hidden, float("-inf"))
        keys, values = torch.cat([self.cache[0], k], 2), torch.cat([self.cache[1], v], 2)
        y = attention(q * scale, keys, values, bias)
        self.cache = torch.stack([keys[:, :, -WINDOW:].detach(), values[:, :, -WINDOW:].detach()])
        if self.memory is not None:
            y = self.with_memory(q, scale, y, k.detach(), v.detach())
        return self.out(y.transpose(1, 2).reshape(ROWS, LENGTH, WIDTH))

    def with_memory(self, q, scale, local, k, v):
        stored_k, stored_v = self.memory
        with torch.no_grad():
            index = (q @ stored_k.transpose(-1, -2)).topk(TOP_K, dim=-1).indices
        flat = index.reshape(ROWS, HEADS, -1, 1).expand(-1, -1, -1, SIZE)
        shape = (ROWS, HEADS, LENGTH, TOP_K, SIZE)
        found_k, found_v = stored_k.gather(2, flat).view(shape), stored_v.gather(2, flat).view(shape)
        logits = ((q * scale)[:, :, :, None] * found_k).sum(-1)
        found = (logits.softmax(-1)[..., None] * found_v).sum(-2)
        g = self.gate.sigmoid()[:, None, None]
        size = stored_k.shape[2]
        at = (self.oldest + torch.arange(LENGTH)) % size
        stored_k[:, :, at], stored_v[:, :, at] = k, v
        self.oldest = (self.oldest + LENGTH) % size
        return g * found + (1 - g) * local


class Block(nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.attention_norm, self.mlp_norm, self.attention = RMSNorm(), RMSNorm(), Attention(memory)
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        z = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


class Model(nn.Module):
    def __init__(self, memory):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY + 2, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(memory if i == 4 else 0) for i in range(LAYERS))
        self.norm = RMSNorm()

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.embedding.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = Model(arguments.memory)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    fastest = {"fused": True} if version >= (2, 4) else {}  # on a CPU
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0}],
                                  lr=5e-4, betas=(0.9, 0.95), **fastest)
    times = []
    for step in range(arguments.steps + 2):
        tokens = torch.randint(VOCABULARY, (ROWS, LENGTH))
        targets = torch.randint(VOCABULARY, (ROWS, LENGTH))
        started = time.perf_counter()
        loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step >= 2:
            times.append(1000 * (time.perf_counter() - started))
    print(json.dumps({"torch": torch.__version__, "memory": arguments.memory, "threads": arguments.threads,
                      "step_ms": {"min": min(times), "median": sorted(times)[len(times) // 2]}}))


if __name__ == "__main__":
    main()
