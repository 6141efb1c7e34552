"""Holds a small run under mpirun, for faults.py and hosts.py: its processes, what it said, its checkpoints and its
results."""

import datetime
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

LAUNCH = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
          "--mca", "btl_vader_single_copy_mechanism", "none"]
MARK = "QUIRE_EXPERIMENT_FAULTS"  # an environment variable that all processes of a job inherit
EVALUATE_EVERY = 25
KEEP = 3  # checkpoints
CONFIG = f"""run: {{name: faults, seed: 3, threads: 1, device: cpu}}
data: {{corpus: corpus.h5, split: train, subsequence: 32, rows: 4}}
model:
  width: 32
  layers: 2
  heads: 2
  mlp: {{kind: swiglu, hidden: 48}}
  position: {{kind: xl}}
  attention: {{softmax: {{carry: {{kind: hidden, length: 24}}}}}}
optimizer: {{lr: 2e-3, eps: 1e-4}}
schedule: {{kind: cosine, warmup: 2}}
evaluate: {{every: {EVALUATE_EVERY}, split: valid, rows: 4}}
checkpoint: {{keep: {KEEP}}}
log: {{every: 1}}
"""
NAMED = re.compile(r"quire: error: rank (\d+) on (\S+?)(, step \d+)?(, [^:]+)?: ")
TIMES = ("tokens_per_second", "step_ms", "peak_bytes", "overlap", "exchange_ms")  # no two runs share them


def prepare(work, quire):
    """Makes the corpus and the configuration; returns the path of the latter."""
    work.mkdir(parents=True, exist_ok=True)
    corpus = work / "corpus.h5"
    if not corpus.exists():
        subprocess.run([quire, "prepare", "--task", "recall", "--set", "length=3000", "--split", "train=12", "--split",
                        "valid=2", "--output", corpus], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    config = work / "run.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    return config


def environment_of(process):
    try:
        variables = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(variable.decode(errors="replace").split("=", 1) for variable in variables if b"=" in variable)


def marked_processes(mark):
    """Returns by number the environment of each. A process that is over and not yet waited for has none."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            environment = environment_of(name)
            if environment.get(MARK) == mark:
                found[int(name)] = environment
    return found


def name_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def kill_all(find):
    """Kills until find() returns no process."""
    while found := find():
        for process in found:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


class Job:
    """Runs a command in the background, with a mark by which all its processes are found."""

    def __init__(self, command, mark, log):
        self.mark, self.log = mark, log
        with open(log, "wb") as out:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT, env={**os.environ, MARK: mark})

    def running(self):
        return self.process.poll() is None

    def ranks(self):
        """Returns processes by rank, of this machine."""
        found = {}
        for process, environment in marked_processes(self.mark).items():
            rank = environment.get("OMPI_COMM_WORLD_RANK")
            if rank is not None:
                found[int(rank)] = process
        return found

    def wait_until(self, condition, seconds, pause=0.002):
        """Returns false when the job ends first. It is an error when neither happens."""
        until = time.monotonic() + seconds
        while not condition():
            if not self.running():
                return False
            if time.monotonic() > until:
                raise TimeoutError(f"{self.log}: neither a result nor an end after {seconds} s")
            time.sleep(pause)
        return True

    def seconds_until_gone(self, bar):
        """Returns the seconds from now until no process of the job is left; None when some live on after the bar. They
        are then killed."""
        begun = time.monotonic()
        while time.monotonic() - begun < bar:
            if not self.running() and not marked_processes(self.mark):
                return time.monotonic() - begun
            time.sleep(0.02)
        self.end()
        return None

    def end(self):
        kill_all(lambda: marked_processes(self.mark))
        self.process.wait()

    def said(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def has_begun(self):
        """Says whether training has begun: then the ranks have found each other, and signals are asked for."""
        return "run directory" in self.said()

    def errors(self):
        return [line for line in self.said().splitlines() if "quire: error:" in line]


def last_line(run):
    """Returns the last whole object of metrics.jsonl, or none."""
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            return json.loads(line)
        except json.JSONDecodeError:
            continue
    return {}


def saved_steps(run):
    folder = run / "checkpoints"
    names = os.listdir(folder) if folder.exists() else []
    return sorted(int(name[5:]) for name in names if name.startswith("step-"))


def is_finished(run, steps):
    return saved_steps(run)[-1:] == [steps]


def damaged_checkpoints(quire, run):
    """Returns what `quire inspect` says of those that it cannot open."""
    damage = []
    for step in saved_steps(run):
        done = subprocess.run([quire, "inspect", run / "checkpoints" / f"step-{step:08}"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            damage.append(f"step {step}: {done.stderr.strip()}")
    return damage


def comparable_metrics(run):
    lines = []
    for text in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        for key in TIMES:
            line.pop(key, None)
        line.get("evaluation", {}).pop("seconds", None)
        lines.append(line)
    return lines


def differences(run, other, steps):
    """Returns the differences of two finished runs of `steps` steps on the same number of ranks, which are to be the
    same bit for bit."""
    found = []
    if comparable_metrics(run) != comparable_metrics(other):
        found.append("metrics.jsonl")
    folders = [one / "checkpoints" / f"step-{steps:08}" for one in (run, other)]
    names = [sorted(path.name for path in folder.glob("*")) for folder in folders]
    if names[0] != names[1] or not names[0]:
        return [*found, f"files {names[0]} and {names[1]}"]
    for name in names[0]:
        # The configuration says how often checkpoints were written.
        if name in ("config.yaml", "manifest.json"):
            continue
        if (folders[0] / name).read_bytes() != (folders[1] / name).read_bytes():
            found.append(name)
    return found


def write_result(path, content):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
                            cwd=pathlib.Path(__file__).parent).stdout.strip()
    result = {"date": datetime.date.today().isoformat(), "command": shlex.join(["python3", *sys.argv]), "commit": commit,
              "cores": len(os.sched_getaffinity(0)), **content}
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
