"""A tiny run with a server, for tests of quire serve; standard library alone."""

import json
import pathlib
import random
import re
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

CONFIG = """run: {threads: 1}
data: {corpus: corpus.h5, subsequence: 32, rows: 4}
model: {width: 24, layers: 2, heads: 2, position: {kind: xl}, attention: {softmax: {carry: {kind: hidden, length: 32}}}}
optimizer: {lr: 1e-2}
schedule: {warmup: 2, steps: 30}
evaluate: {every: 0, split: valid}
"""


class ServedRun:
    def __init__(self, quire):
        self.quire = quire
        self._temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._temporary.name)
        self.server = None
        self.log = []
        generator = random.Random(1)
        words = ["".join(generator.choices("abcdefgh", k=generator.randint(2, 6))) for _ in range(30)]
        self.text = lambda count: " ".join(generator.choices(words, k=count))
        self.documents = [self.text(generator.randint(5, 60)) for _ in range(7)]
        self.write("train", [self.text(100) for _ in range(8)])
        self.write("valid", self.documents)
        self.run("prepare", "--split", "train=train", "--split", "valid=valid", "--output", "corpus.h5")
        (self.folder / "run.yaml").write_text(CONFIG, encoding="utf-8")
        self.run("train", "run.yaml", "--run-dir", "run")

    def write(self, folder, texts):
        (self.folder / folder).mkdir()
        for name, text in texts.items() if isinstance(texts, dict) else enumerate(texts):
            (self.folder / folder / f"{name}.txt").write_text(text, encoding="utf-8")

    def run(self, *arguments):
        done = subprocess.run([self.quire, *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments}: {done.stderr}")
        return done.stdout

    def start(self, *options):
        self.server = subprocess.Popen([self.quire, "serve", "run", "--port", "0", *options], cwd=self.folder,
                                       stderr=subprocess.PIPE, text=True)
        line = self.server.stderr.readline()
        found = re.search(r"http://([0-9.]+):(\d+)", line)
        if not found:
            raise RuntimeError(line + self.server.stderr.read())
        self.address = found.group()
        self.port = int(found.group(2))
        self._reader = threading.Thread(target=lambda: self.log.extend(self.server.stderr), daemon=True)
        self._reader.start()

    def ask(self, path, fields=None, timeout=60):
        """Returns the status and the JSON of the answer; fields may be bytes."""
        body = fields if fields is None or isinstance(fields, bytes) else json.dumps(fields).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.address + path, body), timeout=timeout) as answer:
                text, status = answer.read(), answer.status
        except urllib.error.HTTPError as error:
            text, status = error.read(), error.code
        return status, json.loads(text) if text.startswith(b"{") else text.decode()

    def metric(self, name):
        return int(re.search(rf"^quire_{name} (\d+)$", self.ask("/metrics")[1], re.MULTILINE).group(1))

    def process(self):
        """Returns the resident KiB and the number of open descriptors of the server."""
        status = pathlib.Path(f"/proc/{self.server.pid}/status").read_text(encoding="utf-8")
        descriptors = len(list(pathlib.Path(f"/proc/{self.server.pid}/fd").iterdir()))
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)), descriptors

    def stop(self):
        """Returns the exit code."""
        self.server.terminate()
        return self.ended()

    def ended(self):
        """Waits for the end, after which the log is whole. Returns the exit code."""
        code = self.server.wait(timeout=60)
        self._reader.join()
        self.server.stderr.close()
        return code

    def close(self):
        if self.server is not None and self.server.poll() is None:
            self.stop()
        self._temporary.cleanup()
