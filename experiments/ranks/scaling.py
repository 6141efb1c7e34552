#!/usr/bin/env python3
"""Times training on 1, 2 and 4 ranks of this machine, beside what `quire plan --scaling` predicts.

    python3 experiments/ranks/scaling.py [CONFIG] --work FOLDER [--ranks 1 2 4] [--rounds 3] [--steps 20]
        [--launch 'mpirun -np {ranks} ...'] [--set KEY=VALUE] [--output FILE]

Each number of ranks trains with one thread a rank, and with the threads that use all cores. A round runs all of them once,
one after the other, and after each of them as many copies of `quire bench` at once, with the rows and threads of a rank:
the time that ranks compute when none waits for another. Links are measured between as many processes, which send to each
other over sockets. Both go into the model. The table has medians over rounds. Standard library only.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import pathlib
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "configs" / "quickstart.yaml"
LAUNCH = "mpirun -np {ranks} --oversubscribe --allow-run-as-root --bind-to none"
EVERY = 5  # steps between lines of metrics.jsonl
MEASURED = ("tokens_per_second", "step_ms", "exchange_ms", "overlap")
LATENCY_ROUNDS = 200


def words_of(command):
    return [str(word) for word in command]


def finish(process, command):
    out, err = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{err.strip()}\n{shlex.join(words_of(command))} ended with {process.returncode}")
    return out


def start(command):
    try:
        return subprocess.Popen(words_of(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


def run(command):
    return finish(start(command), command)


def link_process(mine, following, barrier, length, results):
    """Runs one of the processes of a ring: sends to the following one and receives from the one before."""
    block = bytearray(1 << 20)

    def send():
        for _ in range(length):
            following.sendall(block)

    barrier.wait()
    begun = time.perf_counter()
    sender = threading.Thread(target=send)
    sender.start()
    received, into = 0, bytearray(1 << 20)
    while received < length << 20:
        received += mine.recv_into(into)
    sender.join()
    seconds = time.perf_counter() - begun
    barrier.wait()
    begun = time.perf_counter()
    for _ in range(LATENCY_ROUNDS):  # all send at once, as in an exchange in pairs
        following.sendall(b"x")
        mine.recv(1)
    results.put((seconds, (time.perf_counter() - begun) / LATENCY_ROUNDS))


def measure_link(ranks, megabytes):
    """Returns bytes/s that each of the processes sends while it receives as much, and seconds of a small message."""
    context = multiprocessing.get_context("fork")
    pairs = [socket.socketpair() for _ in range(ranks)]
    barrier, results = context.Barrier(ranks), context.SimpleQueue()
    processes = [context.Process(target=link_process,
                                 args=(pairs[rank][0], pairs[(rank + 1) % ranks][1], barrier, megabytes, results))
                 for rank in range(ranks)]
    for process in processes:
        process.start()
    measured = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return (megabytes << 20) / max(seconds for seconds, _ in measured), max(latency for _, latency in measured)


class Study:
    def __init__(self, arguments):
        self.arguments = arguments
        self.tool = arguments.tool or arguments.quire
        self.corpus = arguments.corpus
        arguments.work.mkdir(parents=True, exist_ok=True)
        if self.corpus is None:
            self.corpus = arguments.work / "corpus.h5"
            if not self.corpus.exists():
                run([self.tool, "prepare", "--task", "recall", "--set", "length=8192", "--split", "train=32", "--split",
                     "held_out=1", "--output", self.corpus])
        self.settings = [f"data.corpus={self.corpus}", "evaluate.every=0", "checkpoint.every=0", f"log.every={EVERY}",
                         f"schedule.steps={EVERY + arguments.steps}", "schedule.warmup=0", "run.device=cpu", *arguments.set]
        # The plan of one rank has all rows.
        self.rows = self.plan(1, 1, [])["strong"][0]["rows"]

    def plan(self, ranks, step_ms, more):
        command = [self.tool, "plan", self.arguments.config, *self.settings, "-n", ranks, "--scaling", "--step-ms", step_ms,
                   *more, "--json"]
        return json.loads(run(command))["scaling"]

    def train(self, ranks, threads):
        """Returns means of the lines of a run, but for the first one."""
        folder = self.arguments.work / "run"
        shutil.rmtree(folder, ignore_errors=True)
        run([*shlex.split(self.arguments.launch.format(ranks=ranks)), self.arguments.quire, "train", self.arguments.config,
             *self.settings, f"run.threads={threads}", "--run-dir", folder])
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        if ranks > 1 and "overlap" not in lines[-1]:
            sys.exit(f"{shlex.quote(self.arguments.launch)} did not start {ranks} ranks")
        shutil.rmtree(folder)
        return {field: statistics.fmean(line.get(field, 0) for line in lines[1:]) for field in MEASURED}

    def compute(self, ranks, threads):
        """Returns milliseconds of a step of one rank, while the others compute as well."""
        command = [self.tool, "bench", self.arguments.config, *self.settings, f"data.rows={-(-self.rows // ranks)}",
                   f"run.threads={threads}", "--steps", self.arguments.steps, "--warmup", 2, "--json"]
        running = [start(command) for _ in range(ranks)]
        return statistics.fmean(json.loads(finish(process, command))["step_ms"]["median"] for process in running)

    def predict(self, ranks, compute_ms, link):
        bandwidth, latency = link
        microseconds = f"{1e6 * latency:.6f}us"
        scaling = self.plan(ranks, compute_ms, ["--ranks-per-host", ranks, "--within-host",
                                                f"{bandwidth / 1e9:.6f}GB/s,{microseconds}", "--control-latency", microseconds])
        point = next(point for point in scaling["strong"] if point["ranks"] == ranks)
        return {"tokens_per_second": point["tokens_per_second"], "overlap": point["overlap"], "step_ms": point["step_ms"],
                "exchange_ms": point["exchange_ms"] - point["hidden_ms"],
                "bytes_sent": point["gradient_bytes"] + point["weight_bytes"] + point["sum_bytes"]}


def measure(study, arguments, cores):
    cases = sorted({(ranks, threads) for ranks in arguments.ranks for threads in (1, max(1, cores // ranks))} |
                   {(1, 1), (1, cores)})
    seen = {case: [] for case in cases}
    computed = {case: [] for case in cases}
    links = {ranks: [] for ranks, _ in cases if ranks > 1}
    for _ in range(arguments.rounds):
        for case in cases:
            seen[case].append(study.train(*case))
            computed[case].append(study.compute(*case))
        for ranks, measured in links.items():
            measured.append(measure_link(ranks, arguments.link_megabytes))
    rows = []
    for ranks, threads in cases:
        runs = seen[ranks, threads]
        line = {"ranks": ranks, "threads": threads, "runs": runs,
                **{field: statistics.median(one[field] for one in runs) for field in MEASURED},
                "compute_ms": statistics.median(computed[ranks, threads])}
        if ranks > 1:
            link = [statistics.median(values) for values in zip(*links[ranks])]
            line["link"] = {"bytes_per_second": link[0], "latency_seconds": link[1]}
            line["predicted"] = study.predict(ranks, line["compute_ms"], link)
        rows.append(line)
    return rows


def add_ratios(rows, cores):
    """efficiency: tokens/s over those of one rank with one thread, for each core in use. of_one_rank: over those of one rank
    with as many threads as there are cores in use."""
    alone = {row["threads"]: row["tokens_per_second"] for row in rows if row["ranks"] == 1}
    for row in rows:
        used = min(cores, row["ranks"] * row["threads"])
        row["efficiency"] = row["tokens_per_second"] / alone[1] / used
        row["exchange_share"] = row["exchange_ms"] / row["step_ms"]
        if used in alone:
            row["of_one_rank"] = row["tokens_per_second"] / alone[used]


def table_lines(rows):
    names = ["ranks", "threads each", "tokens/s", "efficiency", "of one rank", "overlap", "exchange, share of step",
             "predicted tokens/s", "overlap", "share"]
    yield "| " + " | ".join(names) + " |"
    yield "|---" * len(names) + "|"
    for row in rows:
        of_one = f"{row['of_one_rank']:.2f}" if "of_one_rank" in row else ""
        cells = [row["ranks"], row["threads"], f"{row['tokens_per_second']:.0f}", f"{row['efficiency']:.2f}", of_one]
        if "predicted" in row:
            told = row["predicted"]
            cells += [f"{row['overlap']:.2f}", f"{row['exchange_share']:.2f}", f"{told['tokens_per_second']:.0f}",
                      f"{told['overlap']:.2f}", f"{told['exchange_ms'] / told['step_ms']:.2f}"]
        else:
            cells += [""] * 5
        yield "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", type=pathlib.Path, default=CONFIG)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)),
                        help="that runs may use (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20,
                        help="that are timed in a run; 5 more come first (default: %(default)s)")
    parser.add_argument("--launch", default=LAUNCH,
                        help="what starts {ranks} ranks of the command behind it (default: %(default)s)")
    parser.add_argument("--quire", default="build/native/bin/quire", help="the program that trains (default: %(default)s)")
    parser.add_argument("--tool", help="the program on one rank, for everything else (default: that of --quire)")
    parser.add_argument("--corpus", type=pathlib.Path, help="instead of one of the task recall")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the configuration; may be repeated")
    parser.add_argument("--link-megabytes", type=int, default=256,
                        help="that a process sends to measure links (default: %(default)s)")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    for name in ("cores", "rounds", "steps", "link_megabytes"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: give a number above 0")
    if min(arguments.ranks) < 1:
        parser.error("--ranks: give numbers above 0")
    if "{ranks}" not in arguments.launch or arguments.launch.replace("{ranks}", "").count("{") > 0:
        parser.error("--launch: write {ranks} where the number of ranks belongs, and no other braces")
    study = Study(arguments)
    if max(arguments.ranks) > study.rows:
        parser.error(f"--ranks: data.rows is {study.rows}, and every rank needs a row")
    rows = measure(study, arguments, arguments.cores)
    add_ratios(rows, arguments.cores)
    print("\n".join(table_lines(rows)))
    if arguments.output:
        result = {"date": datetime.date.today().isoformat(), "command": shlex.join(["python3", *sys.argv]),
                  "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                                           cwd=pathlib.Path(__file__).parent, check=False).stdout.strip(),
                  "cores": arguments.cores, "rounds": arguments.rounds, "steps": arguments.steps, "rows": study.rows,
                  "runs": rows}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
