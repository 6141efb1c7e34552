"""Training steps in PyTorch as quire takes them, timed: random tokens, clipping, AdamW with decay on matrices only."""

import time

import torch
import torch.nn as nn


def has_fused_adamw(on_gpu):
    """AdamW in one pass: on a GPU from PyTorch 2.0 on, on a CPU from 2.4 on."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return version >= ((2, 0) if on_gpu else (2, 4))


def timed_steps(model, forward, shape, mixed, arguments):
    """Milliseconds of steps: median, min, max. forward(tokens, targets): the loss. shape: vocabulary, rows, length.

    arguments: device, steps, warmup. A step ends when its loss has been read.
    """
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    fastest = {"fused": True} if has_fused_adamw(arguments.device != "cpu") else {}
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=5e-4, betas=(0.9, 0.95), **fastest)
    times = []
    for step in range(arguments.warmup + arguments.steps):
        tokens, targets = (torch.randint(shape["vocabulary"], (shape["rows"], shape["length"])) for _ in range(2))
        started = time.perf_counter()
        with mixed:
            loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= arguments.warmup:
            times.append(1000 * (time.perf_counter() - started))
    times.sort()
    return {"median": times[len(times) // 2], "min": times[0], "max": times[-1]}
