"""The source is the Bible: 66 books, as ./bootstrap demo makes them, the same six held out."""

import re
import subprocess

from common import Failure, Package

PACKAGE = "bible-kjv"
LICENCE = "the King James text is in the public domain (the program that prints it is not copied)"
BOOKS = 66
VERSE = re.compile(r"(\S+?)\d+:\d+ (.*)")


def add_options(_parser):
    pass


class Source:
    held_out = ("Josh", "Est", "Hos", "Mal", "Phi", "2Pet")

    def __init__(self, arguments):
        self.package = Package(PACKAGE, arguments.root)
        self.program = self.package.path("usr/bin/bible", "usr/games/bible")
        self.bytes = 5_000_000  # of the 66 books
        self.left_out = {}

    def documents(self):
        printed = subprocess.run([self.program, "-f", "gen1:1-rev22:21"], stdout=subprocess.PIPE, text=True,
                                 encoding="utf-8", check=False)
        books = {}
        for line in printed.stdout.splitlines():
            verse = VERSE.fullmatch(line)
            if not verse:
                raise Failure(f"{self.program}: this line is no verse: {line[:80]!r}")
            books.setdefault(verse[1], []).append(verse[2])
        if printed.returncode != 0 or len(books) != BOOKS or set(self.held_out) - set(books):
            raise Failure(f"{self.program}: {len(books)} books instead of {BOOKS}, exit code {printed.returncode}")
        for book, verses in books.items():
            yield book, ("\n".join(verses) + "\n").encode()
