"""The model is Transformer-XL (Dai et al. 2019, 3.2 and 3.3) with a cache of hidden states, as xl.yaml has it."""

import torch
from torch import nn

from common import Carried, LanguageModel, RmsNorm, SwiGlu, distances, join_heads, linear, sinusoids, split_heads

# The port has these built in, beside the sizes that it takes from the file.
FIXED = {"model.mlp.kind": "swiglu", "model.position.kind": "xl", "model.attention.softmax.carry.kind": "hidden"}
TAKEN = {"model.width", "model.layers", "model.heads", "model.mlp.hidden", "model.attention.softmax.carry.length"}
EPS = 1e-5


class Biases(nn.Module):
    """Holds u and v, one pair for all layers."""

    def __init__(self, heads, size):
        super().__init__()
        self.u, self.v = nn.Parameter(torch.zeros(heads, size)), nn.Parameter(torch.zeros(heads, size))


class Attention(nn.Module):
    def __init__(self, width, heads, biases):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.relative, self.out = (linear(width, width) for _ in range(5))
        self.biases = [biases]  # in a list: the model owns them

    def forward(self, z, carried, held):
        """z [R, T, E] and carried [R, C, E], both normalised; held [R, C]: slots that are not empty."""
        u, v = self.biases[0].u[:, None], self.biases[0].v[:, None]
        keys = torch.cat([carried, z], 1)
        q, k, values = (split_heads(x, self.heads) for x in (self.query(z), self.key(keys), self.value(keys)))
        distance = distances(z.shape[1], carried.shape[1])  # [T, S]
        r = self.relative(sinusoids(keys.shape[1], z.shape[2], 10000.0))
        r = r.unflatten(-1, (self.heads, -1)).transpose(0, 1)  # [H, S, D], by distance
        by_distance = (q + v) @ r.transpose(-1, -2)
        position = by_distance.gather(-1, distance.clamp(min=0).expand(by_distance.shape[0], self.heads, -1, -1))
        logits = ((q + u) @ k.transpose(-1, -2) + position) * q.shape[-1]**-0.5
        visible = (distance >= 0) & torch.cat([held, held.new_ones(z.shape[:2])], 1)[:, None]  # [R, T, S]
        p = logits.masked_fill(~visible[:, None], float("-inf")).softmax(-1)
        return self.out(join_heads(p @ values))


class Block(nn.Module):
    def __init__(self, model, biases):
        super().__init__()
        width = model["width"]
        self.attention_norm, self.mlp_norm = RmsNorm(width, EPS), RmsNorm(width, EPS)
        self.attention = Attention(width, model["heads"], biases)
        self.mlp = SwiGlu(width, model["mlp"]["hidden"])
        self.cache = Carried(model["attention"]["softmax"]["carry"]["length"])

    def forward(self, x, starts, _present):
        self.cache.begin(starts)
        carried, held = self.cache.read(x)
        self.cache.append(x)  # as it is: the norm is applied each time it is read
        x = x + self.attention(self.attention_norm(x), self.attention_norm(carried), held)
        return x + self.mlp(self.mlp_norm(x)), 0.0


class Model(LanguageModel):
    def __init__(self, config, vocabulary, _seed):
        model = config["model"]
        biases = Biases(model["heads"], model["width"] // model["heads"])
        blocks = [Block(model, biases) for _ in range(model["layers"])]
        super().__init__(vocabulary, model["width"], EPS, False, blocks)
        self.position = biases
