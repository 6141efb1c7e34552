"""The model is a Memorizing Transformer (Wu et al. 2022, 3.1; the published code for what the paper leaves out), as
knn.yaml has it: T5 biases, normalised queries and keys, a window with a cache of keys and values, and a memory in one
layer. """

import math

import torch
from torch import nn

from common import Carried, LanguageModel, RmsNorm, SwiGlu, distances, join_heads, linear, split_heads

# The port has these built in, beside the sizes that it takes from the file.
FIXED = {"model.mlp.kind": "swiglu", "model.position.kind": "t5", "model.attention.softmax.qk_norm": True,
         "model.attention.softmax.carry.kind": "kv", "model.memory.0.kind": "knn"}
TAKEN = {"model.width", "model.layers", "model.heads", "model.mlp.hidden", "model.attention.softmax.window",
         "model.memory.0.layers", "model.memory.0.carry.length", "model.memory.0.top_k"}
EPS = 1e-5
BUCKETS, MAX_DISTANCE = 32, 128


def bucket(distance):
    """Returns T5's bucket of a distance (Raffel et al. 2020): half of them for 0, 1, 2, ..., the others wider and wider."""
    exact = BUCKETS // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact + 2**-23) / math.log(MAX_DISTANCE / exact)
    return min(BUCKETS - 1, exact + math.floor(share * (BUCKETS - exact)))


def normalised(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


class Memory(nn.Module):
    def __init__(self, heads, size, top_k):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(heads))
        self.keys, self.values, self.top_k = Carried(size), Carried(size), top_k

    def forward(self, q, scale, local):
        """q [R, H, T, D], not scaled: what the memory gives, mixed with local attention."""
        keys, held = self.keys.read(q.transpose(1, 2))
        values, _ = self.values.read(q.transpose(1, 2))
        keys, values = keys.transpose(1, 2), values.transpose(1, 2)  # [R, H, M, D]
        with torch.no_grad():
            scores = (q @ keys.transpose(-1, -2)).masked_fill(~held[:, None, None], float("-inf"))
            best, chosen = scores.topk(min(self.top_k, self.keys.size), dim=-1)  # [R, H, T, K]
        found_keys, found_values = (take(x, chosen) for x in (keys, values))  # [R, H, T, K, D]
        logits = scale * (q[..., None, :] * found_keys).sum(-1)
        logits = logits.masked_fill(best == float("-inf"), float("-inf"))
        p = logits.softmax(-1).nan_to_num(0.0)  # an empty memory gives zero
        g = self.gate.sigmoid()[:, None, None]
        return g * (p[..., None] * found_values).sum(-2) + (1 - g) * local


def take(x, chosen):
    """Returns rows of x [R, H, M, D] at chosen [R, H, T, K]."""
    flat = chosen.flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, flat).unflatten(2, chosen.shape[2:])


class Attention(nn.Module):
    def __init__(self, width, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.query, self.key, self.value, self.out = (linear(width, width) for _ in range(4))
        self.bias = nn.Parameter(torch.zeros(heads, BUCKETS))
        self.scale = nn.Parameter(torch.ones(heads))
        self.keys, self.values = Carried(window), Carried(window)
        self.memory = nn.ModuleList()

    def forward(self, z, starts):
        """z [R, T, E], normalised."""
        carried = [self.keys, self.values, *(x for memory in self.memory for x in (memory.keys, memory.values))]
        for state in carried:
            state.begin(starts)
        q, k, v = (split_heads(x, self.heads) for x in (self.query(z), self.key(z), self.value(z)))
        q, k = normalised(q), normalised(k)
        old_k, held = self.keys.read(k.transpose(1, 2))
        old_v, _ = self.values.read(v.transpose(1, 2))
        keys, values = torch.cat([old_k.transpose(1, 2), k], 2), torch.cat([old_v.transpose(1, 2), v], 2)
        distance = distances(z.shape[1], self.window)  # [T, S]
        buckets = torch.tensor([bucket(d) for d in range(keys.shape[2])])[distance.clamp(min=0)]
        scale = self.scale.abs()[:, None, None]
        logits = scale * (q @ keys.transpose(-1, -2) + self.bias[:, buckets])
        near = (distance >= 0) & (distance <= self.window)
        visible = near & torch.cat([held, held.new_ones(z.shape[:2])], 1)[:, None]  # [R, T, S]
        y = logits.masked_fill(~visible[:, None], float("-inf")).softmax(-1) @ values
        for memory in self.memory:
            y = memory(q, scale, y)
        for state in carried[::2]:
            state.append(k.transpose(1, 2))
        for state in carried[1::2]:
            state.append(v.transpose(1, 2))
        return self.out(join_heads(y))


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        width = model["width"]
        self.attention_norm, self.mlp_norm = RmsNorm(width, EPS), RmsNorm(width, EPS)
        self.attention = Attention(width, model["heads"], model["attention"]["softmax"]["window"])
        self.mlp = SwiGlu(width, model["mlp"]["hidden"])

    def forward(self, x, starts, _present):
        x = x + self.attention(self.attention_norm(x), starts)
        return x + self.mlp(self.mlp_norm(x)), 0.0


class Model(LanguageModel):
    def __init__(self, config, vocabulary, _seed):
        model = config["model"]
        blocks = [Block(model) for _ in range(model["layers"])]
        memory = model["memory"][0]
        for layer in memory["layers"]:
            blocks[layer].attention.memory.append(Memory(model["heads"], memory["carry"]["length"], memory["top_k"]))
        super().__init__(vocabulary, model["width"], EPS, False, blocks)
