"""Times training steps in PyTorch as quire takes them: random tokens, clipping, AdamW with decay on matrices only."""

import time

import torch
import torch.nn as nn


def has_fused_adamw(on_gpu):
    """Says whether AdamW runs in one pass: on a GPU from PyTorch 2.0 on, on a CPU from 2.4 on."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return version >= ((2, 0) if on_gpu else (2, 4))


def timed_steps(model, forward, shape, mixed, arguments):
    """Returns milliseconds of steps: median, min, max. forward(tokens, targets) returns the loss. shape: vocabulary,
    rows, length.

    arguments: device, steps, warmup. On a CPU a step ends when its loss has been read; on a GPU a fifth of the steps is
    timed at once, as `quire bench` does, so that the host goes ahead. """
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    fastest = {"fused": True} if has_fused_adamw(arguments.device != "cpu") else {}
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=5e-4, betas=(0.9, 0.95), **fastest)
    group = max(1, (arguments.steps + 4) // 5) if arguments.device != "cpu" else 1
    times = []
    started = time.perf_counter()
    for step in range(1, arguments.warmup + arguments.steps + 1):
        tokens, targets = (torch.randint(shape["vocabulary"], (shape["rows"], shape["length"])) for _ in range(2))
        with mixed:
            loss = forward(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        timed = step - arguments.warmup
        if timed <= 0 or timed % group == 0 or timed == arguments.steps:
            loss.item()
            if timed > 0:
                times.append(1000 * (time.perf_counter() - started) / ((timed - 1) % group + 1))
            started = time.perf_counter()
    times.sort()
    return {"median": times[len(times) // 2], "min": times[0], "max": times[-1]}
