#!/usr/bin/env python3
"""Damages files that quire reads, and checks that it ends as promised whatever they hold.

    python3 experiments/faults/bytes.py --work FOLDER [--mutants 100] [--kills 100] [--quire build/native/bin/quire]
        [--seed 1] [--output FILE]

Each kind of file is damaged in many ways, one at a time, and read by the verbs that read it. Then quire prepare is
killed while it replaces a corpus, which has to be the older or the newer one afterwards. What is done is in
FOLDER/state.json: the same command goes on where it was stopped. Exit code 1 when a check has failed. Standard library
only; without the program zstd its files are left out. """

import argparse
import collections
import gzip
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

SECONDS = 60  # that a verb may take
LONGEST_LINE = 1500  # of an error
CONFIG = """run: {name: tiny, seed: 3, threads: 1}
data: {corpus: corpus.h5, split: train, subsequence: 16, rows: 3}
model: {width: 16, layers: 1, heads: 2, mlp: {hidden: 24}, position: {kind: xl}, attention: {softmax: {carry: {kind: hidden, length: 12}}}}
schedule: {warmup: 1, steps: 4}
evaluate: {every: 0, split: valid}
checkpoint: {every: 2}
log: {every: 1}
"""
STEPS = ("00000002", "00000004")


class Bench:
    def __init__(self, arguments):
        self.quire = str(arguments.quire.resolve())
        self.home = arguments.work / "sound"
        self.place = arguments.work / "damaged"

    def run(self, *command):
        begin = time.monotonic()
        try:
            done = subprocess.run([self.quire, *map(str, command)], cwd=self.place, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None, "", time.monotonic() - begin
        return done.returncode, done.stderr.decode(errors="replace"), time.monotonic() - begin

    def prepare(self):
        if (self.home / "done").exists():
            return
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        draw = random.Random(7)
        words = "the quire is a gathering of leaves and a reader with notes reads many books".split()
        text = lambda count: " ".join(draw.choice(words) for _ in range(count)) + "\n"
        documents = [text(40) for _ in range(12)]
        (self.home / "books").mkdir()
        for number, document in enumerate(documents):
            (self.home / f"books/{number}.txt").write_text(document)
        records = "".join(json.dumps({"text": document, "id": number}) + "\n" for number, document in enumerate(documents))
        (self.home / "r.jsonl").write_text(records)
        (self.home / "t.txt.gz").write_bytes(gzip.compress(documents[0].encode() * 20) + gzip.compress(b"more\n"))
        (self.home / "run.yaml").write_text(CONFIG)
        (self.home / "names").write_text("1\n2\n")
        if shutil.which("zstd"):
            (self.home / "t.txt").write_text(documents[0] * 20)
            subprocess.run(["zstd", "-q", "--check", "t.txt", "-o", "t.txt.zst"], cwd=self.home, check=True)
            (self.home / "t.txt").unlink()
        for command in (["prepare", "--input", "books", "--split", "valid=0.2", "--output", "corpus.h5"],
                        ["tokenizer", "train", "--input", "books", "--vocab-size", "290", "--output", "spm.model"],
                        ["train", "run.yaml", "--run-dir", "run"]):
            subprocess.run([self.quire, *command], cwd=self.home, check=True, capture_output=True)
        (self.home / "done").touch()

    def reset(self):
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.home, self.place, symlinks=True)


PREPARE = ("prepare", "--output", "new.h5", "--input")
RESUME = ("train", "--resume", "run", "schedule.steps=5", "data.corpus=corpus.h5")
INSPECT_NEWEST = ("inspect", f"run/checkpoints/step-{STEPS[1]}")


def targets(home):
    """Returns name, file, and of each command the exit codes that are right for some damage."""
    newest = f"run/checkpoints/step-{STEPS[1]}"
    yield "corpus", "corpus.h5", [(("inspect", "corpus.h5"), (3,)), (RESUME, (3,))]
    yield "corpus manifest", "corpus.h5.manifest", [(("inspect", "corpus.h5"), (0, 3)), (RESUME, (0, 3))]
    for path in sorted((home / newest).iterdir()):
        codes = (0, 4) if path.name == "manifest.json" else (4,)
        # The run goes on from the checkpoint before.
        yield f"checkpoint {path.name}", f"{newest}/{path.name}", [(INSPECT_NEWEST, codes), (RESUME, (0,))]
    yield "metrics", "run/metrics.jsonl", [(("inspect", "run"), (0, 3)), (RESUME, (0, 3))]
    yield "run configuration", "run/config.yaml", [(("inspect", "run"), (0, 2, 4)), (RESUME, (0, 2, 3, 4, 7))]
    yield "configuration", "run.yaml", [(("config", "run.yaml", "--check"), (0, 2, 3))]
    yield "records", "r.jsonl", [((*PREPARE, "r.jsonl"), (0, 3)),
                                 ((*PREPARE, "r.jsonl", "--skip-bad-records", "--force", "--allow-duplicates"), (0, 3))]
    yield "list", "names", [((*PREPARE, "books", "--split", "valid=@names"), (0, 3))]
    yield "gzip", "t.txt.gz", [((*PREPARE, "t.txt.gz"), (0, 3)), ((*PREPARE, "t.txt.gz", "--any-bytes", "--force"), (0, 3))]
    if (home / "t.txt.zst").exists():
        yield "zstd", "t.txt.zst", [((*PREPARE, "t.txt.zst"), (0, 3, 8))]
    spm = (*PREPARE, "books", "--tokenizer", "spm:spm.model")
    yield "tokenizer model", "spm.model", [(spm, (0, 2, 3)), ((*spm, "--lossy-tokenizer", "--force"), (0, 2, 3))]


OTHER_VALUES = ("null", "true", "-1", "1.5", "1e999", '"text"', "[]", "{}", "9223372036854775808", "NaN", '"\\ud834"',
                "[" * 100_000, '{"a":' * 100_000)


def mutated(data, draw):
    """Returns another content, and what was done."""
    how = draw.choice(("bits", "bytes", "cut", "zeros", "twice", "gone", "value", "deep", "noise", "empty"))
    at = draw.randrange(len(data))
    length = draw.choice((1, 2, 8, 64, 512))
    if how == "bits":
        changed = bytearray(data)
        for _ in range(draw.choice((1, 1, 1, 8))):
            changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(changed), how
    if how == "cut":
        return data[:at], how
    if how == "zeros":
        return data[:at] + bytes(length) + data[at + length:], how
    if how == "twice":
        return data[:at] + data[at:at + length] + data[at:], how
    if how == "gone":
        return data[:at] + data[at + length:], how
    if how == "deep":
        return draw.choice((b"[", b'{"a":', b"{\n", b"- ")) * 100_000, how
    if how == "noise":
        return draw.randbytes(draw.choice((10, 1000, 100_000))), how
    if how == "empty":
        return b"", how
    values = list(re.finditer(rb'(?<=[:,\[ ])(?:"[^"\n]*"|-?[0-9][0-9.e+-]*|true|false|null)', data))
    if how == "value" and values:
        value = draw.choice(values)
        return data[:value.start()] + draw.choice(OTHER_VALUES).encode() + data[value.end():], how
    return data[:at] + draw.randbytes(length) + data[at + length:], "bytes"


def kill_prepare(bench, kills, seed, found, save):
    """Replaces a corpus by one of two again and again, and kills that at random moments."""
    if found["kills"] >= kills:
        return
    bench.reset()
    checksum = lambda: json.loads((bench.place / "corpus.h5.manifest").read_text())["xxh3"]
    command = lambda which: [bench.quire, "prepare", "--input", f"books/{which}.txt", "--output", "corpus.h5", "--force"]
    known, longest = set(), 0
    for which in (0, 1):
        begin = time.monotonic()
        subprocess.run(command(which), cwd=bench.place, check=True, capture_output=True)
        longest = max(longest, time.monotonic() - begin)
        known.add(checksum())
    while found["kills"] < kills:
        draw = random.Random(f"{seed} kill {found['kills']}")
        running = subprocess.Popen(command(draw.randrange(2)), cwd=bench.place, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0, 1.2 * longest))
        running.kill()
        running.wait()
        left = "finished" if running.returncode == 0 else "killed"
        if (bench.place / "corpus.h5.manifest.partial").exists() and not (bench.place / "corpus.h5.partial").exists():
            left = "killed between the renames"
        code, errors, _ = bench.run("inspect", "corpus.h5")
        if code != 0 or checksum() not in known:
            found["faults"].append({"kill": found["kills"], "left": left, "code": code, "error": errors[-300:]})
        found["ends"][left] = found["ends"].get(left, 0) + 1
        found["kills"] += 1
        save()


def fault_of(code, errors, right):
    """Returns what is wrong with how a verb ended; empty when all is as promised."""
    if code is None:
        return f"no end within {SECONDS} s"
    if code not in right:
        return f"exit code {code}"
    lines = [line for line in errors.splitlines() if line.startswith("quire: error: ")]
    if code == 0:
        return f"{len(lines)} errors and exit code 0" if lines else ""
    if len(lines) != 1:
        return f"{len(lines)} lines for exit code {code}"
    return f"a line of {len(lines[0])} characters" if len(lines[0]) > LONGEST_LINE else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--quire", type=pathlib.Path, default=pathlib.Path("build/native/bin/quire"))
    parser.add_argument("--mutants", type=int, default=100, help="of each kind of file")
    parser.add_argument("--kills", type=int, default=100, help="of quire prepare")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    bench = Bench(arguments)
    bench.prepare()
    file = arguments.work / "state.json"
    state = json.loads(file.read_text()) if file.exists() else {}
    for name, path, commands in targets(bench.home):
        found = state.setdefault(name, {"mutants": 0, "ends": {}, "faults": [], "longest_seconds": 0})
        data = (bench.home / path).read_bytes()
        while found["mutants"] < arguments.mutants:
            draw = random.Random(f"{arguments.seed} {name} {found['mutants']}")
            changed, how = mutated(data, draw)
            if changed.strip() != data.strip():
                for command, right in commands:
                    bench.reset()
                    (bench.place / path).write_bytes(changed)
                    code, errors, seconds = bench.run(*command)
                    ends = collections.Counter(found["ends"])
                    ends[f"{command[0]}: {code}"] += 1
                    found["ends"] = dict(sorted(ends.items()))
                    found["longest_seconds"] = max(found["longest_seconds"], round(seconds, 1))
                    if fault := fault_of(code, errors, right):
                        found["faults"].append({"mutant": found["mutants"], "how": how, "command": " ".join(command),
                                                "fault": fault, "error": errors[-300:]})
                        (arguments.work / f"{name}-{found['mutants']}".replace("/", "_")).write_bytes(changed)
            found["mutants"] += 1
            file.write_text(json.dumps(state))
        print(f"{name}: {found['mutants']} mutants, {found['ends']}, {len(found['faults'])} not as promised", flush=True)
    found = state.setdefault("prepare killed", {"kills": 0, "ends": {}, "faults": []})
    kill_prepare(bench, arguments.kills, arguments.seed, found, lambda: file.write_text(json.dumps(state)))
    print(f"prepare killed: {found['ends']}, {len(found['faults'])} not as promised")
    if arguments.output:
        arguments.output.write_text(json.dumps({"seed": arguments.seed, "files": state}, indent=1) + "\n")
    return 1 if any(found["faults"] for found in state.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
