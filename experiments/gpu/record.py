"""Code that the scripts for timing on a GPU share: running a program that prints JSON, and results with their origin."""

import datetime
import json
import pathlib
import shlex
import subprocess
import sys


def origin(program):
    """Returns date, command, and the commit that a bundle was built from: program is a file in one of its folders."""
    commit = pathlib.Path(program).resolve().parent.parent / "COMMIT"
    return {"date": datetime.date.today().isoformat(),
            "commit": commit.read_text().strip() if commit.exists() else "unknown",
            "command": " ".join(["python3", *sys.argv])}


def write(path, results):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def shown(command):
    return shlex.join(map(str, command))


LIMIT = 240  # seconds of one program


def run_json(command):
    """Returns the object that a program prints last; of one that fails, its last lines and status."""
    print("  $", shown(command), file=sys.stderr, flush=True)
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {LIMIT} s", "status": 124}
    if done.returncode != 0:
        return {"error": "\n".join(done.stderr.strip().splitlines()[-20:]) or "no message", "status": done.returncode}
    begin = done.stdout.rfind("\n{") + 1
    try:
        return json.loads(done.stdout[begin:])
    except json.JSONDecodeError:
        return {"error": f"this is no JSON: {done.stdout[-200:]}", "status": 0}


def run_pairs(commands, count, keep):
    """Runs two programs in turn, and one that has failed no more; after each run keep(summary of either)."""
    runs = ([], [])
    for _ in range(count):
        for command, of_side in zip(commands, runs):
            if not of_side or "error" not in of_side[-1]:
                of_side.append(run_json(command))
            keep(*map(summary, runs))


def summary(runs):
    """Returns the best and the middle step of several runs of one program, or the first that failed."""
    if not runs:
        return {"error": "not run yet"}
    failed = [run for run in runs if "error" in run]
    if failed:
        return failed[0]
    medians = sorted(run["step_ms"]["median"] for run in runs)
    names = ("parameters", "peak_bytes", "model_flops", "backend", "choices", "torch")
    kept = {key: runs[-1][key] for key in names if key in runs[-1]}
    return {"step_ms_min": min(run["step_ms"]["min"] for run in runs), "step_ms_median": medians[len(medians) // 2], **kept}
