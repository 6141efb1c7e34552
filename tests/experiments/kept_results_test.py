"""Tests studies and their kept results, with the program: kept_results_test.py FOLDER_OF_PROGRAMS

experiments/X/results/NAME.jsonl are runs of the sweep experiments/X/sweeps/NAME.yaml as that is now; the README beside it
has every row of their tables.
"""

import pathlib
import shutil
import subprocess
import sys
import unittest

import scripts_test
from scripts_test import EXPERIMENTS, ROOT, Scripts

KEPT = sorted(EXPERIMENTS.glob("*/results/*.jsonl"))
# Writes its name and arguments to calls.txt, and makes what --output names.
FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> calls.txt
for last; do :; done
touch "$last"
"""


def sweep(definition, *arguments):
    return subprocess.run([scripts_test.PROGRAMS / "quire", "sweep", definition, *arguments], capture_output=True, text=True,
                          check=False)


def definition_of(kept):
    return kept.parents[1] / "sweeps" / f"{kept.stem}.yaml"


def tables_of(markdown):
    """Returns the rows of each section."""
    sections = [section.partition("\n") for section in markdown.split("\n## ")[1:]]
    return {title: [line for line in body.splitlines() if line.startswith("|")] for title, _, body in sections}


class KeptResults(Scripts):
    def test_readmes_have_their_tables(self):
        self.assertGreater(len(KEPT), 10)
        for kept in KEPT:
            with self.subTest(str(kept)):
                done = sweep(definition_of(kept), "--kept", kept, "--markdown")
                self.assertEqual(done.returncode, 0, done.stderr)
                tables = tables_of(done.stdout)
                for title in ("Runs", "What differs between the configurations"):
                    tables.pop(title, None)
                if "@" not in definition_of(kept).read_text(encoding="utf-8"):  # nothing is asked by position
                    tables.pop("By position in the document")
                readme = (kept.parents[1] / "README.md").read_text(encoding="utf-8").splitlines()
                rows = [row for table in tables.values() for row in table]
                self.assertGreater(len(rows), 2)
                self.assertEqual([row for row in rows if row not in readme], [])

    def test_comments_may_change_and_settings_may_not(self):
        folder = self.folder / "experiments" / "proofs"
        shutil.copytree(EXPERIMENTS / "proofs", folder)
        kept = folder / "results/study.jsonl"
        for name in ("study.yaml", "sweeps/study.yaml"):
            file = folder / name
            text = file.read_text(encoding="utf-8")
            for change, code in ((lambda text: "# Another comment.\n" + text, 0),
                                 (lambda text: text.replace("warmup: 100", "warmup: 99"), 2)):
                self.assertNotEqual(change(text), text)
                file.write_text(change(text), encoding="utf-8")
                done = sweep(definition_of(kept), "--kept", kept)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn("schedule.warmup is 100 there and 99 now" if code else "", done.stderr)
            file.write_text(text, encoding="utf-8")

    def test_the_first_page_has_rows_of_theirs(self):
        rows = {line for kept in KEPT for line in (kept.parents[1] / "README.md").read_text(encoding="utf-8").splitlines()}
        page = (ROOT / "README.md").read_text(encoding="utf-8")
        section = page.split("\n## What a longer past is worth\n")[1].split("\n## ")[0]
        shown = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| variant")]
        self.assertEqual(len(shown), 2)
        self.assertEqual([row for row in shown if row not in rows], [])

    def test_settings_of_all_sweeps_are_valid(self):
        for definition in sorted(EXPERIMENTS.glob("*/sweeps/*.yaml")):
            # The settings of every run are read before the first corpus is looked for.
            done = sweep(definition, "--check")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (3, 1), done.stderr)
            self.assertIn(".h5: no such corpus", done.stderr)


class CorporaScripts(Scripts):
    def calls(self, script, *arguments):
        for program in ("quire", "python3"):
            (self.folder / "bin").mkdir(exist_ok=True)
            (self.folder / "bin" / program).write_text(FAKE, encoding="utf-8")
            (self.folder / "bin" / program).chmod(0o755)
        script(*arguments, environment={"PATH": f"{self.folder}/bin:/usr/bin:/bin"})
        file = self.folder / "calls.txt"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink()
        return text.replace(f"{EXPERIMENTS}/recall/../", "").replace(f"{EXPERIMENTS}/proofs/../", "") \
            .replace(f"{EXPERIMENTS}/", "")

    def test_proofs(self):
        def proofs(*arguments, **others):
            self.run_script("proofs/corpora.sh", *arguments, **others)

        for text in ("proofs", "code", "copying"):
            expected = (EXPERIMENTS / f"proofs/results/corpora-{text}.txt").read_text(encoding="utf-8")
            self.assertEqual(self.calls(proofs, text), expected)
        # A file that is there is kept.
        (self.folder / "spm.model").touch()
        self.assertNotIn("tokenizer train", self.calls(proofs, "code"))
        self.run_script("proofs/corpora.sh", "prose", status=2)

    def test_recall(self):
        def recall(*arguments, **others):
            self.run_script("recall/corpora.sh", *arguments, **others)

        expected = (EXPERIMENTS / "recall/results/corpora.txt").read_text(encoding="utf-8")
        self.assertEqual(self.calls(recall), expected)


class Curves(Scripts):
    def test_curves(self):
        kept, picture = EXPERIMENTS / "recall/results/recipe.jsonl", self.folder / "curves.svg"
        metrics = ["--metric", "recall_accuracy", "--metric", "bits_per_byte"]
        for python in (sys.executable, "/usr/bin/python3"):
            if not pathlib.Path(python).exists():
                continue
            done = subprocess.run([python, "-c", "import matplotlib"], capture_output=True, check=False)
            if done.returncode == 0:
                self.run_script("curves.py", kept, "--output", picture, *metrics, python=python)
                text = picture.read_text(encoding="utf-8")
                for part in ("recall_accuracy", "vq-scaled", "step"):
                    self.assertIn(part, text)
            else:
                self.run_script("curves.py", kept, "--output", picture, python=python, status=1)
                self.assertIn("python3-matplotlib", self.errors)


if __name__ == "__main__":
    scripts_test.PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
