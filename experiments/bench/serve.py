#!/usr/bin/env python3
"""Times `quire serve` beside `quire generate`, many rows beside one, and questions about a book that was read before.

    python3 experiments/bench/serve.py RUN BOOK.txt [--bytes 500000] [--tokens 600] [--rounds 6] [--output FILE]

The server and the program take turns with the same seed, and must write the same text. The book is cut to --bytes. The second
question must have the answer that reading the book again has. Medians; standard library only.
"""

import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.request

PROMPT = "In the beginning"
ROWS = 32


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.address = None
        for line in self.process.stderr:  # until it listens; what it says later is little
            if found := re.search(r"http://[0-9.:]+\d", line):
                self.address = found.group()
                return
        sys.exit(f"serve: error: {' '.join(command)} ended with {self.process.wait()}")

    def ask(self, path, **fields):
        """Returns seconds and the answer."""
        request = urllib.request.Request(self.address + path, json.dumps(fields).encode())
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return time.monotonic() - begin, json.load(answer)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def beside_generate(server, arguments, quire):
    pairs = []
    for _ in range(arguments.rounds):
        done = subprocess.run([quire, "generate", arguments.run, "--prompt", PROMPT, "--length", str(arguments.tokens), "--seed",
                               "7", "--json"], stdout=subprocess.PIPE, text=True, check=True)
        alone = json.loads(done.stdout)
        seconds, answer = server.ask("/v1/completions", prompt=PROMPT, max_tokens=arguments.tokens, temperature=1, seed=7)
        if answer["choices"][0]["text"] != alone["text"]:
            sys.exit("serve: error: the server and quire generate write different texts")
        pairs.append(seconds / alone["seconds"])
    return {"ratio": statistics.median(pairs), "pairs": pairs}


def rows_beside_one(server, arguments):
    pairs = []
    for _ in range(arguments.rounds):
        rates = []
        for prompts in (1, ROWS):
            seconds, answer = server.ask("/v1/completions", prompt=[PROMPT] * prompts, max_tokens=arguments.tokens, temperature=0)
            rates.append(answer["usage"]["completion_tokens"] / seconds)
        pairs.append(rates[1] / rates[0])
    return {"rows": ROWS, "ratio": statistics.median(pairs), "pairs": pairs}


def session(server, book):
    question = {"prompt": "\nWho was that?", "max_tokens": 16, "temperature": 0, "logprobs": 1}
    reading, _ = server.ask("/v1/sessions", session="book", prompt=book)
    first, _ = server.ask("/v1/completions", session="book", **question)
    second, answer = server.ask("/v1/completions", session="book", **question)
    _, again = server.ask("/v1/completions", **{**question, "prompt": book + question["prompt"]})
    if answer["choices"] != again["choices"]:
        sys.exit("serve: error: the answer of the session is not that of the whole text")
    return {"bytes": len(book.encode()), "first_s": reading + first, "second_s": second, "share": second / (reading + first)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("book", type=pathlib.Path)
    parser.add_argument("--bytes", type=int, default=500000)
    parser.add_argument("--tokens", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--quire", default="build/native/bin/quire")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    book = arguments.book.read_bytes()[:arguments.bytes].decode("utf-8", errors="ignore")
    quire = str(arguments.quire)
    server = Server([quire, "serve", arguments.run, "--port", "0", "--rows", str(ROWS)])
    try:
        result = {"date": datetime.date.today().isoformat(), "command": " ".join(["python3", *sys.argv]),
                  "generate": beside_generate(server, arguments, quire), "rows": rows_beside_one(server, arguments),
                  "session": session(server, book)}
    finally:
        server.stop()
    print(f"over HTTP / quire generate: {result['generate']['ratio']:.3f} "
          f"({min(result['generate']['pairs']):.3f} to {max(result['generate']['pairs']):.3f})")
    print(f"tokens per second of {ROWS} rows / one: {result['rows']['ratio']:.1f}")
    print(f"second question / first, {result['session']['bytes']} bytes: {100 * result['session']['share']:.2f} % "
          f"({result['session']['second_s']:.3f} s, {result['session']['first_s']:.1f} s)")
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
