"""What the scripts that time things on a GPU share: running a program that prints JSON, and results with their origin."""

import datetime
import json
import pathlib
import shlex
import subprocess
import sys


def origin(program):
    """Date, command, and the commit that a bundle was built from: program is a file in one of its folders."""
    commit = pathlib.Path(program).resolve().parent.parent / "COMMIT"
    return {"date": datetime.date.today().isoformat(),
            "commit": commit.read_text().strip() if commit.exists() else "unknown",
            "command": " ".join(["python3", *sys.argv])}


def write(path, results):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def shown(command):
    return shlex.join(map(str, command))


def run_json(command):
    """What a program prints; of one that fails, its last line and status."""
    print("  $", shown(command), file=sys.stderr, flush=True)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1], "status": done.returncode}
    return json.loads(done.stdout)


def summary(runs):
    """The best and the middle step of several runs of one program, or the first that failed."""
    failed = [run for run in runs if "error" in run]
    if failed:
        return failed[0]
    medians = sorted(run["step_ms"]["median"] for run in runs)
    kept = {key: runs[-1][key] for key in ("parameters", "peak_bytes", "model_flops", "backend", "choices", "torch") if key in runs[-1]}
    return {"step_ms_min": min(run["step_ms"]["min"] for run in runs), "step_ms_median": medians[len(medians) // 2], **kept}
