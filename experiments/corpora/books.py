"""The source is a folder of books: every .txt file is a document."""

import pathlib
import re

from common import Failure, file_name

LICENCE = "that of the books: see where they were taken from"
LEAST_BYTES = 10_000
# Project Gutenberg prints its licence before and after these lines.
BEGIN = re.compile(rb"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK[^\n]*\n", re.MULTILINE)
END = re.compile(rb"^\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG EBOOK", re.MULTILINE)


def add_options(parser):
    parser.add_argument("--input", required=True, metavar="FOLDER", help="the books, .txt files in UTF-8")


class Source:
    package = None
    held_out = None

    def __init__(self, arguments):
        self.folder = pathlib.Path(arguments.input)
        if not self.folder.is_dir():
            raise Failure(f"--input {self.folder}: no such folder")
        self.files = sorted(path for path in self.folder.rglob("*.txt") if path.is_file())
        if len(self.files) < 3:
            raise Failure(f"--input {self.folder}: {len(self.files)} .txt files; three splits need three at least")
        self.least = arguments.least_bytes
        self.bytes = sum(path.stat().st_size for path in self.files)
        self.left_out = {"bytes around Project Gutenberg's books": 0, "books that are too small": 0}

    def documents(self):
        for path in self.files:
            text = path.read_bytes().replace(b"\r\n", b"\n")
            try:
                text.decode("utf-8")
            except UnicodeDecodeError as error:
                raise Failure(f"{path}: not UTF-8 at byte {error.start}") from error
            begin, end = BEGIN.search(text), END.search(text)
            kept = text[begin.end() if begin else 0:end.start() if end else len(text)]
            self.left_out["bytes around Project Gutenberg's books"] += len(text) - len(kept)
            if len(kept) < self.least:
                self.left_out["books that are too small"] += 1
            else:
                yield file_name(path.relative_to(self.folder).with_suffix("").as_posix().replace("/", ".")), kept
