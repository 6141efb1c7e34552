#!/usr/bin/env python3
"""Runs a study: variants of a configuration times seeds, one after the other, and compares them.

    python3 experiments/study.py experiments/recall/study.json --work /tmp/recall

A study is a JSON file (see experiments/recall). Every unit (a variant with a seed) is trained in slices of at most
--slice and evaluated; its results are appended to WORK/results.jsonl, so that a study that was stopped goes on where it
was when the same command is given again. The report (WORK/report.md, WORK/curves.svg) is written from the finished
units. Needs Python 3.9 and the built program; for curves, matplotlib (Debian: python3-matplotlib).
"""

import argparse
import hashlib
import json
import pathlib
import re
import statistics
import subprocess
import sys

from study_report import write_report

STOPPED = 75  # exit code of quire for "stopped and resumable"
KEYS = {"name", "config", "prepare", "set", "variants", "seeds", "baseline", "evaluate", "metrics", "curve"}


class StudyError(Exception):
    """What is wrong with the study or one of its commands, for one line on stderr."""


def load_study(path, replacements):
    """The study with {work}, {study} and the --define names filled in."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    for name, value in replacements.items():
        text = text.replace("{" + name + "}", json.dumps(str(value))[1:-1])
    missing = re.findall(r"\{[a-z_]+\}", text)
    if missing:
        raise StudyError(f"{path}: {missing[0]} has no value; give --define {missing[0][1:-1]}=VALUE")
    try:
        study = json.loads(text)
    except json.JSONDecodeError as error:
        raise StudyError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    unknown = set(study) - KEYS
    if unknown:
        raise StudyError(f"{path}: unknown key {sorted(unknown)[0]}; there is: {', '.join(sorted(KEYS))}")
    for key in ("name", "config", "variants", "seeds"):
        if not study.get(key):
            raise StudyError(f"{path}: {key} is missing")
    study.setdefault("baseline", next(iter(study["variants"])))
    if study["baseline"] not in study["variants"]:
        raise StudyError(f"{path}: baseline {study['baseline']} is no variant")
    study.setdefault("metrics", ["bits_per_byte"])
    for metric in study["metrics"]:
        name, _, begin = metric.partition("@")
        if begin and (name != "bits_per_byte" or not begin.isdigit() or bin(int(begin)).count("1") != 1):
            raise StudyError(f"{path}: metric {metric}: use bits_per_byte@N, where N is a power of two")
    return study


def parse_duration(text):
    match = re.fullmatch(r"(\d+)(s|m|h)", text)
    if not match or int(match[1]) == 0:
        raise StudyError(f"--slice {text}: use a number with s, m or h, such as 25m")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


class Runner:
    """Trains and evaluates units, and keeps what is finished."""

    def __init__(self, study, folder, work, quire, seconds):
        self.study, self.folder, self.work, self.quire, self.seconds = study, folder, work, quire, seconds
        self.results_file = work / "results.jsonl"

    def command(self, arguments, accept=(0,)):
        done = subprocess.run([self.quire, *arguments], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in accept:
            raise StudyError(f"quire {' '.join(arguments)} ended with exit code {done.returncode}")
        return done

    def prepare(self):
        for arguments in self.study.get("prepare", []):
            output = pathlib.Path(arguments[arguments.index("--output") + 1])
            if not output.exists():
                print(f"preparing {output}", flush=True)
                self.command(["prepare", *arguments])

    def overrides(self, variant, seed):
        return [*self.study.get("set", []), *self.study["variants"][variant], f"run.seed={seed}"]

    def fingerprint(self, variant, seed):
        """Of everything a unit's result follows from: results of another study are not taken for these."""
        config = (self.folder / self.study["config"]).read_text(encoding="utf-8")
        what = [config, self.overrides(variant, seed), self.study.get("evaluate", []), self.study.get("prepare", [])]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]

    def finished(self):
        """Results by (variant, seed). A line that a crash cut short is left out and done again."""
        results = {}
        if not self.results_file.exists():
            return results
        for line in self.results_file.read_text(encoding="utf-8").splitlines():
            try:
                unit = json.loads(line)
            except json.JSONDecodeError:
                continue
            key = (unit["variant"], unit["seed"])
            if key[0] in self.study["variants"] and unit["fingerprint"] == self.fingerprint(*key):
                results[key] = unit
        return results

    def train_slice(self, variant, seed):
        """At most one slice. True when the unit is trained to its end."""
        mark = self.fingerprint(variant, seed)
        run = self.work / "runs" / f"{variant}-{seed}-{mark}"
        limit = f"run.max_wall_time={self.seconds}s"
        if (run / "config.yaml").exists():
            arguments = ["train", "--resume", str(run), limit]
        else:
            arguments = ["train", str(self.folder / self.study["config"]), *self.overrides(variant, seed), limit,
                         "--run-dir", str(run)]
        return self.command(arguments, accept=(0, STOPPED)).returncode == 0, run

    def run_unit(self, variant, seed, only_a_slice):
        """False when the unit was stopped after a slice."""
        print(f"== {self.study['name']}: {variant}, seed {seed}", flush=True)
        while True:
            trained, run = self.train_slice(variant, seed)
            if trained:
                break
            if only_a_slice:
                return False
        positions = ["--by-position"] if any("@" in metric for metric in self.study["metrics"]) else []
        evaluation = self.command(["eval", str(run), "--json", "--documents", *positions,
                                   *self.study.get("evaluate", [])])
        curve = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        unit = {"variant": variant, "seed": seed, "fingerprint": self.fingerprint(variant, seed),
                "evaluation": json.loads(evaluation.stdout),
                "curve": [{"step": line["step"], **line["evaluation"]} for line in curve if "evaluation" in line],
                "tokens_per_second": statistics.median(line["tokens_per_second"] for line in curve if "loss" in line)}
        with open(self.results_file, "a", encoding="utf-8") as file:
            # A torn last line of a crash is ended first.
            if file.tell() > 0 and not self.results_file.read_text(encoding="utf-8").endswith("\n"):
                file.write("\n")
            file.write(json.dumps(unit) + "\n")
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("study", help="JSON file of the study")
    parser.add_argument("--work", required=True, help="folder for corpora, runs, results and the report")
    parser.add_argument("--quire", default="build/native/bin/quire", help="the program (default: %(default)s)")
    parser.add_argument("--slice", default="25m", help="longest time of one training command (default: %(default)s)")
    parser.add_argument("--one-slice", action="store_true", help="end with exit code 75 after a slice that was stopped")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE",
                        help="value of {NAME} in the study; may be repeated")
    parser.add_argument("--report", action="store_true", help="only write the report of what is finished")
    arguments = parser.parse_args()

    folder = pathlib.Path(arguments.study).resolve().parent
    work = pathlib.Path(arguments.work).resolve()
    defined = [text.split("=", 1) for text in arguments.define]
    if any(len(pair) != 2 for pair in defined):
        raise StudyError("--define: use NAME=VALUE")
    study = load_study(arguments.study, {"work": work, "study": folder, **dict(defined)})
    seconds = min(parse_duration(arguments.slice), 25 * 60)
    work.mkdir(parents=True, exist_ok=True)
    runner = Runner(study, folder, work, arguments.quire, seconds)
    if not arguments.report:
        runner.prepare()
        for seed in study["seeds"]:
            for variant in study["variants"]:
                if (variant, seed) in runner.finished():
                    continue
                if not runner.run_unit(variant, seed, arguments.one_slice):
                    return STOPPED
    units = runner.finished()
    if not units:
        raise StudyError(f"{runner.results_file}: nothing is finished yet")
    write_report(study, units, work)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (StudyError, OSError) as error:
        print(f"study: error: {error}", file=sys.stderr)
        sys.exit(2)
