#!/usr/bin/env python3
"""Tries signals, limits, closed pipes, suspended jobs and strangers at the port, at random moments.

    python3 experiments/faults/edges.py --work FOLDER [--times 40] [--only exit,pipes] [--quire build/native/bin/quire]
        [--seed 1] [--output FILE]

Each part does one thing to a small run `times` times (suspended jobs and strangers a fifth of that) and checks what README
promises: the exit code, one line of an error, checkpoints that open. Exit code 1 when a check has failed. The parts with
ranks need Open MPI's mpirun; standard library only.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import job

STOPPED = 75
LONG = 120.0  # seconds: nothing here takes as long


class Edges:
    def __init__(self, arguments):
        self.quire, self.work = arguments.quire, arguments.work
        self.config = job.prepare(arguments.work, arguments.quire)
        self.random = random.Random(arguments.seed)
        self.run = self.work / "run"

    def train(self, *settings):
        shutil.rmtree(self.run, ignore_errors=True)
        return [str(word) for word in (self.quire, "train", self.config, "--run-dir", self.run, "evaluate.every=0",
                                       "checkpoint.every=5", *settings)]

    def start(self, command, limits=(), **options):
        def limit():
            for which, value in limits:
                resource.setrlimit(which, (value, value))
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                   "preexec_fn": limit, **options}
        return subprocess.Popen([str(word) for word in command], **options)

    def finish(self, process, codes, lines, violations):
        """Waits for the end and returns what it said. `lines`: how many errors there may be."""
        try:
            _, said = process.communicate(timeout=LONG)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            violations.append("it does not end")
            return None, ""
        said = said or ""
        errors = [line for line in said.splitlines() if line.startswith("quire: error:")]
        if process.returncode not in codes:
            violations.append(f"code {process.returncode}: {said[-300:]}")
        if len(errors) not in lines:
            violations.append(f"{len(errors)} errors, code {process.returncode}: {said[-300:]}")
        violations.extend(job.damaged_checkpoints(self.quire, self.run))
        return process.returncode, said

    def log_has(self, text):
        log = self.run / "log.txt"
        return log.exists() and text in log.read_text(encoding="utf-8", errors="replace")

    def exit(self, violations):
        """Sends a signal when the end of the run has been said, or while it is."""
        ends_by_itself = self.random.random() < 0.5
        process = self.start(self.train("schedule.steps=20" if ends_by_itself else "schedule.steps=1000000"))
        number = self.random.choice([signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
        while process.poll() is None and not self.log_has("run directory"):
            pass
        if not ends_by_itself:
            process.send_signal(number)
        while process.poll() is None and not self.log_has("after step"):
            pass
        time.sleep(self.random.random() * 0.004)
        while process.poll() is None:
            process.send_signal(number)
        return self.finish(process, [STOPPED, 0], [0], violations)[0]

    def start_up(self, violations):
        """Sends a signal while the program starts: before main() it kills, which leaves nothing behind."""
        process = self.start(self.train("schedule.steps=1000000"))
        time.sleep(self.random.random() * 0.3)
        process.send_signal(signal.SIGTERM)
        code = self.finish(process, [STOPPED, -signal.SIGTERM], [0], violations)[0]
        if code == -signal.SIGTERM and self.run.exists():
            violations.append("killed after the run had begun")
        return code

    def pipes(self, violations):
        """Closes the reader of all messages at some moment."""
        reading, writing = os.pipe()
        process = self.start(self.train("schedule.steps=60"), stdout=writing, stderr=writing)
        os.close(writing)
        time.sleep(self.random.random() * 0.5)
        os.close(reading)
        code = self.finish(process, [0], [0], violations)[0]
        if not self.log_has("finished after step 60"):
            violations.append("log.txt lacks the end")
        return code

    def output(self, violations):
        """Nobody reads what a verb prints."""
        if not self.run.exists():
            subprocess.run(self.train("schedule.steps=5"), check=True, capture_output=True)
        verb = self.random.choice([["eval", self.run], ["inspect", self.run], ["plan", self.config], ["config", "--list"],
                                   ["--help"], ["generate", self.run, "--prompt", "a", "--length", "20"]])
        reading, writing = os.pipe()
        os.close(reading)
        process = self.start([self.quire, *verb], stdout=writing)
        os.close(writing)
        return self.finish(process, [-signal.SIGPIPE], [0], violations)[0]

    def limits(self, violations):
        """Sets one limit of the user's, from far too low to almost enough: the run ends well, or with one line."""
        which, low, high = self.random.choice([(resource.RLIMIT_FSIZE, 1000, 300000), (resource.RLIMIT_AS, 60 << 20, 700 << 20),
                                               (resource.RLIMIT_NOFILE, 4, 12)])
        process = self.start(self.train("schedule.steps=20"), limits=[(which, self.random.randint(low, high))])
        code, said = self.finish(process, [0, 2, 3, 6, 7, 8, 127], [0, 1], violations)
        if "damaged" in said or (code not in (0, 127) and "quire: error:" not in said):
            violations.append(f"limit {which}: code {code}: {said[-300:]}")
        return f"{which}: {code}"

    def suspended(self, violations):
        """All ranks are stopped, one after the other, for longer than they wait for each other, and go on."""
        command = [*job.LAUNCH, "-np", "3", *self.train("schedule.steps=1000000", "run.rank_timeout=1s")]
        log = self.work / "suspended.log"
        task = job.Job(command, f"{self.work}:suspended", log)
        task.wait_until(task.has_begun, LONG)
        time.sleep(self.random.random() * 0.5)
        ranks = list(task.ranks().values())
        for number, pause in ((signal.SIGSTOP, self.random.uniform(1.2, 6)), (signal.SIGCONT, 0.5)):
            self.random.shuffle(ranks)
            for process in ranks:
                os.kill(process, number)
                time.sleep(self.random.random() * 0.2)
            time.sleep(pause)
        goes_on = task.running()
        if goes_on:
            os.kill(ranks[0], signal.SIGTERM)
        if task.seconds_until_gone(30.0) is None:
            violations.append("it does not end")
        if not goes_on or task.process.returncode != STOPPED or task.errors():
            violations.append(f"code {task.process.returncode}: {task.said()[-300:]}")
        violations.extend(job.damaged_checkpoints(self.quire, self.run))
        return task.process.returncode

    def strangers(self, violations):
        """Makes connections that say nothing, nonsense or that gigabytes follow, while two ranks meet at a port of
        their own."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        place = self.work / "meet"
        place.unlink(missing_ok=True)
        over = threading.Event()

        def crowd():
            words = [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(4) * 2 + (1).to_bytes(8, "little") + (1 << 31).to_bytes(8, "little"),
                     self.random.randbytes(5000)]
            held = []
            while not over.is_set():
                try:
                    one = socket.create_connection(("127.0.0.1", port), timeout=1)
                    one.setblocking(False)
                    one.send(self.random.choice(words))
                    held = [*held[-60:], one]
                except OSError:
                    pass
                time.sleep(0.002)

        threads = [threading.Thread(target=crowd) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        ranks = []
        for rank in (0, 1):
            environment = {**os.environ, "QUIRE_RENDEZVOUS": str(place), "QUIRE_RANK": str(rank), "QUIRE_RANKS": "2",
                           "QUIRE_PORT": str(port), "QUIRE_ADDRESS": "127.0.0.1"}
            ranks.append(self.start([self.quire, "config", self.config], env=environment))
        codes = [self.finish(process, [0], [0], violations)[0] for process in ranks]
        over.set()
        for thread in threads:
            thread.join()
        if time.monotonic() - begun > 10:
            violations.append(f"the ranks met after {time.monotonic() - begun:.1f} s")
        return codes[0]


PARTS = ("exit", "start_up", "pipes", "output", "limits", "suspended", "strangers")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--quire", type=pathlib.Path, default="build/native/bin/quire")
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.quire = arguments.quire.resolve()
    edges = Edges(arguments)
    results = {}
    for part in arguments.only.split(","):
        times = max(1, arguments.times // 5) if part in ("suspended", "strangers") else arguments.times
        ends = collections.Counter()
        violations = []
        for turn in range(times):
            found = []
            ends[str(getattr(edges, part)(found))] += 1
            violations.extend(f"{turn}: {text}" for text in found)
        results[part] = {"times": times, "ends": dict(sorted(ends.items())), "violations": violations}
        print(part, json.dumps(results[part]), flush=True)
    if arguments.output:
        job.write_result(arguments.output, {"seed": arguments.seed, "parts": results})
    sys.exit(1 if any(result["violations"] for result in results.values()) else 0)


if __name__ == "__main__":
    main()
