#!/usr/bin/env python3
"""Reads event files of a run that was stopped and resumed by the tensorboard package; and the example of pandas in
trainers/RUNS.md. Each is skipped where its package is missing."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

QUIRE = pathlib.Path()
ROOT = pathlib.Path(__file__).resolve().parents[2]
READ = """import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
content = lambda tag: HParamsPluginData.FromString(events.SummaryMetadata(tag).plugin_data.content)
session = content("_hparams_/session_start_info").session_start_info
experiment = content("_hparams_/experiment").experiment
text = events.Tensors("configuration")[-1].tensor_proto
print(json.dumps({
    "scalars": {tag: [[one.step, one.value] for one in events.Scalars(tag)] for tag in tags["scalars"]},
    "histograms": {tag: [[one.step, list(one.histogram_value.bucket_limit), list(one.histogram_value.bucket),
                          one.histogram_value.min, one.histogram_value.max, one.histogram_value.num,
                          one.histogram_value.sum] for one in events.Histograms(tag)] for tag in tags["histograms"]},
    "text": text.string_val[0].decode(), "plugin": events.SummaryMetadata("configuration").plugin_data.plugin_name,
    "settings": {key: getattr(value, value.WhichOneof("kind")) for key, value in session.hparams.items()},
    "columns": {info.name: info.type for info in experiment.hparam_infos},
    "metrics": [info.name.tag for info in experiment.metric_infos]}))"""


def python_with(module):
    for python in (os.environ.get("QUIRE_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and pathlib.Path(python).exists() and subprocess.run(
                [python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
            return python
    return None


class EventFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        generator = random.Random(1)
        (cls.folder / "texts").mkdir()
        for i in range(8):
            text = "".join(generator.choices("abcdefgh ", k=400))
            (cls.folder / f"texts/{i}.txt").write_text(text, encoding="utf-8")
        cls.quire("prepare", "--input", "texts", "--split", "valid=0.5", "--output", "corpus.h5")
        (cls.folder / "run.yaml").write_text("""run: {threads: 1}
data: {corpus: corpus.h5, subsequence: 32, rows: 2}
model: {width: 16, layers: 2, heads: 2}
optimizer: {lr: 2e-3}
schedule: {steps: 8, warmup: 1}
evaluate: {every: 4, split: valid}
checkpoint: {every: 4}
log: {every: 1, norms: true, tensorboard: true}
""", encoding="utf-8")
        cls.quire("train", "run.yaml", "--run-dir", "run")

    @classmethod
    def quire(cls, *arguments):
        done = subprocess.run([QUIRE, *arguments], cwd=cls.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"quire {arguments} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def metrics(self):
        text = (self.folder / "run/metrics.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def events(self, python):
        done = subprocess.run([python, "-c", READ, str(self.folder / "run")], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def compare(self, events):
        """Checks every figure of metrics.jsonl, once, and at no other step."""
        expected = {}
        for line in self.metrics():
            for name, value in line.items():
                if name == "evaluation":
                    expected.setdefault("evaluation/loss", []).append([line["step"], value["nll"] / value["tokens"]])
                    for figure in ("token_perplexity", "word_perplexity", "bits_per_byte"):
                        expected.setdefault(f"evaluation/{figure}", []).append([line["step"], value[figure]])
                elif name == "norms":
                    for layer, norms in value.items():
                        for of, norm in norms.items():
                            expected.setdefault(f"norms/{layer}/{of}", []).append([line["step"], norm])
                elif name != "step":
                    expected.setdefault(f"train/{name}", []).append([line["step"], value])
        self.assertEqual(set(events["scalars"]), set(expected))
        for tag, points in expected.items():
            self.assertEqual([step for step, _ in events["scalars"][tag]], [step for step, _ in points], tag)
            for (_, found), (_, value) in zip(events["scalars"][tag], points):
                self.assertAlmostEqual(found, value, delta=1e-6 * abs(value), msg=tag)

    def test_tensorboard_reads_them(self):
        python = python_with("tensorboard.backend.event_processing.event_accumulator")
        if python is None:
            self.skipTest("no Python with tensorboard (PyPI)")
        events = self.events(python)
        self.compare(events)
        self.assertEqual(events["plugin"], "text")
        self.assertIn("    data:\n", events["text"])
        self.assertEqual(events["settings"]["optimizer.lr"], 0.002)
        self.assertIs(events["settings"]["log.norms"], True)
        self.assertEqual(events["settings"]["model.position.kind"], "xl")
        self.assertEqual(set(events["columns"]), set(events["settings"]))
        types = [events["columns"][key] for key in ("model.position.kind", "log.norms", "optimizer.lr")]
        self.assertEqual(types, [1, 2, 3])
        self.assertIn("evaluation/bits_per_byte", events["metrics"])
        steps, documents = [4, 8], 4
        histogram = events["histograms"]["documents/bits_per_byte"]
        self.assertEqual([one[0] for one in histogram], steps)
        for _, limits, counts, least, largest, count, total in histogram:
            self.assertEqual((sum(counts), count, limits[-1]), (documents, documents, largest))
            self.assertEqual(limits, sorted(limits))
            self.assertTrue(least * count <= total <= largest * count)
        self.assertIn("weights/blocks.1.mlp.up.weight", events["histograms"])

        # Readers keep of a run that goes back what the resumed process says.
        self.quire("train", "--resume", "run/checkpoints/step-00000004", "schedule.steps=6")
        events = self.events(python)
        self.compare(events)
        self.assertEqual([step for step, _ in events["scalars"]["train/loss"]], [1, 2, 3, 4, 5, 6])

    def test_norms_of_layers_make_up_that_of_all(self):
        for line in self.metrics():
            if "norms" not in line:
                continue
            self.assertIn("blocks.1", line["norms"])
            total = sum(norms["gradient"] ** 2 for norms in line["norms"].values()) ** 0.5
            self.assertAlmostEqual(total, line["grad_norm"], delta=1e-5 * total)

    def test_the_example_of_pandas_runs(self):
        python = python_with("pandas")
        if python is None:
            self.skipTest("no Python with pandas (Debian: python3-pandas)")
        page = (ROOT / "trainers/RUNS.md").read_text(encoding="utf-8")
        begin = page.index("    import pandas")
        example = [line[4:] for line in page[begin:].split("\n\n", maxsplit=1)[0].splitlines()]
        self.assertEqual(len(example), 3)
        code = "\n".join([*example, "print(len(steps), len(evaluations), steps.loss.iloc[-1])"])
        done = subprocess.run([python, "-c", code.replace("runs/first", "run")], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        steps, evaluations, loss = done.stdout.split()
        lines = self.metrics()
        self.assertEqual(int(steps), sum("loss" in line for line in lines))
        self.assertEqual(int(evaluations), sum("evaluation" in line for line in lines))
        self.assertAlmostEqual(float(loss), [line["loss"] for line in lines if "loss" in line][-1], delta=1e-12)


if __name__ == "__main__":
    QUIRE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
