"""Computes landmark attention for torch_step.py by the published arithmetic with whole matrices."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LandmarkAttention(nn.Module):
    """Computes the grouped softmax (Mohtashami and Jaggi 2023, 3.1) with a landmark as the last of every `period`
    positions."""

    def __init__(self, width, heads, rotary, length, period):
        super().__init__()
        self.heads, self.rotary, self.period = heads, rotary, period
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        at = torch.arange(length)
        block, landmark = at // period, at % period == period - 1
        own = (block[:, None] == block) & (at[:, None] >= at) & ~landmark
        earlier = block[:, None] > block
        self.own, self.gates = own, own | (earlier & landmark)
        self.blocks = (length + period - 1) // period
        self.regular = torch.arange(period) < period - 1

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, e // self.heads).permute(2, 0, 3, 1, 4)
        q, k = self.rotary(q), self.rotary(k)
        logits = q @ k.transpose(-1, -2) * q.shape[-1]**-0.5
        gates = logits.masked_fill(~self.gates, float("-inf")).softmax(-1)
        shape = (b, self.heads, t, self.blocks, self.period)
        rest = self.blocks * self.period - t
        within = F.pad(logits, (0, rest)).view(shape).masked_fill(~self.regular, float("-inf")).softmax(-1)
        shares = F.pad(gates, (0, rest)).view(shape)[..., -1:]
        of_earlier = (within * shares * (torch.arange(self.blocks)[:, None] < torch.arange(t)[:, None, None] // self.period))
        weights = of_earlier.view(b, self.heads, t, -1)[..., :t] + gates * self.own
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, e))
