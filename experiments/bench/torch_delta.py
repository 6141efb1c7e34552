"""Computes the gated delta rule for torch_step.py, in chunks of tokens with the inverse of a triangular matrix."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def convolved(x, weight):
    """Returns silu of a causal convolution of every channel; x [B, T, C], weight [C, W]."""
    taps, t = weight.shape[1], x.shape[1]
    padded = F.pad(x, (0, 0, taps - 1, 0))
    return F.silu(sum(padded[:, i:i + t] * weight[:, i] for i in range(taps)))


def unit(x):
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def delta_rule(q, k, v, g, beta, chunk):
    """Takes q, k, v [B, H, T, D], g [B, H, T, 1 or D], beta [B, H, T, 1]. Everything but the loop over the states is
    computed for all chunks at once. Products of decays are factored, so decays below exp(-80) in a chunk would
    overflow."""
    b, h, t, d = k.shape
    cut = lambda x: x.reshape(b, h, t // chunk, chunk, x.shape[-1])
    q, k, v, g, beta = cut(q * d**-0.5), cut(k), cut(v), cut(g).cumsum(-2), cut(beta)
    grown, last = g.exp(), g[..., -1:, :]
    faded = k * (last - g).exp()
    if g.shape[-1] == 1:
        decay = (g - g.transpose(-1, -2)).tril().exp()
        pairs, reads = (beta * k) @ k.transpose(-1, -2) * decay, q @ k.transpose(-1, -2) * decay
    else:
        divided = (k * (-g).exp()).transpose(-1, -2)
        pairs, reads = (beta * k * grown) @ divided, (q * grown) @ divided
    system = pairs.tril(-1) + torch.eye(chunk, device=k.device)
    solved = torch.linalg.solve_triangular(system, torch.cat([beta * v, beta * k * grown], -1), upper=False, unitriangular=True)
    values, keys = solved.split([v.shape[-1], d], -1)
    reads, queries, kept = reads.tril(), q * grown, last.exp().transpose(-1, -2)
    state, out = torch.zeros(b, h, d, v.shape[-1], device=k.device), []
    for n in range(t // chunk):
        written = values[:, :, n] - keys[:, :, n] @ state
        out.append(queries[:, :, n] @ state + reads[:, :, n] @ written)
        state = kept[:, :, n] * state + faded[:, :, n].transpose(-1, -2) @ written
    return torch.stack(out, 2).reshape(b, h, t, v.shape[-1])


class DeltaAttention(nn.Module):
    """Computes Gated DeltaNet (Yang et al. 2024), or with by_feature Kimi Delta Attention (Kimi Team 2025)."""

    def __init__(self, width, heads, by_feature, chunk):
        super().__init__()
        size = width // heads
        self.heads, self.by_feature, self.chunk = heads, by_feature, chunk
        linear = lambda a, b, bias=False: nn.Linear(a, b, bias=bias)
        self.query, self.key, self.value, self.out = (linear(width, width) for _ in range(4))
        self.taps = nn.ParameterList(nn.Parameter(torch.rand(width, 4) - 0.5) for _ in range(3))
        self.rate = linear(width, heads)
        if by_feature:
            self.decay = nn.Sequential(linear(width, size), linear(size, width))
            self.gate = nn.Sequential(linear(width, size), linear(size, width, True))
        else:
            self.decay, self.gate = linear(width, heads), linear(width, width)
        self.log_rate = nn.Parameter(torch.rand(heads).mul(15).add(1).log())
        step = torch.empty(heads, size if by_feature else 1).uniform_(-6.9, -2.3).exp()
        self.decay_bias = nn.Parameter(step + (-(-step).expm1()).log())
        self.norm = nn.Parameter(torch.ones(size))

    def forward(self, x):
        b, t, e = x.shape
        heads = lambda y: y.view(b, t, self.heads, -1).transpose(1, 2)
        q, k, v = (heads(convolved(p(x), w)) for p, w in zip((self.query, self.key, self.value), self.taps))
        step = heads(self.decay(x)) + self.decay_bias[:, None]
        g = -self.log_rate.exp()[:, None, None] * F.softplus(step)
        y = delta_rule(unit(q), unit(k), v, g, heads(self.rate(x)).sigmoid(), self.chunk)
        y = y * (y.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.norm
        gate = heads(self.gate(x))
        y = y * (gate.sigmoid() if self.by_feature else F.silu(gate))
        return self.out(y.transpose(1, 2).reshape(b, t, e))
