#!/usr/bin/env python3
"""Runs a study: variants of a configuration times seeds, one after the other, and compares them.

    python3 experiments/study.py experiments/recall/study.json --work /tmp/recall

A study is a JSON file (see experiments/recall). Every unit (a variant with a seed) is trained in slices of at most
--slice and evaluated; its results are appended to WORK/results.jsonl, so that a study that was stopped goes on where it
was when the same command is given again. The report (WORK/report.md, WORK/curves.svg) is written from the finished
units. Needs Python 3.9 and the built program; for curves, matplotlib (Debian: python3-matplotlib).

    python3 experiments/study.py experiments/recall/recipe.json --results experiments/recall/results/recipe.jsonl

writes the report of results that were kept, which must be those of the study as it is now.
"""

import argparse
import hashlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from study_file import NAME, StudyError, load_study
from study_report import write_report

STOPPED = 75  # exit code of quire for "stopped and resumable"
HERE = pathlib.Path(__file__).resolve().parent


def parse_duration(text):
    match = re.fullmatch(r"(\d+)(s|m|h)", text)
    if not match or int(match[1]) == 0:
        raise StudyError(f"--slice {text}: use a number with s, m or h, such as 25m")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


class Runner:
    """Trains and evaluates units, and keeps what is finished. places: which folders {work}, {study} and the --define
    names stand for; results do not depend on them."""

    def __init__(self, study, folder, work, results, places, quire="", seconds=0):
        self.study, self.folder, self.work, self.results_file = study, folder, work, results
        self.places, self.quire, self.seconds = places, quire, seconds
        self.texts = {}  # of configurations, by path

    def command(self, arguments, accept=(0,)):
        done = subprocess.run([self.quire, *arguments], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in accept:
            raise StudyError(f"quire {' '.join(arguments)} ended with exit code {done.returncode}")
        return done

    def prepare(self):
        """Every entry: the arguments of quire prepare, or of another verb that they begin with, or of a script of
        experiments/; each makes its --output."""
        for arguments in self.study.get("prepare", []):
            output = pathlib.Path(arguments[arguments.index("--output") + 1])
            if output.exists():
                continue
            print(f"preparing {output}", flush=True)
            if arguments[0].endswith(".py"):
                command = [sys.executable, str(HERE / arguments[0]), *arguments[1:]]
                done = subprocess.run(command, check=False)
                if done.returncode != 0:
                    raise StudyError(f"{arguments[0]} ended with exit code {done.returncode}")
            else:
                self.command(["prepare", *arguments] if arguments[0].startswith("-") else arguments)

    def unit(self, name, seed):
        """The configuration and the overrides of a variant or a base, with a seed."""
        of = self.study["bases"].get(name) or {"config": self.study["config"], "set": self.study["variants"][name]}
        return self.folder / of["config"], [*self.study.get("set", []), *of.get("set", []), f"run.seed={seed}"]

    def origins(self, name, seed):
        """The runs that it begins from: {BASE} or {VARIANT} in its settings."""
        names = NAME.findall(" ".join(self.unit(name, seed)[1]))
        return [origin for origin in dict.fromkeys(names)
                if origin in self.study["bases"] or origin in self.study["variants"]]

    def text_of(self, config):
        """The text of a configuration, which must not change while the study runs."""
        text = config.read_text(encoding="utf-8")
        if self.texts.setdefault(config, text) != text:
            raise StudyError(f"{config}: changed while the study ran; give the command again to run what it says now")
        return text

    def fingerprint(self, name, seed, evaluate=None):
        """Of everything a unit's result follows from: results of another study are not taken for these. With [] as the
        arguments of its evaluation it is that of the trained run, which others do not change."""
        config, settings = self.unit(name, seed)
        if evaluate is None:
            evaluate = self.study.get("evaluate", [])
        what = [self.text_of(config), settings, evaluate, self.study.get("prepare", [])]
        what.extend(self.fingerprint(origin, seed, evaluate) for origin in self.origins(name, seed))
        text = json.dumps(what)
        for place, value in sorted(self.places.items(), key=lambda place: -len(str(place[1]))):
            text = text.replace(json.dumps(str(value))[1:-1], "{" + place + "}")
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def run_folder(self, name, seed):
        return self.work / "runs" / f"{name}-{seed}-{self.fingerprint(name, seed, [])}"

    def lines(self):
        """Results of this study. A line that a crash cut short is left out and done again."""
        if not self.results_file.exists():
            return
        for text in self.results_file.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if line["variant"] in self.study["variants"] and \
                    line["fingerprint"] == self.fingerprint(line["variant"], line["seed"]):
                yield line

    def finished(self):
        """Evaluated units by (variant, seed)."""
        return {(line["variant"], line["seed"]): line for line in self.lines() if "evaluation" in line}

    def speeds(self):
        """What measure_speed() found last, by variant."""
        return {line["variant"]: line["speed"] for line in self.lines() if "speed" in line}

    def train_slice(self, name, seed):
        """At most one slice. True when the run is trained to its end."""
        run = self.run_folder(name, seed)
        limit = f"run.max_wall_time={self.seconds}s"
        if (run / "config.yaml").exists():
            arguments = ["train", "--resume", str(run), limit]
        else:
            config, settings = self.unit(name, seed)
            for origin in self.origins(name, seed):
                settings = [text.replace("{" + origin + "}", str(self.run_folder(origin, seed))) for text in settings]
            arguments = ["train", str(config), *settings, limit, "--run-dir", str(run)]
        return self.command(arguments, accept=(0, STOPPED)).returncode == 0

    def train(self, name, seed, only_a_slice):
        """After the runs that it begins from. A run that is trained is remembered in its folder. False when one was
        stopped after a slice."""
        mark = self.run_folder(name, seed) / "trained"
        if mark.exists():
            return True
        for origin in self.origins(name, seed):
            if not self.train(origin, seed, only_a_slice):
                return False
        print(f"== {self.study['name']}: {name}, seed {seed}", flush=True)
        while not self.train_slice(name, seed):
            if only_a_slice:
                return False
        mark.touch()
        return True

    def evaluate(self, run, *more):
        # Always by position: a metric of a position may be added to the study later.
        return self.command(["eval", str(run), "--json", "--documents", "--by-position",
                             *self.study.get("evaluate", []), *more])

    def try_evaluation(self, variant, seed):
        """What is wrong with a variant or the arguments of its evaluation shows before hours of training: they are
        tried on its run where that is trained, else on one of a second, which begins from no other run."""
        mark = self.work / "tried" / self.fingerprint(variant, seed)
        if mark.exists():
            return
        run = self.run_folder(variant, seed)
        if (run / "trained").exists():
            self.evaluate(run, "--check")
        else:
            print(f"== {self.study['name']}: trying {variant}", flush=True)
            config, settings = self.unit(variant, seed)
            settings = [text for text in settings if not text.startswith("init.")]
            with tempfile.TemporaryDirectory(dir=self.work) as folder:
                run = pathlib.Path(folder) / "run"
                self.command(["train", str(config), *settings, "evaluate.every=0", "run.max_wall_time=1s", "--run-dir",
                              str(run)], accept=(0, STOPPED))
                self.evaluate(run, "--check")
        mark.parent.mkdir(exist_ok=True)
        mark.touch()

    def run_unit(self, variant, seed, only_a_slice):
        """False when the unit was stopped after a slice."""
        if not self.train(variant, seed, only_a_slice):
            return False
        run = self.run_folder(variant, seed)
        evaluation = self.evaluate(run)
        curve = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        self.keep({"variant": variant, "seed": seed, "fingerprint": self.fingerprint(variant, seed),
                   "evaluation": json.loads(evaluation.stdout),
                   "curve": [{"step": line["step"], **line["evaluation"]} for line in curve if "evaluation" in line],
                   "tokens_per_second": statistics.median(line["tokens_per_second"] for line in curve
                                                          if "loss" in line)})
        return True

    def measure_speed(self, rounds):
        """Step time and memory of every variant with the first seed, in turns; memories are full when the timed steps
        begin where 100 steps fill them. What was measured before for the same configuration is replaced in the
        report."""
        seed = self.study["seeds"][0]
        measured = {variant: [] for variant in self.study["variants"]}
        for number in range(rounds):
            for variant in measured:
                print(f"== {self.study['name']}: speed of {variant}, round {number + 1}", flush=True)
                config, settings = self.unit(variant, seed)
                settings = [text for text in settings if not text.startswith("init.")]
                done = self.command(["bench", str(config), *settings, "--warmup", "100", "--steps", "20", "--json"])
                measured[variant].append(json.loads(done.stdout))
        for variant, of in measured.items():
            self.keep({"variant": variant, "seed": seed, "fingerprint": self.fingerprint(variant, seed),
                       "speed": {"step_ms": statistics.median(one["step_ms"]["median"] for one in of),
                                 "peak_bytes": of[0]["peak_bytes"], "parameters": of[0]["parameters"],
                                 "threads": of[0]["threads"], "rounds": rounds}})

    def keep(self, line):
        with open(self.results_file, "a", encoding="utf-8") as file:
            # A torn last line of a crash is ended first.
            if file.tell() > 0 and not self.results_file.read_text(encoding="utf-8").endswith("\n"):
                file.write("\n")
            file.write(json.dumps(line) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("study", help="JSON file of the study")
    parser.add_argument("--work", help="folder for corpora, runs, results and the report")
    parser.add_argument("--quire", default="build/native/bin/quire", help="the program (default: %(default)s)")
    parser.add_argument("--slice", default="25m", help="longest time of one training command (default: %(default)s)")
    parser.add_argument("--one-slice", action="store_true", help="end with exit code 75 after a slice that was stopped")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE",
                        help="value of {NAME} in the study; may be repeated")
    parser.add_argument("--speed", type=int, metavar="ROUNDS",
                        help="then time the training steps of all variants in turns; nothing else should run")
    parser.add_argument("--report", action="store_true", help="only write the report of what is finished")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE",
                        help="only write the report of these results, of whatever folder, to the terminal")
    parser.add_argument("--curves", type=pathlib.Path, metavar="FILE", help="with --results: also draw them as SVG")
    arguments = parser.parse_args()

    folder = pathlib.Path(arguments.study).resolve().parent
    defined = [text.split("=", 1) for text in arguments.define]
    if any(len(pair) != 2 for pair in defined):
        raise StudyError("--define: use NAME=VALUE")
    if (arguments.work is None) == (arguments.results is None):
        raise StudyError("give --work FOLDER to run the study, or --results FILE for the report of results that were "
                         "kept")
    if arguments.results:
        if not arguments.results.is_file():
            raise StudyError(f"{arguments.results}: no such file")
        values = {name: value for name, value in defined if "/" not in value}
        study = load_study(arguments.study, values, complete=False)
        return report(Runner(study, folder, None, arguments.results, {}), None, arguments.curves)
    if arguments.curves:
        raise StudyError("--curves goes with --results")
    if arguments.speed is not None and arguments.speed < 1:
        raise StudyError(f"--speed {arguments.speed}: use at least one round")
    work = pathlib.Path(arguments.work).resolve()
    study = load_study(arguments.study, {"work": work, "study": folder, **dict(defined)})
    places = {"work": work, "study": folder, **{name: value for name, value in defined if "/" in value}}
    seconds = min(parse_duration(arguments.slice), 25 * 60)
    work.mkdir(parents=True, exist_ok=True)
    runner = Runner(study, folder, work, work / "results.jsonl", places, arguments.quire, seconds)
    if not arguments.report:
        runner.prepare()
        left = [(variant, seed) for seed in study["seeds"] for variant in study["variants"]
                if (variant, seed) not in runner.finished()]
        for variant in dict.fromkeys(variant for variant, _ in left):
            runner.try_evaluation(variant, next(seed for name, seed in left if name == variant))
        for variant, seed in left:
            if not runner.run_unit(variant, seed, arguments.one_slice):
                return STOPPED
        if arguments.speed:
            runner.measure_speed(arguments.speed)
    return report(runner, work / "report.md", work / "curves.svg")


def report(runner, text, curves):
    units = runner.finished()
    if not units:
        raise StudyError(f"{runner.results_file}: nothing is finished yet")
    write_report(runner.study, units, runner.speeds(), text, curves)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (StudyError, OSError) as error:
        print(f"study: error: {error}", file=sys.stderr)
        sys.exit(2)
