#!/usr/bin/env python3
"""Exports models and loads them with transformers: the logits are those of the golden files, and no weight is missing,
left over or drawn anew. Skipped without torch, transformers and h5py; QUIRE_TRANSFORMERS_PYTHON names an interpreter
that has them."""
import os
import subprocess
import sys
import tempfile

SKIPPED = "skipped: no Python with torch, transformers and h5py"


def check(quire, model, folder):
    import h5py
    import torch
    from transformers import AutoModelForCausalLM

    run, out = os.path.join(folder, "run"), os.path.join(folder, "out")
    for command in ([quire, "import", model, "--output", run], [quire, "export", run, "--output", out]):
        subprocess.run(command, check=True, stdout=subprocess.PIPE)
    loaded, info = AutoModelForCausalLM.from_pretrained(
        out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    problems = {key: value for key, value in info.items() if value}
    golden = h5py.File(os.path.join(model, "golden.h5"))
    with torch.no_grad():
        logits = loaded.eval()(torch.tensor(golden["ids"][:][None].astype("int64"))).logits[0].numpy()
    worst = abs(logits[golden["at"][:]] - golden["logits"][:]).max()
    print(f"{os.path.basename(model)}: {type(loaded).__name__}, {worst:.1e} {problems or ''}")
    return worst <= 3e-4 and not problems


def main():
    quire, models = sys.argv[1], os.environ.get("QUIRE_EXCHANGE_DIR") or sys.argv[2]
    python = os.environ.get("QUIRE_TRANSFORMERS_PYTHON")
    if python:
        environment = {key: value for key, value in os.environ.items() if key != "QUIRE_TRANSFORMERS_PYTHON"}
        return subprocess.run([python, *sys.argv], env=environment, check=False).returncode
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import h5py, torch, transformers  # noqa: F401
    except ImportError:
        print(SKIPPED)
        return 77
    good = True
    for name in sorted(os.listdir(models)):
        model = os.path.join(models, name)
        if os.path.exists(os.path.join(model, "golden.h5")):
            with tempfile.TemporaryDirectory() as folder:
                good = check(quire, model, folder) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
