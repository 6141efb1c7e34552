#!/usr/bin/env python3
"""The worked example of trainers/EXCHANGE.md on a tiny model: import it with its tokenizer, evaluate it, train it alone and
with a memory, landmarks or a cache on texts of one's own, compare, export. worked_example_test.py QUIRE GOLDEN_EXCHANGE"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

VOCABULARY = 1024  # rows of the model; the tokenizer has fewer ids


def write_model(golden, folder):
    """Copies the Llama of the golden files with more rows in its vocabulary, and a tokenizer beside it."""
    raw = (golden / "llama/model.safetensors").read_bytes()
    end = 8 + struct.unpack("<Q", raw[:8])[0]
    header, data, place = json.loads(raw[8:end]), b"", 0
    config = json.loads((golden / "llama/config.json").read_text(encoding="utf-8"))
    generator = random.Random(1)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, stop = entry["data_offsets"]
        values = raw[end + begin:end + stop]
        if entry["shape"][0] == config["vocab_size"]:
            count = (VOCABULARY - entry["shape"][0]) * entry["shape"][1]
            values += struct.pack(f"<{count}f", *(generator.gauss(0, 0.05) for _ in range(count)))
            entry["shape"][0] = VOCABULARY
        entry["data_offsets"] = [place, place + len(values)]
        data, place = data + values, place + len(values)
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    for key in ("bos_token_id", "eos_token_id"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": VOCABULARY}), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((golden / "tokenizers/llama3" / name).read_bytes())


class WorkedExample(unittest.TestCase):
    def quire(self, *arguments):
        done = subprocess.run([QUIRE, *map(str, arguments)], capture_output=True, text=True, errors="replace",
                              cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr}")
        return done.stdout

    def bits(self, run, *more):
        return json.loads(self.quire("eval", run, "--split", "valid", "--json", *more))["bits_per_byte"]

    def test_from_import_to_export(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        write_model(GOLDEN, self.folder / "model")
        (self.folder / "texts").mkdir()
        generator = random.Random(2)
        words = ["".join(generator.choices("abcdefgh", k=generator.randint(2, 7))) for _ in range(12)]
        for i in range(8):
            text = " ".join(generator.choice(words) for _ in range(400))
            (self.folder / f"texts/{i}.txt").write_text(text, encoding="utf-8")
        self.quire("import", "model", "--output", "imported")
        self.quire("prepare", "--input", "texts", "--split", "valid=0.3", "--tokenizer", "hf:model", "--output", "books.h5")
        before = self.bits("imported", "--corpus", "books.h5")
        self.quire("generate", "imported", "--prompt", "abc", "--length", 4)
        common = ["imported/config.yaml", "init.from=imported", "data.corpus=books.h5", "evaluate.split=valid", "data.rows=2",
                  "data.subsequence=136", "schedule.steps=20", "schedule.warmup=2", "optimizer.lr=3e-3", "evaluate.every=0"]
        cache = ["model.attention.softmax.window=128", "model.attention.softmax.carry={kind: kv}"]
        variants = {
            "plain": [],
            "cache": cache,
            "memory": [*cache, "model.memory=[{kind: knn, layers: [1], carry: {length: 1024}, top_k: 8}]",
                       'init.missing=["*memory*"]'],
            "landmarks": ["model.layer_overrides=[{layers: [1], attention: {kind: landmark, landmark: {block: 16}}}]"]}
        bits = {}
        for name, settings in variants.items():
            self.quire("train", *common, *settings, "--run-dir", name)
            bits[name] = self.bits(name)
            self.assertLess(bits[name], before, name)
        compared = self.quire("compare", *variants)
        self.assertRegex(compared, "4 runs of 4 configurations")
        # The model that transformers has goes out in its layout, the others under names of quire; all come back as they were.
        for name in variants:
            self.quire("export", name, "--output", f"{name}-out")
            self.quire("import", f"{name}-out", "--output", f"{name}-back")
            exported = sorted(path.name for path in (self.folder / f"{name}-out").iterdir())
            self.assertEqual("quire.json" in exported, name != "plain", exported)
        back = self.bits("plain-back", "--corpus", "books.h5", "data.subsequence=136")
        self.assertAlmostEqual(back, bits["plain"], places=6)
        for name in ("memory", "landmarks", "cache"):
            self.assertEqual(self.bits(f"{name}-back"), bits[name], name)


if __name__ == "__main__":
    QUIRE, GOLDEN = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], "-v"])
