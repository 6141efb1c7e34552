"""The source is code: the Go distribution, one document a package."""

import re

from common import Failure, Package, file_name

PACKAGE = "golang-1.19-src"
LICENCE = ("BSD-3-Clause (Go); some files besides Lucent's and Vita Nuova's MIT licence, FreeBSD's BSD-2-Clause, and "
           "notices of Sun, S. L. Moshier and the MPEG Software Simulation Group")
LEAST_BYTES = 10_000

GENERATED = re.compile(rb"^// Code generated .* DO NOT EDIT\.$", re.MULTILINE)
PACKAGE_CLAUSE = re.compile(rb"^package ", re.MULTILINE)
# Comments that begin a line: a run of // lines, or one /* */.
COMMENT = re.compile(rb"^(?://[^\n]*\n)+|^/\*.*?\*/[ \t]*\n", re.MULTILINE | re.DOTALL)
EMPTY_LINE = re.compile(rb"^//[ \t]*\n", re.MULTILINE)
NOTICE = re.compile(rb"copyright\s*(?:\(c\)|\xc2\xa9|\d{4})|all rights reserved|above copyright notice"
                    rb"|permission (?:is hereby granted|to use, copy)|the software is provided"
                    rb"|governed by a bsd|license that can be|licensed under the apache", re.IGNORECASE)


def add_options(_parser):
    pass


def without_notices(text):
    """Returns the text without the paragraphs of comments that are about copyright and licence."""

    def cleaned(match):
        comment = match[0]
        if not NOTICE.search(comment):
            return comment
        if comment.startswith(b"/*"):
            return b""
        paragraphs, begin = [], 0
        for line in [*EMPTY_LINE.finditer(comment), None]:
            end = line.end() if line else len(comment)
            paragraphs.append(comment[begin:end])
            begin = end
        return b"".join(paragraph for paragraph in paragraphs if not NOTICE.search(paragraph))

    return COMMENT.sub(cleaned, text).lstrip(b"\n")


def is_generated(text):
    clause = PACKAGE_CLAUSE.search(text)
    return GENERATED.search(text, 0, clause.start() if clause else len(text)) is not None


class Source:
    held_out = None

    def __init__(self, arguments):
        self.package = Package(PACKAGE, arguments.root)
        version = PACKAGE[len("golang-"):-len("-src")]
        self.folder = self.package.path(f"usr/share/go-{version}/src")
        self.least = arguments.least_bytes
        self.packages, others = {}, 0
        for path in sorted(self.folder.rglob("*.go")):
            if not path.is_file():
                continue
            folder = path.parent.relative_to(self.folder)
            if {"testdata", "vendor"} & set(folder.parts):
                others += path.stat().st_size
            else:
                self.packages.setdefault(folder.as_posix(), []).append(path)
        if not self.packages:
            raise Failure(f"{self.folder}: there are no packages")
        self.bytes = sum(path.stat().st_size for paths in self.packages.values() for path in paths)
        self.left_out = {"bytes in testdata and vendor": others, "generated files": 0, "bytes of generated files": 0,
                         "bytes of licence headers": 0, "packages that are too small": 0,
                         "bytes of packages that are too small": 0}

    def documents(self):
        for folder, paths in sorted(self.packages.items()):
            files = []
            for path in sorted(paths, key=lambda path: path.name):
                text = path.read_bytes()
                if is_generated(text):
                    self.left_out["generated files"] += 1
                    self.left_out["bytes of generated files"] += len(text)
                    continue
                kept = without_notices(text)
                self.left_out["bytes of licence headers"] += len(text) - len(kept)
                place = path.relative_to(self.folder).as_posix()
                files.append(b"// " + place.encode() + b"\n\n" + kept.rstrip(b"\n") + b"\n")
            document = b"\n".join(files)
            if len(document) >= self.least:
                yield file_name(folder.replace("/", ".")), document
            elif files:
                self.left_out["packages that are too small"] += 1
                self.left_out["bytes of packages that are too small"] += len(document)
