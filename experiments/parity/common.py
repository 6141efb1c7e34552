"""Code that the three models share: norms, feed-forward layer, the XL position terms, loss, optimizer and schedule, written
for reading. Parameters have the names that they have in quire's checkpoints, and are loaded by them.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from compare import ParityError


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class RmsNorm(nn.Module):
    def __init__(self, width, eps, bias=False):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        y = x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight
        return y if self.bias is None else y + self.bias


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate, self.up, self.down = linear(width, hidden), linear(width, hidden), linear(hidden, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def split_heads(x, heads):
    """Transposes [R, T, H D] to [R, H, T, D]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).flatten(2)


def distances(queries, before):
    """Returns [T, S], how far key s of [carried; subsequence] lies behind query t; negative for keys that come later."""
    return torch.arange(queries)[:, None] + before - torch.arange(before + queries)[None, :]


def sinusoids(count, width, base):
    """Returns in row d [sin(d w_0), .., cos(d w_0), ..] with w_i = base^(-2 i / width) (Dai et al. 2019, 3.3)."""
    steps = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(count, dtype=torch.float64)[:, None] * base ** (-steps / width)
    return torch.cat([angles.sin(), angles.cos()], -1).to(torch.get_default_dtype())


class Carried:
    """Holds the last `size` vectors of each row's document, without gradient: [R, size, ...], the newest in the last
    slot."""

    def __init__(self, size):
        self.size, self.values, self.lengths = size, None, None

    def begin(self, starts):
        """Begins a step: rows that begin a document forget."""
        if self.lengths is None:
            self.lengths = torch.zeros(len(starts), dtype=torch.long)
        self.lengths[starts] = 0

    def read(self, like):
        """Returns values [R, size, ...], shaped as `like`, and which slots hold one, [R, size]."""
        if self.values is None:
            self.values = like.new_zeros(like.shape[0], self.size, *like.shape[2:])
        held = torch.arange(self.size) >= self.size - self.lengths[:, None]
        return self.values, held

    def append(self, x):
        """Appends at the end of a step the subsequence [R, T, ...]. Where it is padded the document has ended, and the next
        step begins another."""
        self.values = torch.cat([self.values, x.detach()], 1)[:, -self.size:]
        self.lengths = (self.lengths + x.shape[1]).clamp(max=self.size)


class LanguageModel(nn.Module):
    """Holds embedding, blocks, norm, and the embedding again as the projection to the vocabulary."""

    def __init__(self, vocabulary, width, eps, bias, blocks):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = RmsNorm(width, eps, bias)

    def loss(self, batch):
        """Returns what the gradient is taken of, and the mean loss per target in nats."""
        tokens, targets, present, starts = tensors_of(batch)
        x, extra = self.embedding(tokens), 0.0
        for block in self.blocks:
            x, added = block(x, starts, present)
            extra = extra + added
        logits = self.norm(x) @ self.embedding.weight.T
        nll = F.cross_entropy(logits[present], targets[present], reduction="none")
        mean = nll.double().sum() / present.sum()
        return mean + extra, mean.item()

    def after_step(self, _step):
        pass


def tensors_of(batch):
    tokens, targets = torch.tensor(batch.tokens), torch.tensor(batch.targets)
    present = torch.arange(tokens.shape[1]) < torch.tensor(batch.counts)[:, None]
    return tokens, targets, present, torch.tensor(batch.starts)


class AdamW:
    """Updates with decoupled weight decay (Loshchilov and Hutter 2019) of matrices; gains, biases and position terms do
    not decay. The gradient is first scaled down to a norm of at most clip."""

    def __init__(self, model, options):
        self.options, self.step = options, 0
        self.slots = []
        for name, p in model.named_parameters():
            decays = p.dim() > 1 and name.split(".")[-1] not in ("u", "v", "bias")
            self.slots.append((p, torch.zeros_like(p), torch.zeros_like(p), decays))

    @torch.no_grad()
    def update(self, rate):
        """Returns the norm of the gradient before clipping."""
        self.step += 1
        beta1, beta2 = self.options["betas"]
        norm = math.sqrt(sum(p.grad.double().square().sum().item() for p, *_ in self.slots))
        scale = min(1.0, self.options["clip"] / norm)
        for p, m, v, decays in self.slots:
            g = p.grad * scale
            m.copy_(beta1 * m + (1 - beta1) * g)
            v.copy_(beta2 * v + (1 - beta2) * g * g)
            m_hat, v_hat = m / (1 - beta1**self.step), v / (1 - beta2**self.step)
            decay = rate * self.options["weight_decay"] if decays else 0.0
            p.copy_((1 - decay) * p - rate * m_hat / (v_hat.sqrt() + 1e-8))
            p.grad = None
        return norm


def learning_rate(step, peak, schedule):
    """Returns the rate: a linear warm-up, then half a cosine down to `final` of the peak. Steps count from 1."""
    warmup, steps, final = schedule["warmup"], schedule["steps"], schedule["final"]
    if step < warmup:
        return peak * step / warmup
    progress = (step - warmup) / (steps - warmup)
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)


def load(model, tensors):
    """Loads weights by name. Every name of one side must be one of the other, with the same shape."""
    own = dict(model.named_parameters())
    own.update({"buffer." + name: tensor for name, tensor in model.named_buffers()})
    if own.keys() != tensors.keys():
        raise ParityError(f"the checkpoint and the port differ in {sorted(own.keys() ^ tensors.keys())}")
    with torch.no_grad():
        for name, values in tensors.items():
            if own[name].shape != values.shape or own[name].dtype != values.dtype:
                raise ParityError(f"{name}: {values.dtype} {tuple(values.shape)} in the checkpoint, "
                                  f"{own[name].dtype} {tuple(own[name].shape)} in the port")
            own[name].copy_(values)
