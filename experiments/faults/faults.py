#!/usr/bin/env python3
"""Kills, signals and stops ranks of a training run at random moments, and checks what happens to the rest.

    python3 experiments/faults/faults.py --work FOLDER [--kills 100] [--signals 100] [--stops 24] [--same 20]
        [--quire build/native/bin/quire] [--seed 1] [--output FILE]

A small run trains under mpirun on 2 to 4 ranks. After every fault it goes on from its last checkpoint on another number of
ranks; a finished run is compared with one that nothing has disturbed, and the next one begins. What is done is in
FOLDER/state.json: the same command goes on where it was stopped. Exit code 1 when a check has failed. Needs Open MPI's
mpirun; standard library only.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import sys
import time

import job

SAME_RANKS = 3
BAR = 30.0  # seconds, for a kill or a signal
STOP_TIMEOUT = 3  # run.rank_timeout of the stops
STOP_BAR = STOP_TIMEOUT + 10.0
LONG = 120.0  # for what is not measured
MOMENTS = ("start", "training", "evaluation", "checkpoint")
KILLS = ("SIGKILL", "SIGSEGV", "SIGABRT")
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1")
STOPPED = 75  # exit code of quire for "stopped and resumable"
# On another number of ranks sums are rounded otherwise. Undisturbed runs on 2, 3 and 4 ranks differ by 2e-5.
LOSS_TOLERANCE = 1e-3


class Campaign:
    """Holds one part: its run, the faults that were done to it and what was found."""

    def __init__(self, arguments, part, state, save):
        self.arguments, self.part, self.state, self.save = arguments, part, state, save
        self.work = arguments.work / part
        self.config = job.prepare(arguments.work, arguments.quire)
        self.work.mkdir(exist_ok=True)

    def run_folder(self):
        return self.work / f"run-{self.state['run']}"

    def train(self, ranks, settings, name, folder):
        if (folder / "config.yaml").exists():
            what = ["--resume", folder]
        else:
            shutil.rmtree(folder, ignore_errors=True)
            what = [self.config, "--run-dir", folder]
        command = [*job.LAUNCH, "-np", ranks, self.arguments.quire, "train", *what,
                   f"schedule.steps={self.arguments.steps}", *settings]
        return job.Job(command, f"{self.arguments.work}:{self.part}", self.work / f"{name}.log")

    def choose(self, draw):
        """Chooses the next fault."""
        act = {"kills": KILLS, "signals": SIGNALS, "stops": ("SIGSTOP",), "same": KILLS + SIGNALS}[self.part]
        fault = {"ranks": SAME_RANKS, "every": draw.randint(1, 5), "act": draw.choice(act), "moment": draw.choice(MOMENTS)}
        if self.part != "same":
            others = [ranks for ranks in (2, 3, 4) if ranks != self.state.get("ranks")]
            fault["ranks"] = draw.choice(others)
        if self.part == "stops":
            fault["moment"] = draw.choice(MOMENTS[1:])
        fault["target"] = draw.randrange(fault["ranks"])
        # One of the processes is mpirun. It passes on SIGUSR1 alone.
        if fault["act"] in ("SIGKILL", "SIGUSR1") and draw.random() < 1 / (fault["ranks"] + 1):
            fault["target"] = "mpirun"
        return fault

    def wait_for_moment(self, running, fault, draw, saved):
        """Returns false when the job ended before."""
        folder = self.run_folder()
        if fault["moment"] == "start" and fault["target"] == "mpirun":
            time.sleep(draw.uniform(0, 1.2))  # also before there is any rank
            return running.running()
        if not running.wait_until(lambda: len(running.ranks()) == fault["ranks"], LONG, 0.01):
            return False
        if fault["moment"] == "start":
            time.sleep(draw.uniform(0, 0.8))
            return running.running()
        # Only then metrics.jsonl has no lines any more of steps that the last start had made after its last checkpoint.
        if not running.wait_until(lambda: running.has_begun(), LONG, 0.01):
            return False
        if not running.wait_until(lambda: job.last_line(folder).get("step", 0) > saved, LONG):
            return False
        time.sleep(draw.uniform(0, 1.5))
        if fault["moment"] == "checkpoint":
            partial = lambda: any(name.endswith(".partial") for name in os.listdir(folder / "checkpoints"))
            if not running.wait_until(partial, LONG, 0.0005):
                return False
            time.sleep(draw.uniform(0, 0.015))
        if fault["moment"] == "evaluation":
            def evaluating():
                line = job.last_line(folder)
                return "loss" in line and line["step"] % job.EVALUATE_EVERY == 0
            if not running.wait_until(evaluating, LONG, 0.001):
                return False
            time.sleep(draw.uniform(0, 0.05))
        return running.running()

    def one(self):
        """Starts the run once with one fault, unless the run ends before."""
        draw = random.Random(f"{self.arguments.seed} {self.part} {self.state['starts']}")
        fault = self.choose(draw)
        folder = self.run_folder()
        before = job.saved_steps(folder)
        settings = [f"checkpoint.every={fault['every']}"]
        if self.part == "stops":
            settings.append(f"run.rank_timeout={STOP_TIMEOUT}s")
        name = f"{self.state['starts']:04}"
        running = self.train(fault["ranks"], settings, name, folder)
        came = self.wait_for_moment(running, fault, draw, max(before, default=0))
        processes = running.ranks() if came else {}
        victim = running.process.pid if fault["target"] == "mpirun" else processes.get(fault["target"])
        if not came or victim is None:
            seconds = running.seconds_until_gone(BAR)
            return self.without_fault(running, folder, seconds)
        seen = job.saved_steps(folder)
        fault["step"] = job.last_line(folder).get("step", 0)
        os.kill(victim, getattr(signal, fault["act"]))
        fault["seconds"] = running.seconds_until_gone(STOP_BAR if self.part == "stops" else BAR)
        fault["code"] = running.process.returncode
        fault["log"] = f"{self.part}/{name}.log"
        fault["violations"] = self.judge(running, fault, folder, seen)
        return fault

    def without_fault(self, running, folder, seconds):
        """Records a run that has ended by itself: it is finished, or something is wrong."""
        violations = []
        if seconds is None or running.process.returncode != 0 or not job.is_finished(folder, self.arguments.steps):
            violations.append(f"ended before the fault with {running.process.returncode}: {running.errors()}")
        return {"moment": "none", "log": running.log.name, "violations": violations}

    def judge(self, running, fault, folder, seen):
        """Returns what is not as promised."""
        found = []
        code, errors, killed = fault["code"], running.errors(), fault["act"] in KILLS + ("SIGSTOP",)
        if fault["seconds"] is None:
            found.append("processes lived on")
        fault["finished"] = code == 0 and job.is_finished(folder, self.arguments.steps)
        # A signal before the program has asked for it ends a process, as a kill does.
        early = fault["moment"] == "start" and not running.has_begun()
        if code == 0 and not (fault["finished"] and not killed):
            found.append("exit code 0")
        if not killed and code not in (0, STOPPED) and not early:
            found.append(f"exit code {code} instead of {STOPPED}")
        fault["said"] = self.who_said(running, fault, errors)
        if len(errors) > 1:
            found.append(f"{len(errors)} errors")
        if killed and fault["target"] != "mpirun" and fault["said"] != "quire" and not early:
            found.append(f"the error names not rank {fault['target']} with host, step and operation: {errors}")
        if not killed and errors and not early:
            found.append(f"an error after a signal: {errors}")
        after = job.saved_steps(folder)
        lost = [step for step in seen if step not in after and sum(other > step for other in after) < job.KEEP]
        if lost:
            found.append(f"checkpoints lost: {lost}")
        found += job.damaged_checkpoints(self.arguments.quire, folder)
        return found

    @staticmethod
    def who_said(running, fault, errors):
        """Returns which program named what happened."""
        for error in errors:
            named = job.NAMED.search(error)
            if named and int(named[1]) == fault["target"] and named[2] == socket.gethostname():
                return "quire" if named[3] and named[4] else "quire, no step"
        if errors:
            return "quire, otherwise"
        return "mpirun" if "mpirun noticed that process" in running.said() else "nobody"

    def undisturbed(self):
        """Makes the run that others are compared with."""
        folder = self.work / "undisturbed"
        if not job.is_finished(folder, self.arguments.steps):
            shutil.rmtree(folder, ignore_errors=True)
            running = self.train(SAME_RANKS, ["checkpoint.every=100"], "undisturbed", folder)
            if running.process.wait() != 0:
                sys.exit(f"{running.said()}\nthe undisturbed run has failed")
        return folder

    def finish_run(self):
        """Trains the current run to its end and compares it."""
        folder, straight = self.run_folder(), self.undisturbed()
        found = []
        if not job.is_finished(folder, self.arguments.steps):
            running = self.train(SAME_RANKS, ["checkpoint.every=100"], f"finish-{self.state['run']}", folder)
            if running.process.wait() != 0:
                found.append(f"it does not go on: {running.said()}")
        record = {"run": self.state["run"]}
        if not found:
            lines, others = job.comparable_metrics(folder), job.comparable_metrics(straight)
            pairs = [(a["loss"], b["loss"]) for a, b in zip(lines, others) if "loss" in a and "loss" in b]
            record["largest_difference"] = max(abs(a - b) / b for a, b in pairs)
            position = [(line["step"], line.get("tokens")) for line in lines]
            if position != [(line["step"], line.get("tokens")) for line in others]:
                found.append("steps or numbers of tokens differ from those of the undisturbed run")
            if record["largest_difference"] > LOSS_TOLERANCE:
                found.append(f"losses differ by {record['largest_difference']:.2g}")
            if self.part == "same":
                found += [f"not bit for bit: {what}" for what in job.differences(folder, straight, self.arguments.steps)]
            found += [f"left over: {name}" for name in os.listdir(folder / "checkpoints") if name.startswith(".")]
        record["violations"] = found
        self.state["finished"].append(record)
        self.state["run"] += 1
        self.save()

    def work_on(self, count):
        # These processes remain from a campaign that was ended in the middle of a fault.
        job.kill_all(lambda: job.marked_processes(f"{self.arguments.work}:{self.part}"))
        while len(self.state["faults"]) < count:
            fault = self.one()
            self.state["starts"] += 1
            self.state["ranks"] = fault.get("ranks")
            if fault["moment"] != "none" or fault["violations"]:
                self.state["faults"].append(fault)
            self.save()
            told = "; ".join(fault["violations"]) or "as promised"
            print(f"{self.part} {len(self.state['faults'])}/{count}: {fault.get('act', 'none')} at {fault['moment']}, "
                  f"{told}", flush=True)
            if job.is_finished(self.run_folder(), self.arguments.steps):
                self.finish_run()
        if self.state["faults"] and (self.run_folder() / "config.yaml").exists():
            self.finish_run()


def table_lines(parts):
    yield "| fault | to | times | at start, training, evaluation, checkpoint " \
          "| seconds until all are gone: median, longest | exit codes | named by | not as promised |"
    yield "|---" * 8 + "|"
    for part, state in parts.items():
        groups = {}
        for fault in state["faults"]:
            to = "mpirun" if fault.get("target") == "mpirun" else "a rank"
            groups.setdefault((fault.get("act", "none"), to), []).append(fault)
        for (act, to), faults in sorted(groups.items()):
            seconds = [fault["seconds"] for fault in faults if fault.get("seconds") is not None] or [0]
            moments = "/".join(str(sum(fault["moment"] == moment for fault in faults)) for moment in MOMENTS)
            cells = [f"{part}: {act}", to, len(faults), moments, f"{statistics.median(seconds):.1f}, {max(seconds):.1f}",
                     counted(fault.get("code") for fault in faults), counted(fault.get("said") for fault in faults),
                     sum(bool(fault["violations"]) for fault in faults)]
            yield "| " + " | ".join(map(str, cells)) + " |"


def counted(values):
    values = list(values)
    return ", ".join(f"{value} ({values.count(value)})" for value in sorted(set(values), key=str))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--quire", type=pathlib.Path, default="build/native/bin/quire",
                        help="the program that trains (default: %(default)s)")
    for part, count in (("kills", 100), ("signals", 100), ("stops", 24), ("same", 20)):
        parser.add_argument(f"--{part}", type=int, default=count, help="how many (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=700, help="of a run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and their moments (default: %(default)s)")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    if shutil.which("mpirun") is None:
        sys.exit("mpirun is missing; on Debian: apt-get install openmpi-bin")
    if not arguments.quire.exists():
        sys.exit(f"{arguments.quire}: no such program; build it first, or give --quire")
    arguments.work, arguments.quire = arguments.work.resolve(), arguments.quire.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    file = arguments.work / "state.json"
    parts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def save():
        part = file.with_suffix(".part")
        part.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
        os.replace(part, file)

    for part in ("kills", "signals", "stops", "same"):
        count = getattr(arguments, part)
        if count > 0:
            state = parts.setdefault(part, {"run": 1, "starts": 0, "faults": [], "finished": []})
            Campaign(arguments, part, state, save).work_on(count)
    print("\n".join(table_lines(parts)))
    violations = [what for state in parts.values() for one in state["faults"] + state["finished"]
                  for what in one["violations"]]
    print(f"{sum(len(state['faults']) for state in parts.values())} faults, "
          f"{sum(len(state['finished']) for state in parts.values())} runs finished, {len(violations)} checks failed")
    if arguments.output:
        job.write_result(arguments.output, {"parts": parts})
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
