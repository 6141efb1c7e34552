"""The model is Transformer-VQ (Lingle 2024, sections 2 and 3, appendix C), as vq.yaml has it: gated attention units
whose keys are codewords. The tokens of the subsequence and of the window before it are attended to one by one. Only
what lies further back is summed up by codeword, which the paper's theorem 3.6 shows to be the same. """

import torch
from torch import nn
from torch.nn import functional as F

from batches import hash_of, philox
from common import Carried, LanguageModel, RmsNorm, distances, linear, sinusoids

# The port has these built in, beside the sizes that it takes from the file. One head.
FIXED = {"model.heads": 1, "model.norm.kind": "rms_bias", "model.norm.eps": 1e-6, "model.mlp.kind": "none",
         "model.position.kind": "xl", "model.attention.kind": "vq", "model.position.xl.share_biases": False,
         "model.position.xl.base": 100000, "model.attention.vq.codebook.init": ("normal", "kmeans"),
         "model.layer_overrides.0.attention.vq.codebook.init": ("normal", "kmeans")}
TAKEN = {"model.width", "model.layers", "model.head_size", "model.attention.vq.window", "model.attention.vq.codes",
         "model.attention.vq.block", "model.attention.vq.value_size", "model.attention.vq.codebook.rounds",
         "model.attention.vq.codebook.reseed", "model.layer_overrides.0.layers",
         "model.layer_overrides.0.attention.vq.codebook.reseed"}
EPS = 1e-6
DECAY, FLOOR, COMMITMENT = 0.99, 0.01, 1e-4
KMEANS_LEAST = 0.5  # while k-means goes on, a codeword with fewer keys than this is drawn anew


class Codebook(nn.Module):
    """Holds codewords as moving averages: the sum of the keys of each, and their number (3.4.1)."""

    def __init__(self, name, codes, size, options, seed):
        super().__init__()
        self.options, self.seed, self.stream = options, seed, hash_of(name + ".seeds")
        self.register_buffer("sum", torch.zeros(1, codes, size))
        self.register_buffer("count", torch.zeros(1, codes))
        self.seen = None  # keys, codes and presence of the step

    def codewords(self):
        return self.sum[0] / self.count[0].clamp(min=FLOOR)[:, None]

    def nearest(self, k, present):
        """Returns codes [R, T] of keys [R, T, D], which are remembered for the update of the step."""
        with torch.no_grad():
            codes = (k[:, :, None] - self.codewords()).square().sum(-1).argmin(-1)
        self.seen = k.detach(), codes, present
        return codes

    def update(self, step):
        keys, codes, present = self.seen
        drawn = self.options["init"] == "kmeans"
        kmeans = drawn and step <= self.options["rounds"]
        decay = 0.0 if kmeans else DECAY
        least = max(self.options["reseed"], KMEANS_LEAST) if kmeans else self.options["reseed"]
        sums, counts = torch.zeros_like(self.sum[0]), torch.zeros_like(self.count[0])
        sums.index_add_(0, codes[present], keys[present])
        counts.index_add_(0, codes[present], torch.ones_like(keys[present][:, 0]))
        self.sum[0] = decay * self.sum[0] + (1 - decay) * sums
        self.count[0] = decay * self.count[0] + (1 - decay) * counts
        rare = torch.ones_like(counts, dtype=torch.bool) if drawn and step == 1 else self.count[0] < least
        for code in rare.nonzero()[:, 0].tolist():
            # The key that takes its place is drawn as quire draws it; none where that place is padding.
            bits = philox(self.seed, step, self.stream, 0, 0, code)
            row, t = bits[0] % keys.shape[0], bits[1] % keys.shape[1]
            if present[row, t]:
                self.sum[0, code], self.count[0, code] = keys[row, t], 1.0


class Attention(nn.Module):
    def __init__(self, name, model, codebook, seed):
        super().__init__()
        width, options = model["width"], model["attention"]["vq"]
        self.size, values = model["head_size"], options["value_size"]
        self.window, self.block = options["window"], options["block"]
        self.query, self.key, self.relative = (linear(width, self.size) for _ in range(3))
        self.value, self.gate, self.out = linear(width, values), linear(width, values), linear(values, width)
        self.u, self.v = nn.Parameter(torch.zeros(1, self.size)), nn.Parameter(torch.zeros(1, self.size))
        self.codebook = Codebook(name + ".codebook", options["codes"], self.size, codebook, seed)
        # The window that is carried, and what lies behind it: sums of values and numbers of tokens by code.
        self.keys, self.values, self.codes = (Carried(self.window) for _ in range(3))
        self.cached_sum = self.cached_count = None

    def normalised(self, x):
        """Returns vectors of norm D^(1/4), so that no product exceeds sqrt(D)."""
        return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * self.size**-0.25

    def begin(self, z, starts):
        for state in (self.keys, self.values, self.codes):
            state.begin(starts)
        if self.cached_sum is None:
            codes = self.codebook.count.shape[1]
            self.cached_sum = z.new_zeros(z.shape[0], codes, self.value.out_features)
            self.cached_count = z.new_zeros(z.shape[0], codes)
        self.cached_sum[starts], self.cached_count[starts] = 0.0, 0.0

    def forward(self, z, starts, present):
        self.begin(z, starts)
        q, k = self.normalised(self.query(z)), self.normalised(self.key(z))
        v, gate = F.silu(self.value(z)), F.silu(self.gate(z))
        codewords = self.codebook.codewords()
        codes = self.codebook.nearest(k, present)
        commitment = COMMITMENT * (k - codewords[codes]).square().sum(-1)[present].sum() / present.sum()
        quantised = codewords[codes] + (k - k.detach())  # exactly the codeword; its gradient goes to the key

        old_keys, held = self.keys.read(k)
        old_values, old_codes = self.values.read(v)[0], self.codes.read(codes)[0]
        keys, values = torch.cat([old_keys, quantised], 1), torch.cat([old_values, v], 1)
        all_codes = torch.cat([old_codes, codes], 1)
        y = self.attend(q, keys, values, all_codes, held, codewords)

        self.forget_oldest(z, all_codes, values.detach(), held)
        self.keys.append(quantised)
        self.values.append(v)
        self.codes.append(codes)
        return self.out(gate * y), commitment

    def attend(self, q, keys, values, codes, held, codewords):
        """Computes one softmax over the window, the tokens of the subsequence that the window has left behind, and the
        cache."""
        length = q.shape[1]
        gain = self.size**-0.25
        u, bias = gain * self.u[0], gain * self.v[0]
        r = gain * self.relative(sinusoids(self.window + 1, self.relative.in_features, 100000.0))
        distance = distances(length, self.window)  # [T, S]
        by_distance = (q + bias) @ r.T  # [R, T, window + 1]
        position = by_distance.gather(-1, distance.clamp(0, self.window).expand(len(q), -1, -1))
        position = position * (distance <= self.window)  # keys further back have none
        in_window = (q + u) @ keys.transpose(1, 2) + position
        left_behind = (q + u) @ codewords[codes].transpose(1, 2)  # as the cache sees them
        # The window of a query reaches back from the first token of its block.
        first = torch.arange(length) // self.block * self.block  # in the subsequence, which begins at key `window`
        near = torch.arange(length + self.window) >= first[:, None]
        visible = (distance >= 0) & torch.cat([held, held.new_ones(q.shape[:2])], 1)[:, None]
        by_token = torch.where(near, in_window, left_behind).masked_fill(~visible, float("-inf"))
        by_code = (q + u) @ codewords.T + self.cached_count.log()[:, None]
        means = self.cached_sum / self.cached_count.clamp(min=1)[..., None]
        p = torch.cat([by_token, by_code], -1).softmax(-1)
        return p[..., :keys.shape[1]] @ values + p[..., keys.shape[1]:] @ means

    def forget_oldest(self, z, codes, values, held):
        """Sums up by code what the window of the next token does not contain."""
        length = z.shape[1]
        leaves = torch.cat([held, held.new_ones(z.shape[:2])], 1)[:, :length]
        for row, leaving in enumerate(leaves):
            at = codes[row, :length][leaving]
            self.cached_sum[row].index_add_(0, at, values[row, :length][leaving])
            self.cached_count[row].index_add_(0, at, torch.ones_like(values[row, :length, 0][leaving]))


class Block(nn.Module):
    def __init__(self, index, model, seed):
        super().__init__()
        self.attention_norm = RmsNorm(model["width"], EPS, bias=True)
        codebook = dict(model["attention"]["vq"]["codebook"])
        for override in model["layer_overrides"]:
            if index in override["layers"]:
                codebook.update(override["attention"]["vq"]["codebook"])
        self.attention = Attention(f"blocks.{index}.attention", model, codebook, seed)

    def forward(self, x, starts, present):
        y, commitment = self.attention(self.attention_norm(x), starts, present)
        return x + y, commitment


class Model(LanguageModel):
    def __init__(self, config, vocabulary, seed):
        model = config["model"]
        blocks = [Block(i, model, seed) for i in range(model["layers"])]
        super().__init__(vocabulary, model["width"], EPS, True, blocks)

    @torch.no_grad()
    def after_step(self, step):
        for block in self.blocks:
            block.attention.codebook.update(step)
