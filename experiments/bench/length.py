#!/usr/bin/env python3
"""Times the reading of one long document, and the memory that it takes, by the document's length.

    python3 experiments/bench/length.py CONFIG.yaml --work FOLDER [--lengths 32768 131072 2097152] [--model KEY=VALUE]
        [--set KEY=VALUE] [--output FILE]

The model has the weights it begins with, which cost what trained ones do. Every length is read --rounds times in turn;
the table has the least time per token and the largest memory. Standard library only.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def run(command):
    """Returns the output of a command, and the most memory that it had resident, in MiB."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=said)
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            said.seek(0)
            sys.exit(f"{said.read()}{' '.join(map(str, command))} ended with {os.waitstatus_to_exitcode(status)}")
    return out, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--lengths", type=int, nargs="+", default=[32768, 131072, 2097152])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quire", default="build/native/bin/quire")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", action="append", default=[], metavar="KEY=VALUE", help="of the run; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the evaluation; may be repeated")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    corpora = {}
    for length in arguments.lengths:
        corpora[length] = arguments.work / f"{length}.h5"
        if not corpora[length].exists():
            run([arguments.quire, "prepare", "--task", "recall", "--set", f"length={length}", "--set", "nearest=32",
                 "--set", "farthest=64", "--split", "train=1", "--split", "valid=1", "--output", corpora[length]])
    trained = arguments.work / "run"
    if not (trained / "config.yaml").exists():
        run([arguments.quire, "train", arguments.config, f"data.corpus={corpora[min(corpora)]}", "data.vocabulary=none",
             "schedule.steps=1", "schedule.warmup=0", "evaluate.every=0", *arguments.model, "--run-dir", trained])
    best, memory = {}, {}
    for _ in range(arguments.rounds):
        for length, corpus in corpora.items():
            out, resident = run([arguments.quire, "eval", trained, f"data.corpus={corpus}", f"run.threads={arguments.threads}",
                                 "evaluate.split=valid", "evaluate.rows=1", *arguments.set, "--json"])
            evaluation = json.loads(out)
            per_token = evaluation["seconds"] / evaluation["tokens"] * 1e6
            best[length] = min(per_token, best.get(length, per_token))
            memory[length] = max(resident, memory.get(length, 0))
    first = min(corpora)
    lengths = [{"tokens": length, "us_per_token": best[length], "ratio": best[length] / best[first],
                "resident_mib": memory[length]} for length in sorted(corpora)]
    for line in lengths:
        print(f"{line['tokens']:>9} tokens: {line['us_per_token']:.1f} us a token, {line['ratio']:.3f} of the shortest; "
              f"{line['resident_mib']:.0f} MiB")
    if arguments.output:
        result = {"date": datetime.date.today().isoformat(), "command": " ".join(["python3", *sys.argv]),
                  "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                                           cwd=pathlib.Path(__file__).parent, check=False).stdout.strip(),
                  "rounds": arguments.rounds, "lengths": lengths}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
