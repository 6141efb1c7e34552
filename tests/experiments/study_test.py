"""The study driver, with a program in place of quire that stops, goes on and evaluates as that does."""

import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "experiments"))
import study  # noqa: E402
import study_report  # noqa: E402

# Stops after the first slice of every run; what it evaluates follows from the run's name.
FAKE = """#!/usr/bin/env python3
import json, pathlib, sys
a = sys.argv[1:]
log = pathlib.Path(__file__).with_name("calls.txt")
log.open("a").write(" ".join(a) + "\\n")
if a[0] in ("prepare", "tokenizer"):
    pathlib.Path(a[a.index("--output") + 1]).touch()
elif a[0] == "train" and a[1] != "--resume":
    run = pathlib.Path(a[a.index("--run-dir") + 1])
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    sys.exit(75)
elif a[0] == "train":
    run = pathlib.Path(a[2])
    lines = [{"step": 1, "loss": 2.0, "tokens_per_second": 10.0}, {"step": 2, "evaluation": {"bits_per_byte": 1.5}},
             {"step": 4, "evaluation": {"bits_per_byte": 1.0}}, {"step": 8, "evaluation": {"bits_per_byte": 0.5}}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
elif a[0] == "bench":
    time = 40.0 if "a=2" in a else 20.0
    print(json.dumps({"step_ms": {"median": time}, "peak_bytes": 3 << 20, "parameters": 7, "threads": 2}))
elif a[0] == "eval" and "--check" in a:
    sys.exit(2 if "--bad" in a else 0)
elif a[0] == "eval":
    variant, seed, _ = pathlib.Path(a[1]).name.split("-")
    gain = {"xl": 0.25, "other": 0.125}.get(variant, 0.0)
    documents = [{"name": str(i), "bits_per_byte": 2 + i / 8 + int(seed) / 64 - gain} for i in range(4)]
    value = sum(d["bits_per_byte"] for d in documents) / 4
    result = {"bits_per_byte": value, "recall": {"accuracy": 0.5 + gain}, "by_document": documents}
    if "--by-position" in a:  # 3 bits a byte up to 512, 2 behind it, and what the variant gains there
        bins = [(0, 256, 3), (256, 512, 3), (512, 1024, 2 - gain), (1024, 2048, 2 - gain)]
        for of in [result, *documents]:
            of["by_position"] = [{"begin": begin, "end": end, "bytes": 100, "nll": 100 * bits * 0.6931471805599453}
                                 for begin, end, bits in bins]
    print(json.dumps(result))
"""


class StudyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "quire").write_text(FAKE, encoding="utf-8")
        (self.path / "quire").chmod(0o755)
        (self.path / "base.yaml").write_text("run: {name: base}\n", encoding="utf-8")
        self.write({})

    def write(self, more):
        study_of = {"name": "test", "config": "base.yaml", "prepare": [["--output", "{work}/c.h5"]],
                    "set": ["data.corpus={work}/c.h5"], "variants": {"window": ["a=1"], "xl": ["a=2"]},
                    "seeds": [1, 2], "metrics": ["bits_per_byte", "recall.accuracy"], **more}
        (self.path / "study.json").write_text(json.dumps(study_of), encoding="utf-8")

    def run_study(self, *more):
        command = [sys.executable, study.__file__, str(self.path / "study.json"), "--work", str(self.path / "work"),
                   "--quire", str(self.path / "quire"), *more]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def calls(self, tries=False):
        """The calls of the program, without those that only try, or these alone."""
        calls = (self.path / "calls.txt").read_text(encoding="utf-8").splitlines()
        return [call for call in calls if tries == ("--check" in call or "run.max_wall_time=1s" in call)]

    def test_runs_every_unit_in_slices_and_reports(self):
        done = self.run_study("--slice", "2m")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| window | 2 | 2.2109 ± 0.0110 | 0.5000 ± 0.0000 |", done.stdout)
        # Every document differs by the same, so the interval is a point.
        self.assertIn("| xl | bits_per_byte | 4 | -0.2500 | -11.3 % | -0.2500 to -0.2500 | -0.2500, -0.2500 |", done.stdout)
        calls = self.calls()
        self.assertEqual(sum(call.startswith("prepare") for call in calls), 1)
        self.assertEqual(sum("run.max_wall_time=120s" in call for call in calls), 8)  # two slices a unit
        self.assertEqual(sum(call.startswith("eval") for call in calls), 4)
        # Nothing is done twice.
        self.assertEqual(self.run_study().returncode, 0)
        self.assertEqual(self.calls(), calls)

    def test_goes_on_where_it_was_stopped(self):
        self.assertEqual(self.run_study("--one-slice").returncode, 75)
        self.assertEqual(len([call for call in self.calls() if call.startswith("train")]), 1)
        self.assertEqual(self.run_study("--one-slice").returncode, 75)  # the unit is finished, the next one begun
        self.assertIn("train --resume", self.calls()[2])
        self.assertEqual(self.run_study().returncode, 0)
        # A line that a crash cut short is done again, from the trained run.
        results = self.path / "work/results.jsonl"
        results.write_text(results.read_text(encoding="utf-8")[:-40], encoding="utf-8")
        before = len(self.calls())
        self.assertEqual(self.run_study().returncode, 0)
        self.assertEqual([call.split()[0] for call in self.calls()[before:]], ["eval"])
        self.assertEqual(self.run_study().returncode, 0)

    def test_evaluations_are_tried_before_the_first_training(self):
        self.write({"evaluate": ["--bad"]})
        done = self.run_study()
        self.assertEqual(done.returncode, 2)
        self.assertIn("--bad --check ended with exit code 2", done.stderr)
        self.assertEqual([call.split()[0] for call in self.calls()], ["prepare"])
        # Each variant once, not again when the study goes on.
        self.write({"evaluate": ["--split", "x"]})
        self.assertEqual(self.run_study("--one-slice").returncode, 75)
        tries = self.calls(tries=True)[2:]
        self.assertEqual([call.split()[0] for call in tries], ["train", "eval"] * 2)
        self.assertTrue(all("--split x --check" in call for call in tries[1::2]), tries)
        self.assertTrue(all("evaluate.every=0" in call for call in tries[::2]), tries)
        self.assertEqual(self.run_study().returncode, 0)
        self.assertEqual(self.calls(tries=True)[2:], tries)
        self.assertEqual({path.name for path in (self.path / "work").iterdir()} - {"curves.svg"},
                         {"c.h5", "report.md", "results.jsonl", "runs", "tried"})

    def test_other_evaluations_train_nothing(self):
        base = {"base": {"config": "base.yaml"}, "variants": {"window": ["init.from={base}"], "xl": ["a=2"]}}
        self.write(base)
        self.assertEqual(self.run_study().returncode, 0)
        before, tries = len(self.calls()), len(self.calls(tries=True))
        self.write({**base, "evaluate": ["--split", "x"]})
        self.assertEqual(self.run_study().returncode, 0)
        calls = self.calls()[before:]
        self.assertEqual([call.split()[0] for call in calls], ["eval"] * 4)
        self.assertTrue(all("--split x" in call for call in calls), calls)
        # They are tried on what is trained.
        self.assertEqual([call.split()[0] for call in self.calls(tries=True)[tries:]], ["eval"] * 2)
        # Evaluations with the same settings as before count again.
        self.write(base)
        before = len(self.calls())
        self.assertEqual(self.run_study().returncode, 0)
        self.assertEqual(self.calls()[before:], [])

    def test_results_of_another_configuration_are_not_taken(self):
        self.assertEqual(self.run_study().returncode, 0)
        before = len(self.calls())
        (self.path / "base.yaml").write_text("run: {name: other}\n", encoding="utf-8")
        self.assertEqual(self.run_study().returncode, 0)
        self.assertEqual(sum(call.startswith("eval") for call in self.calls()[before:]), 4)

    def test_a_configuration_that_changes_meanwhile_is_noticed(self):
        self.write({"prepare": [], "variants": {"window": ["a=1"]}, "seeds": [1]})
        program = (self.path / "quire").read_text(encoding="utf-8")
        touch = f'pathlib.Path("{self.path}/base.yaml").write_text("run: {{name: other}}\\n")\n'
        (self.path / "quire").write_text(program.replace('elif a[0] == "bench"', 'if a[0] == "train":\n    ' + touch +
                                                         'elif a[0] == "bench"'), encoding="utf-8")
        done = self.run_study()
        self.assertEqual(done.returncode, 2)
        self.assertIn("base.yaml: changed while the study ran", done.stderr)

    def test_variants_are_compared_with_others_as_well(self):
        self.write({"variants": {"window": ["a=1"], "other": ["a=3"], "xl": ["a=2"]}, "beside": {"xl": "other"}})
        done = self.run_study()
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in ("xl | bits_per_byte | 4 | -0.2500 | -11.3 %", "xl, beside other | bits_per_byte | 4 | -0.1250 | -6.0 %"):
            self.assertIn(f"| {row} |", done.stdout)

    def test_positions_are_compared(self):
        self.write({"metrics": ["bits_per_byte", "bits_per_byte@512"]})
        done = self.run_study()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| xl | bits_per_byte@512 | 4 | -0.2500 | -12.5 % | -0.2500 to -0.2500 |", done.stdout)
        self.assertIn("| variant | 0- | 256- | 512- | 1024- |", done.stdout)
        self.assertIn("| xl | 3.0000 | 3.0000 | 1.7500 | 1.7500 |", done.stdout)
        for metric in ("bits_per_byte@500", "recall.accuracy@512", "bits_per_byte@x"):
            self.write({"metrics": [metric]})
            self.assertIn(f"metric {metric}: use bits_per_byte@N", self.run_study().stderr)

    def test_variants_begin_from_the_base_of_their_seed(self):
        self.write({"base": {"config": "base.yaml", "set": ["near=1"]},
                    "variants": {"window": ["init.from={base}"], "xl": ["init.from={base}", "a=2"]}})
        self.assertEqual(self.run_study("--one-slice").returncode, 75)  # of the base
        done = self.run_study()
        self.assertEqual(done.returncode, 0, done.stderr)
        begun = [call for call in self.calls() if call.startswith("train") and "--resume" not in call]
        self.assertEqual([call.split()[-1].rsplit("/", 1)[1].rsplit("-", 1)[0] for call in begun],
                         ["base-1", "window-1", "xl-1", "base-2", "window-2", "xl-2"])
        for base, variants in ((begun[0], begun[1:3]), (begun[3], begun[4:])):
            self.assertIn(" near=1 ", base)
            for call in variants:
                self.assertIn(f" init.from={base.split()[-1]} ", call)
                self.assertNotIn("near=1", call)
        # Bases of other names, too, which only their variants need.
        before = len(self.calls())
        self.write({"bases": {"far_base": {"config": "base.yaml", "set": ["far=1"]}}, "seeds": [1],
                    "variants": {"window": ["a=1"], "xl": ["init.from={far_base}", "a=2"]}})
        self.assertEqual(self.run_study().returncode, 0)
        begun = [call for call in self.calls()[before:] if call.startswith("train") and "far=1" in call]
        self.assertEqual([call.split()[-1].rsplit("/", 1)[1].rsplit("-", 1)[0] for call in begun], ["far_base-1"])
        self.write({"bases": {"window": {"config": "base.yaml"}}, "variants": {"window": ["a=1"]}})
        self.assertIn("window names a variant and a base", self.run_study().stderr)
        self.write({"bases": {"far_base": {"config": "base.yaml", "set": ["init.from={window}"]}},
                    "variants": {"window": ["init.from={far_base}"]}})
        self.assertIn("far_base: {window}: only variants can begin from another run", self.run_study().stderr)
        # Another base makes other units.
        before = len(self.calls())
        self.write({"base": {"config": "base.yaml", "set": ["near=2"]}, "seeds": [1],
                    "variants": {"window": ["init.from={base}"]}})
        self.assertEqual(self.run_study().returncode, 0)
        self.assertEqual(sum(call.startswith("train") and "near=2" in call for call in self.calls()[before:]), 1)
        self.write({"variants": {"window": ["init.from={base}"]}})
        self.assertIn("{base} is the run of the study's base; there is none", self.run_study().stderr)

    def test_variants_begin_from_variants(self):
        base = {"config": "base.yaml", "set": ["near=1"]}
        variants = {"window": ["init.from={base}"], "attached": ["init.from={window}", "a=2"]}
        self.write({"base": base, "seeds": [1], "variants": variants})
        self.assertEqual(self.run_study().returncode, 0)
        begun = [call for call in self.calls() if call.startswith("train") and "--resume" not in call]
        self.assertEqual(len(begun), 3)
        self.assertIn(f" init.from={begun[1].split()[-1]} ", begun[2])
        # The base that they begin from is trained when it does not exist, with results kept; another base makes others.
        shutil.rmtree(begun[1].split()[-1])
        variants["attached"][1] = "a=3"
        for near, trained in (("near=1", ["window-1", "attached-1"]), ("near=2", ["base-1", "window-1", "attached-1"])):
            before = len(self.calls())
            base["set"] = [near]
            self.write({"base": base, "seeds": [1], "variants": variants})
            self.assertEqual(self.run_study().returncode, 0)
            begun = [call.split()[-1].rsplit("/", 1)[1].rsplit("-", 1)[0] for call in self.calls()[before:]
                     if call.startswith("train") and "--resume" not in call]
            self.assertEqual(begun, trained)
        self.write({"variants": {"attached": ["init.from={window}"], "window": []}, "baseline": "window"})
        self.assertIn("attached begins from window, which must stand before it", self.run_study().stderr)
        self.write({"variants": {"base": []}, "baseline": "base"})
        self.assertIn("a variant cannot be called base", self.run_study().stderr)
        for more in ({"set": ["init.from={base}"]}, {"base": {"config": "base.yaml", "set": ["init.from={window}"]}}):
            self.write({"base": base, "variants": {"window": ["init.from={base}"]}, **more})
            self.assertIn("only variants can begin from another run of the study", self.run_study().stderr)

    def test_speed_and_equal_time(self):
        done = self.run_study("--speed", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        # Eight steps of the window take the time of four of the other.
        self.assertIn("| window | 7 | 20.0 | 3 MiB | 8 | 0.5000 ± 0.0000 |", done.stdout)
        self.assertIn("| xl | 7 | 40.0 | 3 MiB | 4 | 1.0000 ± 0.0000 |", done.stdout)
        calls = [call for call in self.calls() if call.startswith("bench")]
        self.assertEqual([("a=1" in call, "a=2" in call) for call in calls], [(True, False), (False, True)] * 3)
        for points, step, value in (([(2, 1.0), (4, 2.0)], 3, 1.5), ([(2, 1.0)], 1, None), ([(2, 1.0)], 3, 1.0)):
            curve = [{"step": at, "loss": of} for at, of in points]
            self.assertEqual(study_report.value_at(curve, "loss", step), value)
        self.assertIn("--speed 0: use at least one round", self.run_study("--speed", "0").stderr)

    def test_kept_results_are_those_of_the_study(self):
        self.write({"name": "of {books}", "base": {"config": "base.yaml"}, "variants": {"xl": ["init.from={base}"]}})
        done = self.run_study("--define", f"books={self.path}/books", "--speed", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        kept = self.path / "kept.jsonl"
        kept.write_bytes((self.path / "work/results.jsonl").read_bytes())
        command = [sys.executable, study.__file__, str(self.path / "study.json"), "--results", str(kept)]
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        tables = [line for line in done.stdout.splitlines() if line.startswith("|")]
        self.assertEqual([line for line in again.stdout.splitlines() if line.startswith("|")], tables)
        # Not of another configuration.
        (self.path / "base.yaml").write_text("run: {name: other}\n", encoding="utf-8")
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((again.returncode, again.stderr),
                         (2, f"study: error: {kept}: nothing is finished yet\n"))
        for more, part in ((["--work", "x"], "give --work FOLDER to run"), (["--results", "none"], "none: no such file")):
            done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(part, done.stderr)

    def test_prepares_with_other_verbs_and_scripts(self):
        self.write({"prepare": [["--output", "{work}/c.h5"], ["tokenizer", "train", "--output", "{work}/spm.model"]]})
        self.assertEqual(self.run_study().returncode, 0)
        self.assertEqual([call.split()[0] for call in self.calls()[:2]], ["prepare", "tokenizer"])
        self.write({"prepare": [["corpora/make.py", "books", "--input", "{work}/none", "--output", "{work}/books"]]})
        done = self.run_study()
        self.assertEqual(done.returncode, 2)
        self.assertIn("corpora/make.py ended with exit code", done.stderr)

    def test_mistakes_are_one_line(self):
        for more, part in (({"sets": []}, "unknown key sets"), ({"baseline": "x"}, "baseline x is no variant"),
                           ({"beside": {"xl": "x"}}, "beside: x is no variant"),
                           ({"seeds": []}, "seeds is missing"), ({"name": "{books}"}, "give --define books=VALUE")):
            self.write(more)
            done = self.run_study()
            self.assertEqual(done.returncode, 2)
            self.assertTrue(done.stderr.startswith("study: error: ") and part in done.stderr, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        self.write({})
        self.assertIn("use a number with s, m or h", self.run_study("--slice", "25").stderr)

    def test_the_interval_covers_the_mean(self):
        differences = [0.1, -0.2, 0.3, 0.4, -0.1, 0.25, 0.05, 0.15]
        low, high = study_report.bootstrap_interval(differences)
        mean = statistics.fmean(differences)
        error = statistics.pstdev(differences) / len(differences) ** 0.5
        self.assertAlmostEqual(low, mean - 1.96 * error, delta=0.03)
        self.assertAlmostEqual(high, mean + 1.96 * error, delta=0.03)
        self.assertEqual(study_report.bootstrap_interval(differences), (low, high))  # the same every time


class KeptResultsTest(unittest.TestCase):
    """experiments/X/results/NAME.jsonl are results of the study experiments/X/NAME.json, as that is now; the README
    beside it has every row of their tables."""

    def test_readmes_have_their_tables(self):
        experiments = pathlib.Path(study.__file__).resolve().parent
        for kept in sorted(experiments.glob("*/results/*.jsonl")):
            with self.subTest(str(kept)):
                definition = kept.parents[1] / f"{kept.stem}.json"
                done = subprocess.run([sys.executable, study.__file__, str(definition), "--results", str(kept)],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                readme = (kept.parents[1] / "README.md").read_text(encoding="utf-8").splitlines()
                rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
                self.assertGreater(len(rows), 2)
                self.assertEqual([row for row in rows if row not in readme], [])

    def test_the_first_page_has_rows_of_theirs(self):
        root = pathlib.Path(study.__file__).resolve().parents[1]
        rows = {line for kept in root.glob("experiments/*/results/*.jsonl")
                for line in (kept.parents[1] / "README.md").read_text(encoding="utf-8").splitlines()}
        page = (root / "README.md").read_text(encoding="utf-8")
        section = page.split("\n## What a longer past is worth\n")[1].split("\n## ")[0]
        shown = [line for line in section.splitlines() if line.startswith("|") and "---" not in line]
        self.assertGreater(len(shown), 2)
        self.assertEqual([row for row in shown if row not in rows], [])


if __name__ == "__main__":
    unittest.main()
