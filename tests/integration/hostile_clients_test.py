#!/usr/bin/env python3
"""What hostile clients send to quire serve: every form gets one status, memory stays bounded, and others are served
meanwhile. QUIRE_SERVE_CONNECTIONS sets how many slow connections are made."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from served_run import ServedRun  # pylint: disable=wrong-import-position

QUIRE = pathlib.Path()
CONNECTIONS = int(os.environ.get("QUIRE_SERVE_CONNECTIONS", "300"))
SECRET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"  # what must not be taken for a request
HOST = b"Host: localhost\r\n"
POST = b"POST /tokenize HTTP/1.1\r\n" + HOST
BODY = b'{"prompt": "a"}'
CHUNKED = b"f\r\n" + BODY + b"\r\n0\r\n\r\n"

# Name, what is sent, and the status; None: the connection is closed without one.
HEADS = [
    ("no request line", b"\r\n\r\nnonsense\r\n\r\n", None),
    ("no version", b"GET /health\r\n\r\n", 400),
    ("HTTP/2", b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n", 505),
    ("HTTP/0.9", b"GET /health HTTP/0.9\r\n" + HOST + b"\r\n", 505),
    ("unknown method", b"BREW /health HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("TRACE", b"TRACE /health HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("CONNECT", b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("GET of a path for POST", b"GET /tokenize HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("no host", b"GET /health HTTP/1.1\r\n\r\n", 400),
    ("two hosts", b"GET /health HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
    ("another name of this machine", b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    ("a page of another site", b"GET /health HTTP/1.1\r\n" + HOST + b"Origin: http://evil.example\r\n\r\n", 403),
    ("absolute form", b"GET http://evil.example/health HTTP/1.1\r\n" + HOST + b"\r\n", 403),
    ("absolute form of this server", b"GET HTTP://LocalHost:80/health HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    ("absolute form without a path", b"GET http://localhost HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("upper case and a dot", b"GET /health HTTP/1.1\r\nHost: LOCALHOST.:80\r\n\r\n", 200),
    ("blanks behind a value", b"GET /health HTTP/1.1\r\nHost: localhost \t\r\n\r\n", 200),
    ("blanks behind a length", POST + b"Content-Length: 15 \t\r\n\r\n" + BODY, 400),
    ("HEAD", b"HEAD /v1/models HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n", 200),
    ("a query", b"GET /health?a=b&c HTTP/1.1\r\n" + HOST + b"\r\n", 200),
    ("no blank before a value", b"GET /health HTTP/1.1\r\nHost:localhost\r\nX:  \r\n\r\n", 200),
    ("an open bracket", b"GET /health HTTP/1.1\r\nHost: [::1\r\n\r\n", 403),
    ("dots for an address", b"GET /health HTTP/1.1\r\nHost: 127.....\r\n\r\n", 403),
    ("a user before the host", b"GET /health HTTP/1.1\r\n" + HOST + b"Origin: http://localhost:80@evil.example\r\n\r\n", 403),
    ("a head behind an empty name", b"GET /health HTTP/1.1\r\n" + HOST + b": x\r\n" + SECRET, 400),
    ("the same, with room for it", b"GET /health HTTP/1.1\r\nA:1\r\nB:1\r\nC:1\r\nHost:localhost\r\n:\r\n" + SECRET, 400),
    ("an empty name first", b"GET /health HTTP/1.1\r\n: x\r\n" + HOST + b"\r\n", 400),
    ("NUL in the path", b"GET /health\0evil HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    ("NUL in a value", b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n", 400),
    ("a folded line", b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n", 400),
    ("line feeds alone", b"GET /health HTTP/1.1\nHost: localhost\n\n", 400),
    ("a line feed alone at the end", b"GET /health HTTP/1.1\r\n" + HOST + b"\n" + SECRET, 400),
    ("a coding of the body", POST + b"Content-Encoding: gzip\r\nContent-Length: 15\r\n\r\n" + BODY, 415),
    ("nothing behind chunks", POST + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED.replace(b"\r\n", b"\n") + SECRET, 200),
    ("dots", b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("dots inside", b"GET /v1/../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("escaped dots", b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("escaped path", b"GET /he%61lth HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("escaped NUL", b"GET /health%00 HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("file scheme", b"GET file:///etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    ("control character in a field", b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\x01b\r\n\r\n", 400),
    ("blank in a name", b"GET /health HTTP/1.1\r\n" + HOST + b"X Y: a\r\n\r\n", 400),
    ("a huge head", b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 100000 + b"\r\n\r\n", 431),
    ("a huge path", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    ("two lengths", POST + b"Content-Length: 15\r\nContent-Length: 0\r\n\r\n" + BODY + SECRET, 400),
    ("equal lengths", POST + b"Content-Length: 15\r\nContent-Length: 15\r\n\r\n" + BODY + SECRET, 400),
    ("lengths in a list", POST + b"Content-Length: 15, 15\r\n\r\n" + BODY + SECRET, 400),
    ("length and chunks", POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED + SECRET, 400),
    ("chunks and length", POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + CHUNKED + SECRET, 400),
    ("chunks twice", POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + CHUNKED, 400),
    ("another encoding", POST + b"Transfer-Encoding: gzip\r\n\r\n" + CHUNKED + SECRET, 501),
    ("a list of encodings", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED + SECRET, 501),
    ("nearly chunked", POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED + SECRET, 501),
    ("a tab before chunked", POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKED + SECRET, 400),
    ("blank before the colon", POST + b"Content-Length : 15\r\n\r\n" + BODY + SECRET, 400),
    ("negative length", POST + b"Content-Length: -1\r\n\r\n" + SECRET, 400),
    ("signed length", POST + b"Content-Length: +15\r\n\r\n" + BODY + SECRET, 400),
    ("hexadecimal length", POST + b"Content-Length: 0xf\r\n\r\n" + BODY + SECRET, 400),
    ("length with letters", POST + b"Content-Length: 15a\r\n\r\n" + BODY + SECRET, 400),
    ("empty length", POST + b"Content-Length:\r\n\r\n" + SECRET, 400),
    ("length beyond 64 bits", POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY, 413),
    ("10 GB", POST + b"Content-Length: 10000000000\r\n\r\n" + BODY, 413),
    ("chunks in HTTP/1.0", b"POST /tokenize HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKED, 400),
    ("signed chunk", POST + b"Transfer-Encoding: chunked\r\n\r\n+f\r\n" + BODY + b"\r\n0\r\n\r\n" + SECRET, 400),
    ("hexadecimal chunk", POST + b"Transfer-Encoding: chunked\r\n\r\n0xf\r\n" + BODY + b"\r\n0\r\n\r\n" + SECRET, 400),
    ("huge chunk", POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + BODY, 413),
    ("chunk without its end", POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n" + BODY + b"\r\n0\r\n\r\n", 400),
    ("chunk without size", POST + b"Transfer-Encoding: chunked\r\n\r\n\r\n" + BODY + b"\r\n0\r\n\r\n", 400),
]

BODIES = [
    b"", b"null", b"[]", b"1", b'"a"', b"{", b"{}", b"nonsense", b"[" * 100000, b'{"prompt":' * 50000, b'{"prompt": "\xff\xfe"}',
    b'{"prompt": "a\x00b"}', b'{"prompt": "a"} x', b'{"prompt": "\\ud800"}',
    *(json.dumps(fields).encode() for fields in [
        {"prompt": None}, {"prompt": 1}, {"prompt": {}}, {"prompt": True}, {"prompt": [True]}, {"prompt": [-1]},
        {"prompt": [258]}, {"prompt": [1.5]}, {"prompt": [1 << 70]}, {"prompt": [["a"]]}, {"prompt": ["a", [1]]},
        {"prompt": [[1], 1]}, {"prompt": [1, "a"]}, {"prompt": [[[1]]]}, {"prompt": ["a"] * 1000},
        {"prompt": "a", "max_tokens": -1}, {"prompt": "a", "max_tokens": 1.5}, {"prompt": "a", "max_tokens": 1 << 62},
        {"prompt": "a", "max_tokens": "1"}, {"prompt": "a", "max_tokens": True}, {"prompt": "a", "temperature": -1},
        {"prompt": "a", "temperature": "hot"}, {"prompt": "a", "top_p": 0}, {"prompt": "a", "top_p": 2},
        {"prompt": "a", "n": 0}, {"prompt": "a", "n": 1 << 40}, {"prompt": "a", "seed": 1.5}, {"prompt": "a", "stop": 1},
        {"prompt": "a", "stop": ""}, {"prompt": "a", "stop": ["a"] * 17}, {"prompt": "a", "stop": "a" * 300},
        {"prompt": "a", "logprobs": 21}, {"prompt": "a", "logprobs": True}, {"prompt": "a", "echo": 1},
        {"prompt": "a", "stream": "yes"}, {"prompt": "a", "stream_options": {"x": 1}}, {"prompt": "a", "unknown": 1},
        {"prompt": "a", "best_of": 2}, {"prompt": "a", "logit_bias": {"1": 2}}, {"prompt": "a", "suffix": "b"},
        {"prompt": "a", "model": 1}, {"prompt": "a", "session": "../a"}, {"prompt": "a", "session": ""},
        {"prompt": "a", "session": "a" * 65}, {"prompt": "a", "session": "/etc/passwd"}, {"prompt": "a", "session": 1},
    ]),
    b'{"prompt": "a", "max_tokens": 1, "max_tokens": 2}', b'{"prompt": "a", "stream": true, "stream_options": {"x": 1, "x": 2}}',
    b'{"prompt": "a", "stream_options": {"include_usage": true}}', b'{"prompt": [18446744073709551616]}',
    b'{"prompt": "a", "temperature": 1e999}', b'{"prompt": "a", "temperature": NaN}',
]


def statuses(data):
    """Returns the statuses that a client of HTTP reads in the bytes. (For a few malformed heads libmicrohttpd 0.9.75 sends
    its own head twice, and closes the connection: the second one is the body of the first, for a client.)"""
    found = []
    while data.startswith(b"HTTP/1.1 "):
        head, _, rest = data.partition(b"\r\n\r\n")
        found.append(int(head[9:12]))
        if b"connection: close" in head.lower():
            break
        data = rest[int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):]
    return found


class HostileClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_ = ServedRun(QUIRE)
        cls.addClassCleanup(cls.run_.close)
        cls.run_.start("--timeout", "2", "--max-body", "1", "--rows", "4", "--queue", "64", "--sessions", "sessions")

    def raw(self, data, wait=5.0):
        """Sends bytes, ends its side, and returns everything that comes back."""
        with socket.create_connection(("127.0.0.1", self.run_.port), timeout=wait) as connection:
            answer = b""
            with contextlib.suppress(OSError):  # the server may close before it has read all
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    answer += piece
            return answer

    def assert_served(self):
        begin = time.monotonic()
        status, answer = self.run_.ask("/v1/completions", {"prompt": "abc", "max_tokens": 4, "temperature": 0})
        self.assertEqual(status, 200, answer)
        self.assertLess(time.monotonic() - begin, 10)

    def assert_soon(self, condition):
        end = time.monotonic() + 30
        while not condition() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(condition())

    def test_heads(self):
        for name, data, status in HEADS:
            with self.subTest(name):
                answer = self.raw(data)
                self.assertEqual(statuses(answer), [status] if status else [], answer)
                self.assertNotIn(b"quire_rows", answer)
                self.assertNotIn(b"root:", answer)
        self.assert_soon(lambda: any("a request that cannot be read: 431" in line for line in self.run_.log))
        refusals = [line for line in self.run_.log if "/etc/passwd 404 " in line]
        self.assertTrue(refusals)
        self.assertFalse(any("connection lost" in line for line in refusals), refusals)  # the server ended them
        self.assert_served()

    def test_bodies(self):
        for body in BODIES:
            with self.subTest(body[:60]):
                status, answer = self.run_.ask("/v1/completions", body)
                self.assertEqual(status, 400, answer)
                self.assertGreater(len(answer["error"]["message"]), 10)
        self.assertEqual(self.run_.ask("/v1/completions", {"prompt": "a", "model": "other"})[0], 404)
        self.assertEqual(self.run_.ask("/v1/completions", {"prompt": "a", "session": "none"})[0], 404)
        for tokens in ([258], [-1], [[1]], [1.5], "a", None):
            status, answer = self.run_.ask("/detokenize", {"tokens": tokens})
            self.assertEqual(status, 400, tokens)
            self.assertTrue(answer["error"]["message"].startswith("tokens"), answer)
        self.assertEqual(self.run_.ask("/detokenize", b'{"tokens": [-0]}')[0], 200)
        self.assertEqual(self.run_.ask("/tokenize", {"prompt": "a", "add_special_token": False})[0], 400)
        self.assertEqual(self.run_.ask("/tokenize", {"prompt": "a", "model": "other"})[0], 404)
        self.assertEqual(self.run_.ask("/v1/sessions", {"session": "..", "prompt": "a"})[0], 400)
        self.assert_served()

    def test_bodies_that_grow(self):
        before, _ = self.run_.process()
        chunk = b"10000\r\n" + b"a" * 65536 + b"\r\n"
        with socket.create_connection(("127.0.0.1", self.run_.port), timeout=5) as connection:
            connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            answer = b""
            try:
                for _ in range(160):  # of the 10 GB that would follow
                    connection.sendall(chunk)
            except OSError:
                pass
            try:
                answer = connection.recv(65536)
            except OSError:
                pass
        self.assertIn(statuses(answer), ([413], []))
        self.assertGreater(self.run_.metric(r'responses_total\{status="413"\}'), 0)
        self.assertLess(self.run_.process()[0] - before, 32 << 10)

    def test_slow_senders(self):
        slow = [b"GET /hea", POST + b"Content-Length: 15\r\n\r\n{", POST + b"Transfer-Encoding: chunked\r\n\r\nf\r\n{",
                POST + b"Content-Length: 15\r\n\r\n{"]
        connections = [socket.create_connection(("127.0.0.1", self.run_.port), timeout=10) for _ in slow]
        answers = {}
        end = time.monotonic() + 8
        for connection, data in zip(connections, slow):
            connection.sendall(data)
            connection.settimeout(0.3)
        self.assert_served()
        # A byte now and then does not keep a connection open.
        while len(answers) < len(slow) and time.monotonic() < end:
            for number, connection in enumerate(connections):
                try:
                    if number < len(slow) - 1:  # the last one is silent
                        connection.sendall(b" ")
                    answers.setdefault(number, connection.recv(4096))
                except socket.timeout:
                    pass
                except OSError:
                    answers.setdefault(number, b"")
        for connection in connections:
            connection.close()
        self.assertEqual([statuses(answers.get(number, b"open")) for number in range(len(slow))], [[408]] * len(slow))

    def test_many_connections(self):
        _, before = self.run_.process()
        connections = []
        try:
            for number in range(CONNECTIONS):
                connection = socket.create_connection(("127.0.0.1", self.run_.port), timeout=10)
                connection.sendall(POST + b"X: " + str(number).encode())
                connections.append(connection)
            self.assert_served()
            memory, descriptors = self.run_.process()
            print(f"{len(connections)} slow connections: {memory >> 10} MiB, {descriptors} descriptors", file=sys.stderr)
            self.assertLess(memory, 600 << 10)
        finally:
            for connection in connections:
                connection.close()
        self.assert_soon(lambda: self.run_.process()[1] < before + 20)
        self.assert_served()

    def test_disconnects(self):
        for stream in (True, False):
            fields = {"prompt": "abc", "max_tokens": 1 << 20, "stream": stream, "n": 3, "temperature": 0}
            body = json.dumps(fields).encode()
            with socket.create_connection(("127.0.0.1", self.run_.port), timeout=10) as connection:
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: "
                                   + str(len(body)).encode() + b"\r\n\r\n" + body)
                if stream:
                    self.assertIn(b"200 OK", connection.recv(4096))
                else:
                    time.sleep(0.2)
                    self.assert_served()
            self.assert_soon(lambda: self.run_.metric("rows_active") + self.run_.metric("choices_waiting") == 0)
        self.assert_served()

    def test_clients_that_do_not_read(self):
        before, _ = self.run_.process()
        generated = self.run_.metric("tokens_generated_total")
        fields = {"prompt": "abc", "max_tokens": 20000, "stream": True, "n": 4, "logprobs": 20, "temperature": 0}
        body = json.dumps(fields).encode()
        with socket.create_connection(("127.0.0.1", self.run_.port), timeout=10) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: "
                               + str(len(body)).encode() + b"\r\n\r\n" + body)
            self.assert_soon(lambda: self.run_.metric("rows_active") > 0)
            self.assert_soon(lambda: self.run_.metric("rows_active") == 0)
            self.assertLess(self.run_.process()[0] - before, 64 << 10)
            generated = self.run_.metric("tokens_generated_total") - generated
            self.assertGreater(generated, 1000)
            self.assertLess(generated, 60000)
        self.assert_served()

    def test_more_than_the_queue_holds(self):
        fields = {"prompt": ["abc"] * 30, "max_tokens": 60, "temperature": 5}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.run_.ask("/v1/completions", fields)[0], range(8)))
        self.assertEqual(set(answers), {200, 503})


if __name__ == "__main__":
    QUIRE = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
