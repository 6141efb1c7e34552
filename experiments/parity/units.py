"""The training runs of a comparison: a unit is a model with a seed and a precision, and is run once by quire and once
by the port. What is finished is kept.
"""

import hashlib
import importlib
import json
import math
import pathlib
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass

import batches
import common
from compare import ParityError
from contents import configuration_contents, script_contents

try:
    import h5py
    import torch
    import yaml
except ModuleNotFoundError as missing:
    raise ParityError(f"the Python module {missing.name} is missing (PyPI: torch numpy h5py pyyaml; Debian: "
                      "python3-torch python3-h5py python3-yaml)") from missing

VOCABULARY = 258  # bytes, BOS, EOS
# Keys of every file: sizes of the data, how weights are drawn (quire draws them), optimizer and schedule.
COMMON = {"run.name", "run.seed", "data.corpus", "data.split", "data.subsequence", "data.rows",
          "model.initialization.kind", "model.initialization.std", "optimizer.lr", "optimizer.betas",
          "optimizer.weight_decay", "optimizer.clip", "schedule.warmup", "schedule.steps", "schedule.final"}
COMMON_FIXED = {"optimizer.kind": "adamw", "schedule.kind": "cosine"}


@dataclass
class Unit:
    config: pathlib.Path
    model: str
    seed: int
    precision: str
    steps: int
    warmup: int
    change: str = ""  # KEY=VALUE that quire alone gets

    def name(self):
        return f"{self.model}-{self.precision}-{self.steps}-{self.seed}" + (self.change and f"-{self.change}")


def torch_version():
    return torch.__version__


def flattened(tree, path=""):
    """Returns dotted keys; lists count only where they hold sections."""
    entries = {}
    if isinstance(tree, list) and tree and isinstance(tree[0], dict):
        tree = dict(enumerate(tree))
    if not isinstance(tree, dict):
        return {path: tree}
    for key, value in tree.items():
        entries.update(flattened(value, f"{path}.{key}" if path else str(key)))
    return entries


def read_config(unit, port):
    """Returns the configuration. A key that the port does not follow is an error."""
    config = yaml.safe_load(unit.config.read_text(encoding="utf-8"))
    fixed = {**COMMON_FIXED, **port.FIXED}
    for key, value in flattened(config).items():
        if isinstance(value, str) and re.fullmatch(r"[0-9.]+e[-+]?[0-9]+", value):
            raise ParityError(f"{unit.config.name}: {key}: write {value} without an exponent; it is read as a text")
        built_in = fixed.get(key, value)
        if value not in (built_in if isinstance(built_in, tuple) else (built_in,)):
            raise ParityError(f"{unit.config.name}: {key}: the port has {built_in} built in, not {value}")
        if key not in fixed and key not in COMMON and key not in port.TAKEN:
            raise ParityError(f"{unit.config.name}: {key}: the port does not know it")
    config["schedule"].update(steps=unit.steps, warmup=unit.warmup)
    return config


def write_chapters(folder):
    """Writes the Bible, a file a chapter, without the references."""
    program = shutil.which("bible", path="/usr/bin:/usr/games:/bin")
    if program is None:
        raise ParityError("the Bible is missing (apt-get install bible-kjv); --texts FOLDER takes other texts")
    text = subprocess.run([program, "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    chapters = {}
    for line in text.splitlines():
        reference, verse = line.split(" ", 1)
        chapters.setdefault(reference.split(":")[0], []).append(verse)
    if len(chapters) != 1189:
        raise ParityError(f"{program} gave {len(chapters)} chapters instead of 1189")
    folder.mkdir()
    for name, verses in chapters.items():
        (folder / f"{name}.txt").write_text("\n".join(verses) + "\n", encoding="utf-8")


class Runner:
    def __init__(self, quire, work, texts):
        self.quire_program, self.work = quire, pathlib.Path(work).resolve()
        for folder in (self.work, self.work / "units", self.work / "results"):
            folder.mkdir(parents=True, exist_ok=True)
        self.corpus = self.work / "corpus.h5"
        if not self.corpus.exists():
            folder = pathlib.Path(texts) if texts else self.work / "chapters"
            if not texts:
                shutil.rmtree(folder, ignore_errors=True)
                write_chapters(folder)
            self.command("prepare", "--split", f"train={folder}", "--output", self.corpus)
        with h5py.File(self.corpus, "r") as file:
            tokens, ends = file["splits/train/tokens"][:].tolist(), file["splits/train/offsets"][:].tolist()
        self.documents = [tokens[begin:end] for begin, end in zip(ends, ends[1:])]

    def command(self, *arguments):
        words = [str(word) for word in (self.quire_program, *arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ParityError(f"{' '.join(words[:3])} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def version(self):
        return self.command("--version").splitlines()[0]

    def train(self, unit, run, *overrides):
        """Trains in the folder `run` and returns its last checkpoint."""
        shutil.rmtree(run, ignore_errors=True)
        self.command("train", unit.config, f"data.corpus={self.corpus}", f"run.seed={unit.seed}",
                     f"run.precision={unit.precision}", "run.device=cpu", "run.threads=1", "log.every=1",
                     "evaluate.every=0", "checkpoint.every=0", *overrides, "--run-dir", run)
        return sorted((run / "checkpoints").iterdir())[-1]

    def kept(self, unit, side, overrides, make):
        """Returns the result of a unit. One that was made of something else is made again."""
        what = [configuration_contents(unit.config.read_text(encoding="utf-8")), self.documents, overrides]
        if side == "torch":
            files = ("batches.py", "common.py", f"{unit.model}.py")
            what += [script_contents((pathlib.Path(__file__).parent / file).read_text(encoding="utf-8")) for file in files]
        mark = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
        file = self.work / "units" / f"{unit.name()}-{side}.json"
        if file.exists():
            result = json.loads(file.read_text(encoding="utf-8"))
            if result["mark"] == mark:
                return result
        print(f"== {unit.name()} {side}", flush=True)
        result = {"mark": mark, **{k: v for k, v in asdict(unit).items() if k != "config"}, **make()}
        part = file.with_suffix(".partial")
        part.write_text(json.dumps(result), encoding="utf-8")
        part.rename(file)
        return result

    def run_folder(self, unit, kind):
        return self.work / "runs" / f"{unit.name()}-{kind}"

    def quire(self, unit):
        overrides = [f"schedule.steps={unit.steps}", f"schedule.warmup={unit.warmup}", *filter(None, [unit.change])]

        def make():
            run = self.run_folder(unit, "quire")
            self.train(unit, run, *overrides)
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            return {"loss": [line["loss"] for line in lines], "grad_norm": [line["grad_norm"] for line in lines]}

        return self.kept(unit, "quire", overrides, make)

    def initial_tensors(self, unit):
        """Returns what quire draws at first: the checkpoint of a run whose only step changes nothing."""
        overrides = ["schedule.steps=1", "schedule.warmup=0", "optimizer.lr=0"]
        if unit.model == "vq":
            overrides.append("model.attention.vq.codebook.frozen=true")
        return tensors_of(self.train(unit, self.run_folder(unit, "initial"), *overrides))

    def torch(self, unit):
        port = importlib.import_module(unit.model)
        config = read_config(unit, port)

        def make():
            torch.set_num_threads(1)
            torch.set_default_dtype(torch.float64 if unit.precision == "f64" else torch.float32)
            model = port.Model(config, VOCABULARY, unit.seed)
            common.load(model, self.initial_tensors(unit))
            optimizer = common.AdamW(model, config["optimizer"])
            data = config["data"]
            source = batches.Batches(self.documents, data["rows"], data["subsequence"], unit.seed)
            result = {"loss": [], "grad_norm": [], "ended": 0}
            for step in range(1, unit.steps + 1):
                batch = source.step()
                total, loss = model.loss(batch)
                if not math.isfinite(loss):
                    raise ParityError(f"{unit.name()}: the port's loss is {loss} in step {step}")
                total.backward()
                rate = common.learning_rate(step, config["optimizer"]["lr"], config["schedule"])
                result["grad_norm"].append(optimizer.update(rate))
                model.after_step(step)
                result["loss"].append(loss)
                result["ended"] += sum(batch.starts) if step > 1 else 0
            last = sorted((self.run_folder(unit, "quire") / "checkpoints").iterdir())[-1]
            result["weights"] = difference_of_weights(model, tensors_of(last))
            return result

        return self.kept(unit, "torch", [unit.steps, unit.warmup], make)


def tensors_of(checkpoint):
    with h5py.File(checkpoint / "model.h5", "r") as file:
        tensors = {}
        file["tensors"].visititems(lambda name, item: tensors.update({name: torch.from_numpy(item[:])})
                                   if isinstance(item, h5py.Dataset) else None)
    return tensors


def difference_of_weights(model, tensors):
    """Returns the largest difference of a weight, or of a codebook's sums and counts, over the largest weight of its
    tensor."""
    own = {**dict(model.named_parameters()), **{"buffer." + name: x for name, x in model.named_buffers()}}
    return max(((own[name].detach() - x).abs().max() / x.abs().max()).item() for name, x in tensors.items())
