#!/usr/bin/env python3
"""lm-evaluation-harness asks quire serve, and its scores are those of quire itself: multiple choice, rolling perplexity
and generation. QUIRE_LM_EVAL_PYTHON names an interpreter that has the package lm_eval; without one the test is skipped."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from served_run import ServedRun  # pylint: disable=wrong-import-position

QUIRE = pathlib.Path()
PYTHON = None
CHOICE_BYTES = 12
TASKS = {
    "choice": """output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{label}}"
target_delimiter: ""
metric_list: [{metric: acc}]""",
    "rolling": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: bits_per_byte}, {metric: byte_perplexity}]""",
    "generation": """output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{text}}"
generation_kwargs: {until: ["zz"], max_gen_toks: 12, temperature: 0}
metric_list: [{metric: exact_match}]""",
}


def lm_eval_python():
    for python in (os.environ.get("QUIRE_LM_EVAL_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and pathlib.Path(python).exists() and subprocess.run(
                [python, "-c", "import lm_eval.models.api_models, tenacity, aiohttp"], capture_output=True,
                check=False).returncode == 0:
            return python
    return None


class LmEval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_ = ServedRun(QUIRE)
        cls.addClassCleanup(cls.run_.close)
        cls.folder = cls.run_.folder
        cls.items = []
        for document in cls.run_.documents:
            # The harness moves blanks at the end of a question to the choice.
            choices = [(" " + cls.run_.text(9))[:CHOICE_BYTES] for _ in range(3)]
            cls.items.append({"text": document, "question": document[:40].strip() + ":", "choices": choices, "label": 1})
        (cls.folder / "data.jsonl").write_text("".join(json.dumps(item) + "\n" for item in cls.items), encoding="utf-8")
        (cls.folder / "tasks").mkdir()
        for name, lines in TASKS.items():
            (cls.folder / f"tasks/{name}.yaml").write_text(
                f"task: local_{name}\ndataset_path: json\ntest_split: test\n"
                f"dataset_kwargs: {{data_files: {{test: {cls.folder}/data.jsonl}}}}\n{lines}\n", encoding="utf-8")
        cls.run_.start()

    def lm_eval(self, task, batch_size, concurrent):
        out = self.folder / f"out-{task}-{batch_size}-{concurrent}"
        arguments = f"model=quire,base_url={self.run_.address}/v1/completions,max_length=8194,num_concurrent={concurrent}"
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.folder / "hf")}
        done = subprocess.run(
            [PYTHON, "-m", "lm_eval", "run", "--model", "local-completions", "--include_path", "tasks", "--tasks",
             f"local_{task}", "--batch_size", str(batch_size), "--model_args", arguments, "--output_path", out,
             "--log_samples"], cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        results = json.loads(next(out.glob("*/results_*.json")).read_text())["results"][f"local_{task}"]
        samples = next(out.glob(f"*/samples_local_{task}_*.jsonl")).read_text().splitlines()
        return results, sorted((json.loads(line) for line in samples), key=lambda sample: sample["doc_id"])

    def check_rolling(self, batch_size, concurrent):
        results, _ = self.lm_eval("rolling", batch_size, concurrent)
        own = json.loads(self.run_.run("eval", "run", "--split", "valid", "--json"))["harness"]
        self.assertAlmostEqual(results["bits_per_byte,none"], own["bits_per_byte"], delta=1e-6)
        self.assertAlmostEqual(results["byte_perplexity,none"], own["byte_perplexity"], delta=1e-5)

    def test_rolling_perplexity(self):
        self.check_rolling(4, 1)

    def test_rolling_perplexity_of_four_clients(self):
        self.check_rolling(1, 4)

    def test_multiple_choice(self):
        _, samples = self.lm_eval("choice", 4, 4)
        expected = self.losses_of_choices()
        for item, sample in enumerate(samples):
            for choice, response in enumerate(sample["filtered_resps"]):
                self.assertAlmostEqual(float(response[0]), expected[item, choice], delta=1e-6)

    # The log probability of each choice behind its question, from two evaluations of a corpus of these texts: the last
    # targets of a document are the choice and the end, and the end alone.
    def losses_of_choices(self):
        places = {f"{item}_{choice}": (item, choice) for item in range(len(self.items)) for choice in range(3)}
        self.run_.write("pairs", {name: self.items[item]["question"] + self.items[item]["choices"][choice]
                                  for name, (item, choice) in places.items()})
        self.run_.run("prepare", "--split", "pairs=pairs", "--output", "pairs.h5")
        sums = []
        for last in (CHOICE_BYTES + 1, 1):
            report = self.run_.run("eval", "run", "--corpus", "pairs.h5", "--split", "pairs", "--documents", "--last",
                                str(last), "--json")
            documents = json.loads(report)["by_document"]
            sums.append({places[pathlib.Path(one["name"]).stem]: one["nll"] for one in documents})
        return {place: sums[1][place] - nll for place, nll in sums[0].items()}

    def test_generation(self):
        _, samples = self.lm_eval("generation", 1, 4)
        for item, sample in zip(self.items, samples):
            own = json.loads(self.run_.run("generate", "run", "--prompt", item["question"], "--length", "12",
                                        "--temperature", "0", "--json"))["text"]
            self.assertEqual(sample["resps"][0][0], own.split("zz")[0])


if __name__ == "__main__":
    QUIRE = pathlib.Path(sys.argv.pop(1)).resolve()
    PYTHON = lm_eval_python()
    if PYTHON is None:
        print("skipped: no Python with lm_eval[api]; QUIRE_LM_EVAL_PYTHON may name one")
        sys.exit(77)
    unittest.main()
