#!/usr/bin/env python3
"""quire serve from its start to its end: a token, requests that are finished after SIGTERM, the examples of its page, and
memory that stays flat. QUIRE_SERVE_REQUESTS sets how many requests are made for that."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from served_run import ServedRun  # pylint: disable=wrong-import-position

QUIRE = pathlib.Path()
REQUESTS = int(os.environ.get("QUIRE_SERVE_REQUESTS", "400"))


class Serving(unittest.TestCase):
    def test_a_token_and_a_drain(self):
        run = ServedRun(QUIRE)
        self.addCleanup(run.close)
        (run.folder / "token").write_text("0123456789abcdef\n", encoding="utf-8")
        run.start("--token-file", "token")
        client = http.client.HTTPConnection("127.0.0.1", run.port, timeout=60)
        self.assertEqual(run.ask("/health")[0], 200)
        self.assertEqual(run.ask("/v1/models")[0], 401)
        fields = json.dumps({"prompt": "abc", "max_tokens": 2000, "temperature": 0})
        self.addCleanup(client.close)
        token = {"Authorization": "Bearer 0123456789abcdef"}
        client.request("POST", "/v1/completions", json.dumps({"prompt": "abc", "max_tokens": 8, "stream": True}), token)
        self.assertTrue(client.getresponse().read().endswith(b"data: [DONE]\n\n"))
        client.request("POST", "/v1/completions", fields, token)
        time.sleep(0.3)
        begin = time.monotonic()
        run.server.terminate()
        answer = client.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertGreater(json.loads(answer.read())["usage"]["completion_tokens"], 10)
        self.assertEqual(run.ended(), 0)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertTrue(any("/v1/completions 200" in line for line in run.log), run.log)

    @unittest.skipUnless(shutil.which("curl"), "curl is missing")
    def test_examples_of_the_page(self):
        run = ServedRun(QUIRE)
        self.addCleanup(run.close)
        run.start("--sessions", "sessions")
        page = (pathlib.Path(__file__).resolve().parents[2] / "trainers/SERVE.md").read_text(encoding="utf-8")
        commands = [line for line in page.splitlines() if line.startswith("    curl ")]
        self.assertGreater(len(commands), 5)
        for command in commands:
            self.assertIn("127.0.0.1:8080", command)
            command = command.replace("127.0.0.1:8080", f"127.0.0.1:{run.port}").replace("curl", "curl -sS --fail-with-body")
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, command + done.stdout + done.stderr)

    def test_memory_stays_flat(self):
        run = ServedRun(QUIRE)
        self.addCleanup(run.close)
        run.start("--rows", "4")
        body = json.dumps({"prompt": "abc", "max_tokens": 2, "logprobs": 2, "echo": True})

        def ask(count):
            client = http.client.HTTPConnection("127.0.0.1", run.port, timeout=60)
            for number in range(count):
                if number % 100 == 99:
                    client.close()  # some connections are new
                client.request("POST", "/v1/completions", body)
                answer = client.getresponse()
                self.assertEqual(answer.status, 200)
                answer.read()
            client.close()

        def ask_together(count):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(ask, [count // 4] * 4))

        ask_together(REQUESTS // 4)
        before = run.process()
        begin = time.monotonic()
        ask_together(REQUESTS)
        time.sleep(0.3)
        after = run.process()
        print(f"{REQUESTS} requests in {time.monotonic() - begin:.1f} s: {before[0]} to {after[0]} KiB, {before[1]} to "
              f"{after[1]} descriptors", file=sys.stderr)
        self.assertLess(after[0] - before[0], 16 << 10)
        self.assertLessEqual(after[1], before[1] + 2)

    def test_what_the_command_line_refuses(self):
        run = ServedRun(QUIRE)
        self.addCleanup(run.close)
        (run.folder / "short").write_text("abc", encoding="utf-8")
        for options in (["--host", "0.0.0.0"], ["--host", "nowhere"], ["--port", "70000"], ["--token-file", "none"],
                        ["--token-file", "short"], ["--rows", "0"]):
            done = subprocess.run([QUIRE, "serve", "run", *options], cwd=run.folder, capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stderr.count("quire: error: "), 1, done.stderr)


if __name__ == "__main__":
    QUIRE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
