"""Compares the figures of quire compare with those that this script computes from the files of quire eval --losses:
compare_figures_test.py PROGRAM"""

import json
import math
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

QUIRE = pathlib.Path()
READ = """import h5py, json, sys
with h5py.File(sys.argv[1]) as f:
    print(json.dumps({name: f[name][...].tolist() for name in ("offsets", "position", "nll", "text_end")}
                     | {"names": [name.decode() for name in f["names"][...]]}))"""


def python_with_h5py():
    for python in (os.environ.get("QUIRE_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and pathlib.Path(python).exists() and subprocess.run(
                [python, "-c", "import h5py, numpy"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def philox(key, counter):
    """Returns what Philox4x32-10 draws (Salmon et al. 2011)."""
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def draws(name, resample, count):
    """Returns as many draws with replacement of 0 to count - 1, as trainers/compare/paired_difference.h defines them."""
    scope = 2166136261
    for byte in name.encode():
        scope = (scope ^ byte) * 16777619 & 0xFFFFFFFF
    bits = [value for group in range((count + 3) // 4) for value in philox((1, 0), (group, 0, resample, scope))]
    return [value * count >> 32 for value in bits[:count]]


def bootstrap(variant, baseline, paired):
    documents = len(variant[0])
    means = []
    for resample in range(10000):
        seeds = draws("compare.seeds", resample, len(variant))
        others = seeds if paired else draws("compare.baseline_seeds", resample, len(baseline))
        drawn = draws("compare.documents", resample, documents)
        of_variant = statistics.fmean(variant[s][d] for s in seeds for d in drawn)
        means.append(of_variant - statistics.fmean(baseline[s][d] for s in others for d in drawn))
    means.sort()
    return means[250], means[9749]


def spread(values):
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


class Losses:
    """Holds the losses of a run, document by document."""

    def __init__(self, path, python):
        file = json.loads(subprocess.run([python, "-c", READ, path], check=True, capture_output=True, text=True).stdout)
        ends = [0, *file["text_end"]]
        self.targets = [(position, nll, ends[i + 1] - ends[i])
                        for i, (position, nll) in enumerate(zip(file["position"], file["nll"]))]
        self.documents = [self.targets[begin:end] for begin, end in zip(file["offsets"], file["offsets"][1:])]

    @staticmethod
    def bits(targets):
        return math.fsum(nll for _, nll, _ in targets) / math.log(2) / sum(size for _, _, size in targets)

    def loss(self):
        return math.fsum(nll for _, nll, _ in self.targets) / len(self.targets)


def curve_of(run):
    """Returns (step, tokens, seconds, bits per byte) of the evaluations while training, and what the last step has used."""
    seconds, before, times, curve = 0.0, 0, {}, []
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if "evaluation" not in line:
            seconds += (line["step"] - before) * line["step_ms"] / 1000
            before = line["step"]
            times[before] = (line["tokens"], seconds)
    for line in lines:
        if "evaluation" in line:
            curve.append((line["step"], *times[line["step"]], line["evaluation"]["bits_per_byte"]))
    return curve, times[before]


def on_the_line(points, at):
    """Returns (step, figure) of points (used, step, figure)."""
    for low, high in zip(points, points[1:]):
        if low[0] <= at < high[0]:
            share = (at - low[0]) / (high[0] - low[0])
            return low[1] + share * (high[1] - low[1]), low[2] + share * (high[2] - low[2])
    return points[-1][1:] if at >= points[-1][0] else None


class CompareFigures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = python_with_h5py()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        generator = random.Random(1)
        words = ["".join(generator.choices("abcdefgh", k=generator.randint(2, 7))) for _ in range(60)]
        (cls.folder / "texts").mkdir()
        for i in range(16):
            text = " ".join(generator.choices(words, k=20 + 25 * (i % 6)))
            (cls.folder / f"texts/{i:02}.txt").write_text(text, encoding="utf-8")
        cls.quire("prepare", "--input", "texts", "--split", "valid=0.5", "--output", "corpus.h5")
        (cls.folder / "run.yaml").write_text("""run: {threads: 1}
data: {corpus: corpus.h5, subsequence: 32, rows: 4}
model: {width: 16, layers: 2, heads: 2, mlp: {kind: swiglu, hidden: 24}, position: {kind: rope}, attention: {softmax: {window: 32}}}
optimizer: {lr: 2e-2}
schedule: {kind: constant, warmup: 2, steps: 60}
evaluate: {every: 20, split: valid}
log: {every: 5}
""", encoding="utf-8")
        cls.runs, cls.losses = {}, {}
        for name, window in (("wide", 32), ("narrow", 2)):
            for seed in (1, 2, 3):
                cls.runs[name, seed] = run = cls.folder / f"runs/{name}-{seed}"
                cls.quire("train", "run.yaml", f"run.seed={seed}", f"model.attention.softmax.window={window}",
                          "--run-dir", run)
                losses = cls.folder / f"{name}-{seed}.h5"
                cls.quire("eval", run, "--losses", losses)
                cls.losses[name, seed] = Losses(losses, cls.python)

    @classmethod
    def quire(cls, *arguments):
        done = subprocess.run([QUIRE, *map(str, arguments)], cwd=cls.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def compare(self, names):
        return json.loads(self.quire("compare", *(self.runs[name] for name in names), "--stored", "--json"))

    def assert_near(self, one, other):
        self.assertLess(abs(one - other), 1e-9 * max(1, abs(other)))

    def assert_spread(self, found, values):
        mean, deviation = spread(values)
        self.assert_near(found["mean"], mean)
        self.assert_near(found["deviation"], deviation)

    def test_final_figures(self):
        result = self.compare(self.runs)
        self.assertEqual([group["name"] for group in result["groups"]], ["wide", "narrow"])
        self.assertEqual([run["seed"] for run in result["runs"]], [1, 2, 3, 1, 2, 3])
        for run, losses in zip(result["runs"], self.losses.values()):
            self.assert_near(run["loss"], losses.loss())
            self.assert_near(run["bits_per_byte"], Losses.bits(losses.targets))
        for group in result["groups"]:
            own = [losses for (name, _), losses in self.losses.items() if name == group["name"]]
            self.assert_spread(group["bits_per_byte"], [Losses.bits(losses.targets) for losses in own])
            self.assert_spread(group["loss"], [losses.loss() for losses in own])
            self.assert_spread(group["token_perplexity"], [math.exp(losses.loss()) for losses in own])
        self.assertEqual([key["key"] for key in result["configuration"]], ["model.attention.softmax.window"])

    def check_difference(self, names, seeds, paired):
        result = self.compare(names)["differences"][0]
        self.assertEqual((result["paired_seeds"], result["documents"]), (paired, 8))
        self.assertEqual(result["seeds"], [seed for seed in seeds if seed])
        values = {name: [[Losses.bits(document) for document in self.losses[key].documents] for key in names
                         if key[0] == name and (not paired or key[1] in seeds)] for name in ("wide", "narrow")}
        wide, narrow = values["wide"], values["narrow"]
        documents = [statistics.fmean(column) for column in zip(*narrow)]
        bases = [statistics.fmean(column) for column in zip(*wide)]
        difference = statistics.fmean(documents) - statistics.fmean(bases)
        self.assert_near(result["difference"], difference)
        self.assert_near(result["percent"], 100 * difference / statistics.fmean(bases))
        low, high = bootstrap(narrow, wide, paired)
        self.assert_near(result["interval"][0], low)
        self.assert_near(result["interval"][1], high)
        self.assertTrue(low < difference < high)
        by_seed = [statistics.fmean(n) - statistics.fmean(w) for n, w in zip(narrow, wide)] if paired else []
        self.assertEqual(len(result["by_seed"]), len(by_seed))
        for found, expected in zip(result["by_seed"], by_seed):
            self.assert_near(found, expected)

    def test_differences(self):
        self.check_difference(list(self.runs), (1, 2, 3), True)

    def test_differences_of_some_seeds(self):
        self.check_difference([("wide", 1), ("wide", 2), ("narrow", 2), ("narrow", 3)], (2,), True)

    def test_differences_without_a_common_seed(self):
        self.check_difference([("wide", 1), ("wide", 2), ("narrow", 3)], (3,), False)

    def test_positions(self):
        rows = self.compare(self.runs)["by_position"]
        self.assertEqual([(row["begin"], row["end"]) for row in rows], [(0, 256), (256, 512), (512, 1024)])
        for row in rows:
            for found, name in zip(row["groups"], ("wide", "narrow")):
                self.assert_spread(found, [
                    Losses.bits([target for target in losses.targets if row["begin"] <= target[0] < row["end"]])
                    for (of, _), losses in self.losses.items() if of == name])

    def test_equal_time_and_tokens(self):
        result = self.compare(self.runs)
        curves = {key: curve_of(run) for key, run in self.runs.items()}
        for field, unit, column in (("equal_tokens", "tokens", 0), ("equal_time", "seconds", 1)):
            used = {name: statistics.fmean(last[column] for (of, _), (_, last) in curves.items() if of == name)
                    for name in ("wide", "narrow")}
            self.assert_near(result[field][unit], min(used.values()))
            for found, name in zip(result[field]["groups"], used):
                at = [on_the_line([(point[1 + column], point[0], point[3]) for point in curve], result[field][unit])
                      for (of, _), (curve, _) in curves.items() if of == name]
                # Where a step takes long, a run may have no evaluation before the end of the fastest group.
                if None in at:
                    self.assertIsNone(found["figure"])
                else:
                    self.assert_spread(found["figure"], [figure for _, figure in at])
                steps = [point[0] for point in at if point is not None]
                self.assertEqual(len(found["steps"]), len(steps))
                for one, other in zip(found["steps"], steps):
                    self.assert_near(one, other)

    def test_it_takes_less_than_two_seconds(self):
        # Two thousand documents a run, and six groups.
        runs = []
        for number, run in enumerate(self.runs.values()):
            runs.append(self.folder / f"many/{number}")
            shutil.copytree(run, runs[-1], ignore=shutil.ignore_patterns("checkpoints"))
            config = (run / "config.yaml").read_text(encoding="utf-8")
            (runs[-1] / "config.yaml").write_text(config.replace("lr: 0.02", f"lr: 0.0{number + 1}"), encoding="utf-8")
            path = runs[-1] / "evaluations/valid.latest.json"
            stored = json.loads(path.read_text(encoding="utf-8"))
            stored["documents"] = [{**document, "name": f"{document['name']} {copy}"}
                                   for copy in range(250) for document in stored["documents"]]
            path.write_text(json.dumps(stored, separators=(",", ":")), encoding="utf-8")
        # Time of a processor: other programs on the machine do not count.
        begin = processor_seconds()
        result = json.loads(self.quire("compare", *runs, "--stored", "--json"))
        self.assertLess(processor_seconds() - begin, 2)
        self.assertEqual([difference["documents"] for difference in result["differences"]], [2000] * 5)


if __name__ == "__main__":
    QUIRE = pathlib.Path(sys.argv.pop(1))
    if python_with_h5py() is None:
        print("skipped: no Python with h5py and numpy (Debian: python3-h5py)")
        sys.exit(77)
    unittest.main()
