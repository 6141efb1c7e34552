"""Runs every script of experiments/ at its smallest size: scripts_test.py FOLDER_OF_PROGRAMS Alone|WithTorch

PyTorch is looked for in the interpreter that QUIRE_TORCH_PYTHON names, in this one and in Debian's.
"""

import functools
import importlib.util
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / "experiments"
PROGRAMS = pathlib.Path()
SKIPPED = 77  # what ctest takes for a test that could not run; words in the output can be those of a failure

# The files of a bundle, as they behave without a GPU.
BUNDLE = {"bin/quire": "echo quire 0",
          "tests/test_gpu": "case \"$1\" in --gtest_filter=-*) echo no GPU can be used; exit 0;; esac\n"
                            "echo '[  FAILED  ] CudaTraining.AStep (3 ms)'; echo 1 FAILED TEST; exit 3",
          "tests/test_golden": "true", "tests/test_integration": "true"}

PARTS_OF_CORPORA = ("common", "passages", "proofs", "go_code", "bible", "books")
PARTS_OF_PARITY = ("batches", "common", "compare", "contents", "knn", "units", "vq", "xl")


def torch_python():
    for python in (os.environ.get("QUIRE_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and pathlib.Path(python).exists() and subprocess.run(
                [python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return python
    return None


class Scripts(unittest.TestCase):
    limit = None  # seconds of a script, after which its test is skipped

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "result.json"

    def attention_alone(self, *arguments, **others):
        self.run_script("gpu/attention.py", "--program", PROGRAMS / "bench_attention", "--device", "cpu", "--queries", 40,
                        "--rounds", 1, "--repeats", 1, "--output", self.output, *arguments, **others)
        return self.result()["cases"]

    def search_alone(self, *arguments, **others):
        self.run_script("gpu/search.py", "--program", PROGRAMS / "bench_search", "--device", "cpu", "--entries", 100,
                        "--rounds", 1, "--repeats", 1, "--output", self.output, *arguments, **others)
        return self.result()["entries"]["100"]

    def run_script(self, name, *arguments, python=sys.executable, status=0, environment=None):
        command = [python] if name.endswith(".py") else ["bash"]
        running = subprocess.Popen([*command, EXPERIMENTS / name, *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, cwd=self.folder, start_new_session=self.limit is not None,
                                   env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_CORETYPE": "HASWELL",
                                        **(environment or {})})
        try:
            output, self.errors = running.communicate(timeout=self.limit)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            self.skipTest(f"{name} takes more than {self.limit} s here")
        self.assertEqual(running.returncode, status, output + self.errors)
        return output

    def result(self):
        return json.loads(self.output.read_text(encoding="utf-8"))

    def write_program(self, path, lines):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
        path.chmod(0o755)


class Alone(Scripts):
    def test_each_script_has_a_test(self):
        tested = pathlib.Path(__file__).read_text(encoding="utf-8")
        for other in ("kept_results_test.py", "corpora_test.py"):
            tested += (pathlib.Path(__file__).parent / other).read_text(encoding="utf-8")
        for script in sorted([*EXPERIMENTS.rglob("*.py"), *EXPERIMENTS.rglob("*.sh")]):
            name = script.relative_to(EXPERIMENTS).as_posix()
            # Three models are imported by torch_step.py, which is run with each, what scripts share by these, the sources
            # of corpora by make.py and the parts of the comparison with PyTorch by parity.py.
            if name not in ("bench/torch_delta.py", "bench/torch_drt.py", "bench/torch_landmark.py", "bench/torch_loop.py",
                            "faults/job.py", "faults/namespaces.py", "gpu/record.py",
                            *(f"corpora/{part}.py" for part in PARTS_OF_CORPORA), *(f"parity/{part}.py" for part in PARTS_OF_PARITY)):
                self.assertIn(f'run_script("{name}"', tested, name)

    def test_old_new(self):
        quire = PROGRAMS / "quire"
        self.run_script("bench/old_new.py", quire, quire, EXPERIMENTS / "bench/llama.yaml", "--pairs", 1, "--steps", 1,
                        "--output", self.output)
        self.assertGreater(self.result()["configs"]["llama"]["ratio"], 0)

    def test_two_configurations(self):
        self.run_script("bench/beside.py", EXPERIMENTS / "bench/llama.yaml", EXPERIMENTS / "bench/landmark.yaml", "--quire",
                        PROGRAMS / "quire", "--pairs", 1, "--steps", 1, "--both", "data.rows=1", "--both",
                        "data.subsequence=64", "--of-other", "model.layers=1", "--operation", "attention", "--operation",
                        "block_attention", "--output", self.output)
        self.assertGreater(self.result()["ratio"], 0)
        self.assertGreater(self.result()["operation_ratio"], 0)

    def test_serve(self):
        book = self.folder / "texts/book.txt"
        book.parent.mkdir()
        book.write_text("The cat sat on the mat. " * 40, encoding="utf-8")
        for arguments in (["prepare", "--split", "train=texts", "--output", "corpus.h5"],
                          ["train", EXPERIMENTS / "bench/llama.yaml", "data.corpus=corpus.h5", "data.vocabulary=none",
                           "data.subsequence=64", "data.rows=1", "model.width=8", "model.heads=1", "model.mlp.hidden=8",
                           "model.layers=1", "schedule.steps=1", "schedule.warmup=0", "evaluate.every=0", "--run-dir", "run"]):
            subprocess.run([PROGRAMS / "quire", *arguments], cwd=self.folder, capture_output=True, check=True)
        self.run_script("bench/serve.py", "run", book, "--bytes", 700, "--tokens", 5, "--rounds", 1, "--quire", PROGRAMS / "quire",
                        "--output", self.output)
        self.assertEqual(self.result()["session"]["bytes"], 700)
        self.assertGreater(self.result()["rows"]["ratio"], 0)
        self.run_script("bench/serve.py", "none", book, "--quire", PROGRAMS / "quire", status=1)

    def test_lengths(self):
        self.run_script("bench/length.py", EXPERIMENTS / "landmark/recall.yaml", "--quire", PROGRAMS / "quire", "--work",
                        self.folder / "work", "--lengths", 1000, 3000, "--rounds", 1, "--set", "data.subsequence=64",
                        "--output", self.output)
        self.assertGreater(self.result()["lengths"][1]["ratio"], 0)

    def test_scaling_over_ranks(self):
        arguments = ["--work", self.folder / "work", "--launch", "env QUIRE_TEST_RANKS={ranks}", "--quire",
                     PROGRAMS / "quire_with_ranks", "--tool", PROGRAMS / "quire", "--cores", 2, "--rounds", 1,
                     "--steps", 1, "--link-megabytes", 1, "--set", "model.width=16", "--set", "model.mlp.hidden=16",
                     "--set", "data.subsequence=32", "--output", self.output]
        out = self.run_script("ranks/scaling.py", *arguments, "--ranks", 1, 2)
        self.assertIn("| 2 | 1 | ", out)
        runs = self.result()["runs"]
        self.assertEqual([(run["ranks"], run["threads"]) for run in runs], [(1, 1), (1, 2), (2, 1)])
        self.assertEqual(runs[0]["efficiency"], 1)
        self.assertEqual(runs[0]["exchange_share"], 0)
        for field in ("tokens_per_second", "exchange_ms", "compute_ms", "of_one_rank"):
            self.assertGreater(runs[2][field], 0, field)
        self.assertLess(runs[2]["exchange_ms"], runs[2]["step_ms"])
        for field in ("tokens_per_second", "exchange_ms", "bytes_sent"):
            self.assertGreater(runs[2]["predicted"][field], 0, field)
        # Four rows on five ranks, no place for the number of ranks, and one rank in place of two.
        self.run_script("ranks/scaling.py", *arguments, "--ranks", 5, status=2)
        self.run_script("ranks/scaling.py", *arguments, "--launch", "env", status=2)
        self.run_script("ranks/scaling.py", *arguments, "--ranks", 2, "--launch", "env QUIRE_TEST_RANKS=1 NOT={ranks}", status=1)

    def test_faults(self):
        # The expected message about a lost rank is that of Open MPI; another MPI may have taken its name.
        found = shutil.which("mpirun")
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout if found else ""
        if "Open MPI" not in version or not (PROGRAMS.parent / "lib/libquire_mpi.so").exists():
            self.skipTest("mpirun of Open MPI is missing")
        # A program whose checkpoints cannot be opened once there is a file "damage".
        quire, damage = self.folder / "quire", self.folder / "damage"
        self.write_program(quire, f'[ "$1" = inspect ] && [ -e {damage} ] && exit 4\nexec {PROGRAMS / "quire"} "$@"')
        arguments = ["--work", self.folder / "work", "--quire", quire, "--signals", 0, "--stops", 0, "--steps", 150,
                     "--output", self.output]
        out = self.run_script("faults/faults.py", *arguments, "--kills", 0, "--same", 1)
        self.assertIn("1 faults, 1 runs finished, 0 checks failed", out)
        self.assertEqual(self.result()["parts"]["same"]["finished"][0]["largest_difference"], 0)
        damage.touch()
        out = self.run_script("faults/faults.py", *arguments, "--kills", 1, "--same", 1, status=1)
        self.assertIn("2 faults", out)  # the first one is not repeated
        self.assertRegex(self.result()["parts"]["kills"]["faults"][0]["violations"][0], "step [0-9]+: ")

    def test_damaged_files(self):
        program = self.folder / "quire"
        out = self.run_script("faults/bytes.py", "--work", self.folder / "work", "--quire", PROGRAMS / "quire",
                              "--mutants", 1, "--kills", 2, "--output", self.output)
        self.assertIn("tokenizer model: 1 mutants", out)
        self.assertEqual(self.result()["files"]["prepare killed"]["faults"], [])
        # A program that does not end as promised is reported.
        self.write_program(program, f'test "$1" = inspect && exit 1\nexec {PROGRAMS / "quire"} "$@"')
        out = self.run_script("faults/bytes.py", "--work", self.folder / "other", "--quire", program, "--mutants", 0,
                              "--kills", 1, status=1)
        self.assertIn("1 not as promised", out)

    def test_edges(self):
        self.run_script("faults/edges.py", "--work", self.folder / "work", "--quire", PROGRAMS / "quire", "--times", 1,
                        "--only", "exit,start_up,pipes,output,limits", "--output", self.output)
        self.assertEqual([part["violations"] for part in self.result()["parts"].values()], [[]] * 5)

    def test_faults_of_hosts(self):
        arguments = ["--work", self.folder / "work", "--quire", PROGRAMS / "quire", "--steps", 20, "--rounds", 0]
        self.run_script("faults/hosts.py", *arguments, status=1, environment={"PATH": "/nowhere"})
        self.assertIn("hosts: error: install what is missing: apt-get install iproute2 ", self.errors)
        self.assertEqual(self.errors.count("\n"), 1)

    def test_recall_of_landmarks(self):
        out = self.run_script("landmark/recall.sh", "work", 2, "model.width=8", "model.heads=1", "schedule.steps=1",
                              "schedule.warmup=0", environment={"QUIRE_PROGRAM": str(PROGRAMS / "quire")})
        self.assertIn("\n128 4 ", out)

    def test_needle_of_drt(self):
        quire = PROGRAMS / "quire"
        subprocess.run([quire, "prepare", "--task", "recall", "--set", "length=600", "--split", "train=1", "--split",
                        "held_out=1", "--output", self.folder / "corpus.h5"], capture_output=True, check=True)
        out = self.run_script("needle/needle.sh", "work", "corpus.h5", 2, "model.width=8", "model.heads=1", "data.rows=1",
                              "schedule.steps=1", "schedule.warmup=0",
                              environment={"QUIRE_PROGRAM": str(quire), "LENGTHS": "256", "SAMPLES": "1"})
        self.assertIn("whole answer", out)
        self.assertTrue((self.folder / "work/needle-2.svg").exists())

    def test_lengths_of_tasks(self):
        """Trains one model of the sweep, much smaller, and asks it; what is stored is not asked again."""
        quire, run = PROGRAMS / "quire", functools.partial(subprocess.run, cwd=self.folder, capture_output=True, check=True)
        run([quire, "prepare", "--task", "recall", "--set", "length=2000", "--split", "train=2", "--split", "valid=1",
             "--output", "books.h5"])
        for name in ("spm.h5", "twice.h5"):
            run([quire, "prepare", "--task", "recall", "--set", "length=2000", "--split", "train=2", "--split", "valid=1",
                 "--tokenizer", f"hf:{ROOT / 'tests/golden/exchange/tokenizers/gpt2/tokenizer.json'}", "--output", name])
        run([quire, "sweep", EXPERIMENTS / "needle/sweeps/lengths.yaml", "--check"])
        run([quire, "train", ROOT / "configs/window-small.yaml", "data.corpus=books.h5", "data.split=train",
             "evaluate.split=valid", "model.width=8", "model.heads=1", "model.layers=1", "schedule.steps=1",
             "schedule.warmup=0", "--run-dir", "runs/window-1"])
        arguments = ["runs/window-1", "--filler", "books.h5:valid", "--results", "answers.jsonl", "--lengths", "1k,1200",
                     "--samples", "1,1200=2", "--tasks", "vt,babi_1", "--set", "window:data.subsequence=128"]
        out = self.run_script("needle/lengths.py", *arguments, "--quire", quire)
        self.assertRegex(out, r"\| window \| babi_1 \| \d+ \(\d+-\d+\) \| \d+ \(\d+-\d+\) \|")
        self.assertEqual(self.run_script("needle/lengths.py", *arguments, "--quire", "/nowhere"), out)
        answers = self.folder / "answers.jsonl"
        answers.write_text(answers.read_text(encoding="utf-8")[:-9], encoding="utf-8")  # was cut off as it was written
        self.assertEqual(self.run_script("needle/lengths.py", *arguments, "--quire", quire), out)
        self.assertEqual(self.run_script("needle/lengths.py", *arguments, "--quire", "/nowhere"), out)
        self.run_script("needle/lengths.py", *arguments, "--set", "xl:data.subsequence=64", status=1)
        self.assertIn("lengths: error: --set xl:data.subsequence=64: is not", self.errors)
        for python in (sys.executable, "/usr/bin/python3"):
            if subprocess.run([python, "-c", "import matplotlib"], capture_output=True, check=False).returncode == 0:
                self.run_script("needle/lengths.py", *arguments, "--svg", "lengths.svg", python=python)
                self.assertIn("<svg", (self.folder / "lengths.svg").read_text(encoding="utf-8"))
                return
        self.run_script("needle/lengths.py", *arguments, "--svg", "lengths.svg", status=1)
        self.assertIn("python3-matplotlib", self.errors)

    def test_sweep_of_books(self):
        """Runs all of it with real models, which differ in what the sweep says and in nothing else."""
        generator = random.Random(1)
        (self.folder / "texts").mkdir()
        for i in range(12):
            text = "".join(generator.choice("abcdefgh ") for _ in range(700))
            (self.folder / f"texts/{i}.txt").write_text(text, encoding="utf-8")
        quire = PROGRAMS / "quire"
        subprocess.run([quire, "prepare", "--input", "texts", "--split", "valid=0.5", "--output", "books.h5"],
                       cwd=self.folder, capture_output=True, check=True)
        done = subprocess.run(
            [quire, "sweep", EXPERIMENTS / "books/sweep.yaml", "data.corpus=books.h5", "schedule.steps=2",
             "schedule.warmup=1", "model.width=16", "model.mlp.hidden=16", "data.rows=1", "evaluate.every=2",
             "--run-dir", "runs"], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("9 runs of 3 configurations", done.stdout)
        for variant in ("A window", "B cache", "C memory"):
            self.assertRegex(done.stdout, rf"(?m)^  {variant} +3 +[0-9.]+")
        configs = [(self.folder / f"runs/{variant}-1/config.yaml").read_text(encoding="utf-8").splitlines()
                   for variant in ("window", "cache", "memory")]
        differ = [sorted({line.split(":")[0].strip() for line in set(configs[0]) ^ set(other)}) for other in configs[1:]]
        self.assertIn("window", differ[0])
        self.assertNotIn("memory", differ[0])
        self.assertIn("memory", differ[1])
        self.assertNotIn("window", differ[1])

    def test_search_of_a_memory(self):
        self.run_script("memorizing/speed.py", "--program", PROGRAMS / "bench_knn_search", "--entries", 64, "--output",
                        self.output)
        self.assertGreater(self.result()["runs"][0]["search"]["quire f32"]["least"], 0)

    def test_step_with_a_memory(self):
        self.run_script("memorizing/step.py", "--quire", PROGRAMS / "quire", "--size", 64, "--rounds", 1, "--steps", 1,
                        "--output", self.output)
        self.assertGreater(self.result()["step_ms"]["quire"]["64"]["min"], 0)

    def test_a_layer_of_transformer_vq(self):
        self.run_script("vq/speed.py", "--program", PROGRAMS / "bench_vq", "--rounds", 1, "--repeats", 1, "--tokens",
                        2048, "--form", "vq", "--form", "window", "--output", self.output)
        self.assertEqual(list(self.result()["ratios"]), ["vq over window at 2048"])
        # Without the form that the others are compared with.
        self.run_script("vq/speed.py", "--program", PROGRAMS / "bench_vq", "--rounds", 1, "--repeats", 1, "--tokens",
                        2048, "--form", "window", "--output", self.output)
        self.assertEqual(self.result()["ratios"], {})

    def test_readme_of_proofs(self):
        folder = EXPERIMENTS / "proofs"
        readme = (folder / "README.md").read_text(encoding="utf-8")
        for part in json.loads((folder / "results/past.json").read_text(encoding="utf-8"))["parts"]:
            self.assertRegex(readme, rf"\| {part['from']} to {part['to']} tokens ago.* \| {100 * part['gain']:.1f} % \|")
            if (part["from"], part["to"]) == (128, 8192):
                for row in part["rows"]:
                    self.assertIn(f"| {row['match']} | {row['tokens']:.3f} | {row['right']:.3f} | {row['nats']:.3f} | "
                                  f"{row['share']:.2f} | {100 * row['gain']:.2f} % |", readme)
        for names in (("copies", "copies-study"), ("copies-code",)):
            runs = [json.loads((folder / f"results/{name}.json").read_text(encoding="utf-8"))["rows"] for name in names]
            for rows in zip(*runs):
                where = "none" if rows[0]["short"] is None else rows[0]["short"]
                self.assertIn(f"| {where} | " + " | ".join(f"{row['first']:.3f} | {row['second']:.3f}" for row in rows)
                              + " |", readme)

        cells = {(row["variant"], row["top_k"]): f"{row['bits_per_byte']:.4f}"
                 for row in json.loads((folder / "results/top-k.json").read_text(encoding="utf-8"))["rows"]}
        for (variant, _), cell in cells.items():
            self.assertRegex(readme, rf"(?m)^\| .* \| {cell} \|" if variant == "landmark" else rf"(?m)^\| \d.* \| {cell} \|")

    def test_readme_of_recall(self):
        folder = EXPERIMENTS / "recall"
        readme = (folder / "README.md").read_text(encoding="utf-8")
        right = {(row["fact"], row["last_said"]): f"{100 * row['right']:.1f} %"
                 for row in json.loads((folder / "results/codewords.json").read_text(encoding="utf-8"))["rows"]}
        for fact in ("definitions", "names", "numbers"):
            self.assertIn(f"| {fact} | " + " | ".join(right[fact, ago] for ago in ("0-63", "64-255", "512-1023")) + " |",
                          readme)
        right = {(row["keys"], row["factor"]): f"{100 * row['right']:.1f} %"
                 for row in json.loads((folder / "results/exact-keys.json").read_text(encoding="utf-8"))["rows"]}
        for factor in (1, 1.25, 1.5, 2):
            self.assertIn(f"| {factor} | {right['codewords', factor]} | {right['exact', factor]} |", readme)
        right = {(row["fact"], row["last_said"]): f"{100 * row['right']:.1f} %"
                 for row in json.loads((folder / "results/drt-words.json").read_text(encoding="utf-8"))["rows"]}
        for fact in ("definitions", "names", "numbers"):
            self.assertIn(f"| {fact} | {right[fact, 'word before']} | {right[fact, 'word within']} |", readme)
        for name in ("moba", "landmark"):
            right = {row["fact"]: f"{100 * row['right']:.0f} % of the {row['fact']}"
                     for row in json.loads((folder / f"results/{name}-words.json").read_text(encoding="utf-8"))["rows"]
                     if row["last_said"] == "recalled"}
            self.assertIn(f"{right['names']}, {right['numbers']} and {right['definitions']}", readme.replace("\n", " "))
        for name in ("drt", "moba", "landmark"):
            read = json.loads((folder / f"results/{name}-top-k.json").read_text(encoding="utf-8"))["rows"]
            self.assertIn("| " + " | ".join(f"{100 * row['accuracy']:.1f} %" for row in read) + " |", readme)

    def test_copies(self):
        (self.folder / "texts").mkdir()
        arguments = ["run", "--text", self.folder / "texts", "--quire", PROGRAMS / "quire"]
        self.run_script("proofs/copies.py", *arguments, status=2)
        self.assertRegex(self.errors, "^copies: error: .*texts: there are no .txt files\n$")
        (self.folder / "texts/a.txt").write_text("short", encoding="utf-8")
        self.run_script("proofs/copies.py", *arguments, status=2)
        self.assertIn("no text has 160 characters", self.errors)

    def test_twice(self):
        texts = self.folder / "texts"
        texts.mkdir()
        self.run_script("proofs/twice.py", texts, "--output", self.folder / "out", status=2)
        self.assertRegex(self.errors, "^twice: error: .*texts: there are no .txt files\n$")
        (texts / "a.txt").write_bytes(b"one \xff two")
        self.run_script("proofs/twice.py", texts, "--output", self.folder / "out", status=2)
        self.assertRegex(self.errors, "^twice: error: .*a.txt: is not UTF-8 .*at byte 4.*\n$")
        self.assertFalse((self.folder / "out").exists())
        (texts / "a.txt").write_text("one two three two one four", encoding="utf-8")
        sizes = ["--documents", 2, "--held-out", 1, "--passages", 3]
        for name in ("a", "b"):
            out = self.run_script("proofs/twice.py", texts, *sizes, "--output", self.folder / name)
            self.assertIn("2 and 1 documents of 4 different words", out)
        self.run_script("proofs/twice.py", texts, *sizes, "--output", self.folder / "a", status=2)
        self.assertIn("exists already", self.errors)
        made = sorted(path.relative_to(self.folder / "a") for path in (self.folder / "a").rglob("*.txt"))
        self.assertEqual([str(path) for path in made], ["train/00000.txt", "train/00001.txt", "valid/00000.txt"])
        seen = set()
        for path in made:
            text = (self.folder / "a" / path).read_text(encoding="utf-8")
            self.assertEqual(text, (self.folder / "b" / path).read_text(encoding="utf-8"))
            self.assertNotIn(text, seen)
            seen.add(text)
            for line in text.splitlines():
                words = line.split(" ")
                self.assertEqual(words[:len(words) // 2], words[len(words) // 2:])
                self.assertTrue(8 <= len(words) <= 28 and set(words) <= {"one", "two", "three", "four"})
            self.assertEqual(text.count("\n"), 3)
        self.run_script("proofs/twice.py", texts, *sizes, "--distinct", 2, "--output", self.folder / "two")
        lines = [line for path in made for line in (self.folder / "two" / path).read_text(encoding="utf-8").splitlines()]
        self.assertLessEqual(max(len(set(line.split(" "))) for line in lines), 2)
        self.assertGreater(len({word for line in lines for word in line.split(" ")}), 2)
        for distinct in (1, 5):
            self.run_script("proofs/twice.py", texts, "--distinct", distinct, "--output", self.folder / "x", status=2)
            self.assertIn(f"--distinct {distinct}: use 2 to 4, the number of words", self.errors)
        for name in ("c", "d"):  # without a text
            self.run_script("proofs/twice.py", *sizes, "--output", self.folder / name)
        texts = [(self.folder / name / "train/00001.txt").read_text(encoding="utf-8") for name in ("c", "d")]
        self.assertEqual(texts[0], texts[1])
        self.assertRegex(texts[0], "^[A-Za-z0-9 \n]+$")
        self.run_script("proofs/twice.py", *sizes, "--syllables", "--output", self.folder / "s")
        words = (self.folder / "s/train/00001.txt").read_text(encoding="utf-8").split()
        for word in words:
            self.assertRegex(word, "^([0-9]{4}|([b-df-hj-np-tvzB-DF-HJ-NP-TVZ][lrt]?[aeiou]){1,3}[klmnrst]?)$")
        self.run_script("proofs/twice.py", self.folder / "texts", "--syllables", "--output", self.folder / "x", status=2)
        self.assertIn("--syllables are for words without a text", self.errors)

    def test_layers(self):
        # A program that says of an evaluation how many layers see farther.
        quire = self.folder / "quire"
        self.write_program(quire, 'case "$*" in *overrides*) a=0.5;; *) a=0.25;; esac\n'
                                  'case "$*" in *plain.h5*) echo "{}";; *none.h5*) echo "no corpus" >&2; exit 3;; '
                                  '*) echo "{\\"recall\\": {\\"accuracy\\": $a, \\"chance\\": 0.125}}";; esac')
        arguments = ["run", "--quire", quire, "--length", 99, "--corpus"]
        out = self.run_script("recall/layers.py", *arguments, "task.h5")
        self.assertEqual(out.split("\n")[0].split("guessing: ")[1], "12.5 %)")
        self.assertEqual([line.rsplit(maxsplit=2)[0].strip() for line in out.splitlines()[1:]],
                         ["none", "0", "1", "2", "1, 2", "0, 1, 2"])
        rows = json.loads(self.run_script("recall/layers.py", *arguments, "task.h5", "--layers", 1, "--json"))["rows"]
        self.assertEqual([(row["layers"], row["accuracy"]) for row in rows], [([], 0.25), ([0], 0.5)])
        for corpus, part in (("plain.h5", "nothing is marked as recalled"), ("none.h5", "exit code 3: no corpus")):
            self.run_script("recall/layers.py", *arguments, corpus, status=2)
            self.assertIn(part, self.errors)
        # The table of the README.
        readme = (EXPERIMENTS / "recall/README.md").read_text(encoding="utf-8")
        bases = json.loads((EXPERIMENTS / "recall/results/layers.json").read_text(encoding="utf-8"))["bases"]
        for rows in zip(*(base["rows"] for base in bases)):
            self.assertIn(f"| {', '.join(map(str, rows[0]['layers'])) or 'none'} | "
                          + " | ".join(f"{100 * row['accuracy']:.1f} %" for row in rows) + " |", readme)

    def test_past(self):
        self.run_script("proofs/past.py", self.folder / "none.h5", status=2)
        self.assertIn("past: error: ", self.errors)
        self.run_script("proofs/past.py", "none.h5", "--from", 9, "--to", 8, status=2)
        self.assertIn("use 1 <= --from <= --to", self.errors)
        spec = importlib.util.spec_from_file_location("past", EXPERIMENTS / "proofs/past.py")
        past = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(past)
        # The longest match wins, the newest of its length, neither too near nor too far: against brute force.
        generator = random.Random(1)
        tokens = [generator.randrange(3) for _ in range(300)]
        for nearest, farthest in ((1, 1000), (5, 40)):
            for i, found in enumerate(past.last_matches(tokens, nearest, farthest)):
                expected = (0, False)
                for length in (24, 16, 12, 8, 6, 4, 3, 2):
                    ends = [at for at in range(length, i - nearest + 1)
                            if i >= length and tokens[at - length:at] == tokens[i - length:i]]
                    if ends and i - ends[-1] <= farthest:
                        expected = (length, tokens[ends[-1]] == tokens[i])
                        break
                self.assertEqual(found, expected, i)

    def test_look(self):
        self.run_script("recall/look.py", self.folder / "none.h5", status=2)
        self.assertIn("look: error: ", self.errors)
        self.run_script("recall/look.py", "none.h5", "--bounds", "0,x", status=2)
        self.assertIn("look: error: --bounds 0,x: use numbers", self.errors)
        self.run_script("recall/look.py", "none.h5", "--chunk", 0, status=2)
        self.assertIn("look: error: --chunk 0: at least 1", self.errors)
        spec = importlib.util.spec_from_file_location("look", EXPERIMENTS / "recall/look.py")
        look = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(look)
        text = "Trika Lisira rested. Ramom (5435) slept. The mabrul, that long mill, fell. Trika Lisira sat. Ramom (5435) "
        tokens = range(len(text))
        again = text.index("Lisira sat")
        # The second Lisira is recalled, and its first letter alone was not the most likely one.
        document = (text, [at + 1 for at in tokens], [at != again for at in tokens], [0.5] * len(text),
                    [again <= at < again + 6 for at in tokens])
        sums = look.table([document], [0, 64])
        self.assertEqual({key: tuple(cell) for key, cell in sums.items()}, {
            ("names", "first"): (6, 6, 3.0), ("names", "64-"): (6, 5, 3.0), ("names", "recalled"): (6, 5, 3.0),
            ("numbers", "first"): (4, 4, 2.0), ("numbers", "64-"): (4, 4, 2.0), ("definitions", "first"): (8, 8, 4.0)})
        # The second "Trika" is read until position 80, and the letters of the value are predicted at 81 to 86.
        self.assertEqual(again, 81)
        for chunk, before, within in [(81, 6, 0), (84, 3, 3), (100, 0, 6)]:
            sums = look.table([document], [0, 64], chunk)
            self.assertEqual((sums["names", "word before"][0], sums["names", "word within"][0]), (before, within), chunk)
        # Tokens of several letters, as of a sentence of which the first word is no name.
        pieces = ["Tri", "ka", " Lis", "ira", " sat. Late it was. ", "Tri", "ka", " Lis", "ira", " "]
        ends = [sum(map(len, pieces[:count + 1])) for count in range(len(pieces))]
        document = ("".join(pieces), ends, [True] * 10, [1.0] * 10, [0] * 10)
        self.assertEqual({key: tuple(cell) for key, cell in look.table([document], [0, 5, 9]).items()},
                         {("names", "first"): (2, 2, 2.0), ("names", "5-8"): (2, 2, 2.0)})

    def test_marks_of_parity_do_not_depend_on_comments(self):
        sys.path.insert(0, str(EXPERIMENTS / "parity"))
        from contents import configuration_contents, script_contents
        script = (EXPERIMENTS / "parity/common.py").read_text(encoding="utf-8")
        other = re.sub(r'""".*?"""', '"""Another."""', script, flags=re.DOTALL) + "\n# A comment.\n"
        self.assertEqual(script_contents(other), script_contents(script))
        self.assertNotEqual(script_contents(script.replace("(-steps / width)", "(steps / width)")), script_contents(script))
        try:
            importlib.import_module("yaml")
        except ImportError:
            self.skipTest("PyYAML is missing")
        config = (EXPERIMENTS / "parity/xl.yaml").read_text(encoding="utf-8")
        self.assertEqual(configuration_contents("# Another.\n" + config), configuration_contents(config))
        self.assertNotEqual(configuration_contents(config.replace("rows: 4", "rows: 5")), configuration_contents(config))

    def test_report_of_parity(self):
        out = self.run_script("parity/parity.py", "--report", EXPERIMENTS / "parity/results")
        self.assertNotIn("NO", out)
        readme = (EXPERIMENTS / "parity/README.md").read_text(encoding="utf-8")
        for line in out.splitlines():
            if line.startswith("|"):
                self.assertIn(line, readme)
        # A loss that is off by more than the limit.
        part = json.loads((EXPERIMENTS / "parity/results/f64.json").read_text(encoding="utf-8"))
        part["pairs"][1]["loss_difference"] = 1.1e-8
        (self.folder / "f64.json").write_text(json.dumps(part), encoding="utf-8")
        self.run_script("parity/parity.py", "--report", self.folder, status=1)
        for arguments in ([], ["--work", "w", "--report", "r"], ["--report", "nothing"], ["--work", "w", "--steps", 1]):
            self.run_script("parity/parity.py", *arguments, status=2)
            self.assertRegex(self.errors, "^parity: error: [^\\n]*\\n$")

    def test_cases_of_steps_on_a_gpu(self):
        # Every configuration that the scripts would time is one that quire trains: small, on the CPU, one step.
        small = ["run.device=cpu", "run.precision=f32", "model.layers=2", "model.width=32", "data.vocabulary=100", "data.rows=1",
                 "run.threads=1"]
        units = ["model.attention.vq.value_size=64", "model.head_size=8", "model.attention.vq.codes=16"]
        lengths = {"131072": "64", "65536": "64", "32768": "64", "8192": "64", "[18]": "[1]"}
        lines = []
        for script in ("gpu/bench.py", "gpu/mechanisms.py"):
            self.run_script(script, "--quire", "quire", "--dry-run", "nonsense", status=2)
            lines += self.run_script(script, "--quire", "quire", "--dry-run").splitlines()
        commands = [shlex.split(line) for line in dict.fromkeys(lines) if line.startswith("quire ")]
        self.assertGreater(len(commands), 15)
        for command in commands:
            kept = command[2:command.index("--steps")]
            for long, short in lengths.items():
                kept = [part.replace(long, short) for part in kept]
            own = units if any("value_size" in part for part in kept) else ["model.mlp.hidden=32", "model.heads=4"]
            done = subprocess.run([PROGRAMS / "quire", "bench", *kept, *small, *own, "--steps", "1", "--warmup", "1", "--json"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, f"{shlex.join(command)}\n{done.stderr}")

    def test_mechanisms_beside_a_window(self):
        # Twice the time for as many tokens.
        self.write_program(self.folder / "bin/quire", """case "$*" in *memory*) n=10;; *) n=5;; esac
echo "{\\"backend\\": \\"a GPU\\", \\"step_ms\\": {\\"median\\": $n, \\"min\\": $n}}\"""")
        self.run_script("gpu/mechanisms.py", "knn-8k", "--quire", self.folder / "bin/quire", "--pairs", 2, "--output", self.output)
        self.assertEqual(self.result()["cases"]["knn-8k"]["ratio"], 2)
        self.write_program(self.folder / "bin/quire", "echo quire: error: no GPU >&2; exit 1")
        self.run_script("gpu/mechanisms.py", "knn-8k", "--quire", self.folder / "bin/quire", "--output", self.output, status=1)
        self.assertEqual(self.result()["cases"]["knn-8k"]["step"], {"error": "quire: error: no GPU", "status": 1})

    def test_search_alone(self):
        self.assertGreater(self.search_alone("--no-torch")["quire_ms"], 0)
        self.run_script("gpu/search.py", "--program", PROGRAMS / "bench_search", "--entries", 0, "--output", self.output, status=1)

    def test_resources_of_kernels(self):
        def listing(stack, instruction):
            return ("arch = sm_90\n Function _Zab:\n  REG:99 STACK:%d SHARED:1024 LOCAL:0\n" % stack if stack >= 0 else
                    f"arch = sm_90\n\t\tFunction : _Zab\n   /*0010*/   {instruction} R1, R2 ;\n   /*0020*/   STL [R1], R2 ;\n")
        def run(stack, instruction, status):
            for name, text in (("usage", listing(stack, "")), ("sass", listing(-1, instruction))):
                (self.folder / name).write_text(text, encoding="utf-8")
            self.write_program(self.folder / "path/cuobjdump",
                               f"case $1 in -sass) cat {self.folder}/sass;; *) cat {self.folder}/usage;; esac")
            self.write_program(self.folder / "path/c++filt", f"echo 'void quire::cuda::(anonymous namespace)::a_mma_kernel<64>(x)'")
            path = {"PATH": f"{self.folder / 'path'}:{os.environ['PATH']}"}
            return self.run_script("gpu/resources.py", "library.so", "--check", status=status, environment=path)
        self.assertIn("| a_mma_kernel<64> | sm_90 | 99 | 1024 | 8 | 1 | 0 | 1 |", run(8, "HMMA.16816.F32.BF16", 0))
        run(8, "FFMA", 1)
        run(300, "HMMA.16816.F32.BF16", 1)

    def test_attention_alone(self):
        cases = self.attention_alone("--no-torch")
        self.assertEqual(len(cases), 5)
        for case in cases.values():
            self.assertGreater(case["quire_backward_tflops"], 0)
            self.assertIsNone(case["peer"])

    def test_checks_of_a_bundle(self):
        self.run_script("gpu/check.sh", self.folder, status=2)
        for name, lines in BUNDLE.items():
            self.write_program(self.folder / "bundle" / name, lines)
        (self.folder / "bundle/COMMIT").write_text("abc\n", encoding="utf-8")
        self.write_program(self.folder / "path/nvidia-smi", "echo a GPU, 1.0")
        path = {"PATH": f"{self.folder / 'path'}:{os.environ['PATH']}"}
        for wrong in (["--corpus", "nothing.h5"], ["--corpus"], ["kernel"]):
            self.run_script("gpu/check.sh", "bundle", *wrong, status=2)
            self.assertRegex(self.errors, "^check.sh: error: [^\\n]*\\n$")
        results = self.folder / "results"
        for wrong in (["--seconds", "0"], ["--seconds"]):
            self.run_script("gpu/check.sh", "bundle", *wrong, status=2)
        out = self.run_script("gpu/check.sh", "bundle", "--results", results, "machine", "kernels", "golden", "training",
                              "quickstart", status=1, environment=path)
        for line in ("machine      passed", "kernels      skipped", "golden       passed", "training     status 3",
                     "quickstart   not run: it needs --corpus"):
            self.assertIn(line, out)
        self.assertEqual(sorted(file.name for file in results.iterdir()),
                         [f"check-{stage}.json" for stage in ("golden", "kernels", "machine", "training")])
        training = json.loads((results / "check-training.json").read_text(encoding="utf-8"))
        self.assertEqual({key: training[key] for key in ("gpu", "commit", "outcome", "failed")},
                         {"gpu": "a GPU, 1.0", "commit": "abc", "outcome": "status 3", "failed": ["CudaTraining.AStep"]})
        self.assertEqual(training["end"][-1], "1 FAILED TEST")
        # A share that fails first is not forgotten when the others pass, and no more than four run at once.
        self.write_program(self.folder / "bundle/tests/test_gpu", f"""cd {self.folder}; touch running.$$
ls running.* | wc -l >>counts; case $GTEST_SHARD_INDEX in 5) rm running.$$; exit 4;; esac; sleep 0.2; rm running.$$""")
        out = self.run_script("gpu/check.sh", "bundle", "kernels", status=1, environment=path)
        self.assertIn("kernels      status 4", out)
        counts = [int(line) for line in (self.folder / "counts").read_text(encoding="utf-8").split()]
        self.assertEqual(len(counts), 16)
        self.assertLessEqual(max(counts), 4)
        # A stage that hangs ends in time, with what it had printed, and the others are left out.
        self.write_program(self.folder / "bundle/tests/test_gpu", "echo '[  FAILED  ] Early.Test'; sleep 60")
        out = self.run_script("gpu/check.sh", "bundle", "--results", results, "--seconds", 7, "products", "golden", status=1,
                              environment=path)
        self.assertRegex(out, "products     not done after [67] s(?s:.*)golden       not run: 7 s are over")
        products = json.loads((results / "check-products.json").read_text(encoding="utf-8"))
        self.assertEqual(products["failed"], ["Early.Test"])
        (self.folder / "log").write_text("the end\n", encoding="utf-8")
        self.run_script("gpu/write_result.py", self.output, "bundle", "passed", 7, "command", "log", environment=path)
        self.assertEqual((self.result()["outcome"], self.result()["seconds"], self.result()["end"]), ("passed", 7, ["the end"]))


class WithTorch(Scripts):
    python = None
    limit = 120  # of whatever PyTorch there is: with a BLAS that was not made for this processor it is slow

    def needs_torch(self, *wanted):
        done = subprocess.run([self.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                              check=True)
        version = re.match(r"(\d+)\.(\d+)", done.stdout)
        if version is None or tuple(map(int, version.groups())) < wanted:
            self.skipTest(f"needs PyTorch {wanted[0]}.{wanted[1]} or newer, and this one is {done.stdout.strip()}")

    def needs_modules(self, *modules):
        for module in modules:
            if subprocess.run([self.python, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0:
                self.skipTest(f"{module} cannot be imported by {self.python}")

    def test_compare(self):
        self.run_script("bench/compare.py", "llama", "--quire", PROGRAMS / "quire", "--python", self.python, "--pairs", 1,
                        "--steps", 1, "--openblas-core", "HASWELL", "--output", self.output)
        self.assertGreater(self.result()["models"]["llama"]["peers"][0]["ratio_of_minima"], 0)

    def test_steps_of_torch(self):
        for model in ("gpt2", "transformer-xl", "landmark", "drt", "delta", "kda"):
            out = self.run_script("bench/torch_step.py", model, "--steps", 1, "--warmup", 0, "--rows", 1, "--length", 130,
                                  python=self.python)
            self.assertGreater(json.loads(out)["step_ms"]["min"], 0)
        out = self.run_script("memorizing/torch_step.py", "--memory", 64, "--steps", 1, python=self.python)
        self.assertGreater(json.loads(out)["step_ms"]["min"], 0)

    def test_windows_of_torch(self):
        self.needs_torch(2, 0)  # torch.set_default_device
        # As many parameters as quire's, whose table of tokens has no rows that stand for no token.
        for model, config in (("window-350m", "window-350m"), ("window-124m", "window-124m"), ("cache-350m", "window-350m")):
            settings = ["layers=2", "width=64", "hidden=96", "heads=4", "table=100", "vocabulary=100"]
            cached = model == "cache-350m"
            out = self.run_script("gpu/torch_window.py", model, "--device", "cpu", "--masked", "--rows", 1, "--length", 512,
                                  "--steps", 1, *[part for pair in settings for part in ("--set", pair)], python=self.python)
            done = subprocess.run([PROGRAMS / "quire", "bench", EXPERIMENTS / f"gpu/{config}.yaml", "model.layers=2",
                                   "model.width=64", "model.mlp.hidden=96", "model.heads=4", "data.vocabulary=100",
                                   f"model.position.kind={'t5' if cached else 'rope'}", "--steps", "1", "--warmup", "0", "--json"],
                                  capture_output=True, text=True, check=True)
            self.assertEqual(json.loads(out)["parameters"], json.loads(done.stdout)["parameters"], model)
        self.run_script("gpu/torch_window.py", "cache-350m", "--device", "cpu", "--masked", "--rows", 1, "--length", 64, status=1,
                        python=self.python)

    def test_blocks_of_windows(self):
        """Compares them with those that FlexAttention finds by looking at all pairs."""
        self.needs_torch(2, 5)
        program = """
import torch_window
from torch.nn.attention import flex_attention as flex
for length, window, cache in ((512, 128, 0), (1024, 512, 512), (640, 130, 256), (512, 127, 0), (256, 5000, 256), (512, 0, 0)):
    seen = lambda b, h, a, c: (a + cache - c >= 0) & (a + cache - c <= window)
    found = flex.create_block_mask(seen, None, None, length, length + cache, device="cpu")
    made = torch_window.block_mask(flex, seen, length, window, cache, "cpu")
    for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "full_q_num_blocks"):
        assert getattr(found, name).equal(getattr(made, name)), (length, window, cache, name)
    assert found.seq_lengths == made.seq_lengths
"""
        done = subprocess.run([self.python, "-c", program], cwd=EXPERIMENTS / "gpu", capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(EXPERIMENTS / "gpu")}, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_search_beside_torch(self):
        self.assertGreater(self.search_alone(python=self.python)["torch_ms"], 0)

    def test_attention_beside_torch(self):
        self.needs_torch(2, 5)  # FlexAttention
        cases = self.attention_alone(python=self.python)
        self.assertGreater(cases["causal, size 64, 1024"]["forward_torch_over_quire"], 0)

    def test_a_layer_of_transformer_vq(self):
        self.assertIn("the same", self.run_script("vq/torch_layer.py", "--check", python=self.python))
        self.run_script("vq/speed.py", "--program", PROGRAMS / "bench_vq", "--python", self.python, "--rounds", 1,
                        "--repeats", 1, "--tokens", 2048, "--form", "vq", "--output", self.output)
        self.assertTrue(any("over vq at 2048" in ratio for ratio in self.result()["ratios"]))

    def test_gains_of_the_past(self):
        self.needs_modules("h5py", "numpy")
        losses = self.folder / "losses.h5"
        # Two documents that repeat three tokens; a model that gives every token 0.1.
        subprocess.run([self.python, "-c", "import h5py, sys, numpy\nwith h5py.File(sys.argv[1], 'w') as f:\n"
                        " f['offsets'] = [0, 60, 120]\n f['target'] = [1, 2, 3] * 40\n"
                        " f['nll'] = numpy.full(120, numpy.log(10))", losses], check=True)
        result = json.loads(self.run_script("proofs/past.py", losses, "--json", python=self.python))
        # All but the first five tokens of each, with a share of 0.99, the largest.
        row = next(row for row in result["rows"] if row["match"] == 24)
        self.assertEqual((row["right"], row["share"]), (1, 0.99))
        self.assertAlmostEqual(result["gain"], 110 / 120 * (1 + math.log10(0.01 * 0.1 + 0.99)), places=9)
        out = self.run_script("proofs/past.py", losses, "--from", 50, python=self.python)
        self.assertIn("% of the loss", out)

    def test_copies_of_a_model(self):
        self.needs_modules("h5py")
        generator = random.Random(1)
        (self.folder / "texts").mkdir()
        for i in range(4):
            text = "".join(generator.choice("abcdefgh ") for _ in range(2000))
            (self.folder / f"texts/{i}.txt").write_text(text, encoding="utf-8")
        quire = PROGRAMS / "quire"
        corpus = self.folder / "c.h5"
        for command in (["prepare", "--input", self.folder / "texts", "--split", "valid=0.3", "--output", corpus],
                        ["train", EXPERIMENTS / "recall/recipe.yaml", f"data.corpus={corpus}", "schedule.steps=2",
                         "schedule.warmup=1", "model.width=16", "--run-dir", self.folder / "run"]):
            subprocess.run([quire, *command], check=True, capture_output=True)
        arguments = [self.folder / "run", "--text", self.folder / "texts", "--quire", quire, "--passages", 20]
        out = self.run_script("proofs/copies.py", *arguments, "--characters", 60, "--layers", 1, "--json",
                              python=self.python)
        rows = json.loads(out)["rows"]
        self.assertEqual([row["short"] for row in rows], [None, 0])
        for row in rows:  # an untrained model, for which all bytes are alike
            self.assertAlmostEqual(row["first"], 5.55, delta=0.3)
            self.assertAlmostEqual(row["second"], row["first"], delta=0.1)
        self.run_script("proofs/copies.py", *arguments, "--characters", 10, python=self.python, status=2)
        self.assertIn("copies have no more than 16 tokens", self.errors)
        self.run_script("proofs/copies.py", *arguments, "--tokenizer", "spm:none", python=self.python, status=2)
        self.assertRegex(self.errors, "^copies: error: quire prepare ended with exit code")

    def test_capacity(self):
        self.needs_modules("numpy")
        table = self.run_script("recall/capacity.py", "--sizes", 16, "--trials", 4, "--output", self.output,
                                python=self.python)
        self.assertRegex(table, r"additive +16 x 16 +8 pairs")
        rows = {(row["rule"], row["facts"]): row["known"] for row in self.result()["rows"]}
        # One pair is read back whatever the rule, and far more than a state has room for are not.
        for rule in ("delta", "additive", "infini delta", "infini linear"):
            self.assertEqual(rows[rule, 1], 1)
            self.assertLess(rows[rule, 512], 0.1)
        self.run_script("recall/capacity.py", "--sizes", 0, "--output", self.output, python=self.python, status=2)

    def test_exact_keys(self):
        self.needs_modules("h5py", "numpy")
        quire, recall, spm = PROGRAMS / "quire", EXPERIMENTS / "recall", f"spm:{self.folder / 'spm.model'}"
        task = ["prepare", "--task", "recall", "--set", "length=1024", "--set", "nearest=300", "--set", "farthest=600"]
        vq = ("model.layer_overrides=[{layers: [1, 2], attention: {kind: vq, shifted_share: 0.5, vq: "
              "{window: 128, codes: 16, block: 128, gate: false, activation: none, learned_scale: true, codebook: "
              "{init: kmeans}}}}]")
        for command in ([*task, "--split", "train=40", "--output", self.folder / "bytes.h5"],
                        ["tokenizer", "train", "--input", self.folder / "bytes.h5", "--vocab-size", 400, "--output",
                         self.folder / "spm.model"],
                        [*task, "--tokenizer", spm, "--split", "train=4", "--split", "valid=2", "--output",
                         self.folder / "task.h5"],
                        ["train", recall / "recipe.yaml", f"data.corpus={self.folder / 'task.h5'}", "schedule.steps=3",
                         "schedule.warmup=1", "model.width=16", vq, "--run-dir", self.folder / "run"],
                        ["eval", self.folder / "run", "--losses", self.folder / "losses.h5"]):
            subprocess.run([str(word) for word in (quire, *command)], check=True, capture_output=True)
        # The script reproduces quire's own results, with documents of eight blocks and a cache.
        arguments = [self.folder / "run", self.folder / "losses.h5"]
        rows = json.loads(self.run_script("recall/exact_keys.py", *arguments, "--json", python=self.python))["rows"]
        self.assertEqual([(row["keys"], row["factor"]) for row in rows][3:5], [("codewords", 2), ("exact", 1)])
        self.assertEqual(len({row["nats"] for row in rows}), 8)
        subprocess.run([self.python, "-c", "import h5py, sys\nwith h5py.File(sys.argv[1], 'a') as f: f['nll'][...] += 1",
                        self.folder / "losses.h5"], check=True)
        self.run_script("recall/exact_keys.py", *arguments, python=self.python, status=2)
        self.assertIn("is not what this model gets", self.errors)

    def test_parity(self):
        self.needs_modules("numpy", "h5py", "yaml")
        # Some documents end within the steps, and the others are longer than the memory.
        generator = random.Random(1)
        (self.folder / "texts").mkdir()
        for i in range(60):
            count = 430 if i % 2 == 0 else 20
            words = ["".join(generator.choices("aeilnorst", k=generator.randint(1, 7))) for _ in range(count)]
            (self.folder / f"texts/{i}.txt").write_text(" ".join(words), encoding="utf-8")
        arguments = ["--work", "work", "--quire", PROGRAMS / "quire", "--texts", "texts", "--part", "f64", "--steps",
                     14]
        self.run_script("parity/parity.py", *arguments, python=self.python)
        result = json.loads((self.folder / "work/results/f64.json").read_text(encoding="utf-8"))
        for pair in result["pairs"]:
            self.assertLess(pair["loss_difference"], 1e-8)
            self.assertGreater(pair["documents_ended"], 2)
        # Finished work is not repeated.
        self.assertNotIn("==", self.run_script("parity/parity.py", *arguments, python=self.python))
        # Nothing of a setting that one side has otherwise goes unnoticed.
        arguments[arguments.index("f64")] = "changes"
        self.run_script("parity/parity.py", *arguments, python=self.python)

    def test_steps_on_a_gpu(self):
        if subprocess.run([self.python, "-c", "import torch; torch.cuda.get_device_name()"], capture_output=True,
                          check=False).returncode != 0:
            self.skipTest("no GPU that PyTorch can use")
        self.run_script("gpu/bench.py", "llama", "--quire", PROGRAMS / "quire", "--pairs", 1, "--steps", 1, "--no-compile",
                        "--output", self.output, python=self.python)
        self.assertIn("llama bf16", self.result()["steps"])


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv[1])
    if sys.argv[2] == "WithTorch":
        WithTorch.python = torch_python()
        if WithTorch.python is None:
            print("skipped: PyTorch is missing (apt-get install python3-torch)")
            sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], sys.argv[2], "-v"])
