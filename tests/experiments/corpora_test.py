"""Tests corpora from made-up packages, with the program: corpora_test.py FOLDER_OF_PROGRAMS"""

import json
import pathlib
import random
import shutil
import sys
import unittest

import scripts_test
from scripts_test import EXPERIMENTS, Scripts

sys.path.insert(0, str(EXPERIMENTS / "corpora"))
sys.dont_write_bytecode = True
import go_code  # noqa: E402
import passages  # noqa: E402

COPY = " ".join(f"cop{i} $p |- ( ph -> ps ) $= ( a{i}i b{i}d ) ABCZD $." for i in range(12))


def words(seed, count):
    generator = random.Random(seed)
    return [f"w{generator.randrange(10**6)}" for _ in range(count)]


class Passages(unittest.TestCase):
    def test_all_windows_are_found_and_no_more(self):
        generator = random.Random(1)
        for length in (16, 21, 40):
            held_out = [" ".join(words(seed, 80)) for seed in range(3)]
            text = "\n".join(words(9, 30))
            for _ in range(6):  # pieces around the length, other white space between their words
                source = generator.choice(held_out)
                begin = generator.randrange(len(source) - 2 * length)
                piece = source[begin:begin + generator.randrange(length - 4, 2 * length)]
                at = generator.randrange(len(text))
                text = text[:at] + " #" + piece.replace(" ", " \n\t") + "# " + text[at:]
            finder = passages.SharedPassages([held.encode() for held in held_out], length)
            spans = finder.spans(text.encode(), finder.look(text.encode()))
            bare, places = "", []
            for at, letter in enumerate(text):
                if not letter.isspace() or bare[-1:] != " ":
                    bare += " " if letter.isspace() else letter
                    places.append(at)
            expected = set()
            for at in range(len(bare) - length + 1):
                if any(bare[at:at + length] in held for held in held_out):
                    expected.update(places[i] for i in range(at, at + length) if bare[i] != " ")
            found = {at for begin, end in spans for at in range(begin, end) if not text[at].isspace()}
            self.assertEqual(found, expected)
            self.assertTrue(expected)

    def test_lines_go_whole_unless_they_are_long(self):
        text = b"one\ntwo shared\nthree\n" + b"x" * 90 + b" shared " + b"y" * 90 + b"\n"
        at = text.rindex(b"shared")
        self.assertEqual(passages.without(text, [(8, 14), (at, at + 6)], 40),
                         b"one\nthree\n" + b"x" * 90 + b"  " + b"y" * 90 + b"\n")


class Corpora(Scripts):
    def setUp(self):
        super().setUp()
        self.root = self.folder / "root"

    def install(self, package, version):
        if shutil.which("dpkg-query") is None:
            self.skipTest("dpkg-query is missing")
        (self.root / "var/lib/dpkg").mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").write_text(
            f"Package: {package}\nStatus: install ok installed\nMaintainer: nobody\nArchitecture: all\n"
            f"Version: {version}\nDescription: made up\n", encoding="utf-8")

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def make(self, corpus, *arguments, output="out", status=0, environment=None):
        where = [] if corpus == "books" else ["--root", self.root]
        self.run_script("corpora/make.py", corpus, "--output", self.folder / output, "--quire",
                        scripts_test.PROGRAMS / "quire", *where, *arguments, status=status, environment=environment)
        if status != 0:
            self.assertEqual(self.errors.count("\n"), 1)
            self.assertEqual(list(self.folder.glob("*.partial-*")), [])
            return None
        return json.loads((self.folder / output / "manifest.json").read_text(encoding="utf-8"))

    def texts(self, split, output="out"):
        return {path.stem: path.read_text(encoding="utf-8") for path in (self.folder / output / split).glob("*.txt")}

    def write_proofs(self):
        self.install("metamath-databases", "1.0-1")
        line = "=-" * 20
        sections = []
        for number in range(24):
            theorems = [f"  {word} $p |- ( {word} -> ps ) $=\n        ( wi a1i {word} ) ABZCD $."
                        for word in words(number, 9)]
            sections.append(f"$(\n{line}\n  Section {number}\n{line}\n$)\n" + "\n".join(theorems) + "\n"
                            + (COPY + "\n" if number % 2 else ""))
        self.write("usr/share/metamath/databases/set.mm", "$( renamed labels $)\n$(\n####\n  Logic\n####\n$)\n"
                   + "\n".join(sections) + "$( $t\nhtmldef \"(\" as \"(\";\n$)\n")

    def test_proofs(self):
        self.write_proofs()
        arguments = ["--least-bytes", 1500, "--vocabulary", 330, "--share", 0.2]
        manifest = self.make("proofs", *arguments)
        self.assertEqual(manifest["package"], {"name": "metamath-databases", "version": "1.0-1"})
        self.assertEqual(manifest["left_out"]["bytes before the first part"], 21)
        train, valid, test = (self.texts(split) for split in ("train", "valid", "test"))
        self.assertTrue(len(valid) == len(test) >= 2 and len(train) > len(valid), (len(train), len(valid)))
        self.assertTrue(all(len(text) >= 1500 for text in (*valid.values(), *test.values())))
        everything = "".join(text for _, text in sorted({**train, **valid, **test}.items()))
        for number in range(24):
            self.assertIn(f"  Section {number}\n", everything)
        self.assertNotIn("htmldef", everything)
        # Every document has the passage: it stays where it is held out.
        self.assertTrue(all(COPY in text for text in (*valid.values(), *test.values())))
        self.assertTrue(all("cop5 " not in text for text in train.values()))
        self.assertGreaterEqual(manifest["shared_passages"]["bytes"], len(COPY) * len(train))
        self.assertEqual(manifest["shared_passages"]["documents_left_out"], {})
        self.assertEqual(manifest["splits"]["train"]["bytes"], sum(map(len, train.values())))
        # Every byte of the database is somewhere.
        found = sum(split["bytes"] for split in manifest["splits"].values()) + sum(manifest["left_out"].values())
        self.assertEqual(found + manifest["shared_passages"]["bytes_removed"],
                         (self.root / "usr/share/metamath/databases/set.mm").stat().st_size)
        spm = manifest["corpora"]["corpus-spm.h5"]
        self.assertEqual(spm["vocabulary"], 330)
        self.assertGreater(spm["bytes_per_token"]["train"], 1.2)
        # The same again, byte for byte.
        self.make("proofs", *arguments, output="again")
        files = sorted(path.relative_to(self.folder / "out") for path in (self.folder / "out").rglob("*.*"))
        self.assertIn(pathlib.Path("corpus-spm.h5"), files)
        for file in files:
            first, second = ((self.folder / output / file).read_bytes() for output in ("out", "again"))
            self.assertTrue(first == second, file)
        # Passages that are only reported, and proofs without their letters.
        manifest = self.make("proofs", "--least-bytes", 1500, "--share", 0.2, "--passages", "report",
                             "--letters", "drop", "--no-corpus", "--force")
        self.assertNotIn("corpora", manifest)
        train = self.texts("train")
        self.assertTrue(any("cop5 " in text for text in train.values()))
        self.assertTrue(all("( wi a1i " in text and "ABZCD" not in text for text in train.values()))
        self.assertGreater(manifest["left_out"]["bytes of letter codes"], 24 * 9 * 5)

    def test_code(self):
        self.install("golang-1.19-src", "1.19-1")
        notice = ("// Copyright 2011 The Go Authors. All rights reserved.\n"
                  "// Use of this source code is governed by a BSD-style\n\n")
        for number in range(8):
            body = "\n".join(f"func {word}() int {{\n\treturn {number}\n}}\n" for word in words(number, 40))
            self.write(f"usr/share/go-1.19/src/p/q{number}/b.go", f"{notice}//go:build linux\n\npackage q\n\n{body}")
            self.write(f"usr/share/go-1.19/src/p/q{number}/a_test.go", f"package q // test {number}\n")
        generated = "// Code generated by made. DO NOT EDIT.\n\npackage q\n"
        self.write("usr/share/go-1.19/src/p/q0/z.go", generated)
        for place in ("vendor/v/v.go", "p/testdata/t.go", "small/s.go"):
            self.write(f"usr/share/go-1.19/src/{place}", "package small\n")
        manifest = self.make("code", "--least-bytes", 500, "--share", 0.2)
        texts = {**self.texts("train"), **self.texts("valid"), **self.texts("test")}
        self.assertEqual(sorted(texts), [f"p.q{number}" for number in range(8)])
        self.assertTrue(texts["p.q0"].startswith(
            "// p/q0/a_test.go\n\npackage q // test 0\n\n// p/q0/b.go\n\n//go:build linux\n"))
        left_out = manifest["left_out"]
        self.assertEqual((left_out["generated files"], left_out["bytes of generated files"]), (1, len(generated)))
        self.assertEqual(left_out["bytes in testdata and vendor"], 28)
        self.assertEqual(left_out["packages that are too small"], 1)
        self.assertEqual(left_out["bytes of licence headers"], 8 * len(notice))
        self.assertEqual(manifest["corpora"]["corpus.h5"]["tokens"]["valid"], manifest["splits"]["valid"]["bytes"])

    def test_notices_in_comments(self):
        text = (b"package p\n\n// Sine of x.\n//\n// Copyright (C) 1993 by Sun\n// and others\n//\n// Method.\n"
                b"func f() {}\n")
        self.assertEqual(go_code.without_notices(text), b"package p\n\n// Sine of x.\n//\n// Method.\nfunc f() {}\n")
        self.assertFalse(go_code.is_generated(b"package p\nconst s = `\n// Code generated by f. DO NOT EDIT.\n`\n"))

    def test_bible(self):
        self.install("bible-kjv", "4.0")
        books = ["Josh", "Est", "Hos", "Mal", "Phi", "2Pet", *(f"{i % 9}B{chr(65 + i)}" for i in range(60))]
        verses = "".join(f"{book}1:{verse} Verse {verse} of {book}.\n" for book in books for verse in (1, 2))
        self.write("usr/bin/bible.txt", verses)
        self.write_program(self.root / "usr/bin/bible", f"cat {self.root}/usr/bin/bible.txt")
        self.make("bible")
        self.assertEqual(sorted(self.texts("valid")), sorted(books[:6]))
        self.assertEqual(len(self.texts("train")), 60)
        self.assertEqual(self.texts("valid")["2Pet"], "Verse 1 of 2Pet.\nVerse 2 of 2Pet.\n")
        self.write("usr/bin/bible.txt", verses[:-200])
        self.make("bible", "--force", status=2)
        self.assertRegex(self.errors, ": 6[0-9] books instead of 66")

    def test_books(self):
        books = self.folder / "books"
        books.mkdir()
        for number in range(7):
            (books / f"Book {number}.txt").write_text(
                f"licence\n*** START OF THE PROJECT GUTENBERG EBOOK {number} ***\n" + " ".join(words(number, 200))
                + "\n*** END OF THE PROJECT GUTENBERG EBOOK ***\nlicence\n", encoding="utf-8")
        self.make("books", "--input", books, status=2)  # smaller than 10000 bytes
        manifest = self.make("books", "--input", books, "--least-bytes", 100)
        self.assertEqual([manifest["splits"][split]["documents"] for split in ("train", "valid", "test")], [5, 1, 1])
        self.assertTrue(all("licence" not in text for text in self.texts("train").values()))
        # A copy of what is held out leaves the training documents.
        held_out, kept = next(iter(self.texts("valid").values())), next(iter(self.texts("train")))
        (books / f"{kept}.txt").write_text(held_out, encoding="utf-8")
        for old in books.glob("Book*"):
            if old.stem.lower().replace(" ", "-") == kept:
                old.unlink()
        manifest = self.make("books", "--input", books, "--least-bytes", 100, "--force")
        self.assertEqual(list(manifest["shared_passages"]["documents_left_out"]), [kept])
        self.assertEqual(manifest["splits"]["train"]["documents"], 4)
        (books / "bad.txt").write_bytes(b"\xff" * 200)
        self.make("books", "--input", books, "--force", status=2)
        self.assertIn("bad.txt: not UTF-8 at byte 0", self.errors)
        self.assertTrue((self.folder / "out/train").is_dir())

    def test_tables_of_the_readme(self):
        readme = (EXPERIMENTS / "corpora/README.md").read_text(encoding="utf-8")
        rows = self.run_script("corpora/tables.py").split("\n")
        self.assertGreater(len(rows), 14)
        for row in rows:
            self.assertIn(row + "\n", readme)

    def test_what_is_said_before_work_begins(self):
        (self.root / "var/lib/dpkg").mkdir(parents=True)
        for corpus, package in (("proofs", "metamath-databases"), ("code", "golang-1.19-src"), ("bible", "bible-kjv")):
            self.make(corpus, status=2)
            if shutil.which("dpkg-query") is not None:
                self.assertEqual(self.errors,
                                 f"make: error: the package {package} is missing: apt-get install {package}\n")
        shutil.rmtree(self.root)
        self.write_proofs()
        # Four megabytes of disk and a database of ten.
        (self.folder / "sitecustomize.py").write_text(
            "import collections, shutil\nusage = collections.namedtuple('usage', 'total used free')\n"
            "shutil.disk_usage = lambda path: usage(10**7, 6 * 10**6, 4 * 10**6)\n", encoding="utf-8")
        with open(self.root / "usr/share/metamath/databases/set.mm", "a", encoding="utf-8") as file:
            file.write(" " * 10**7)
        self.make("proofs", status=2, environment={"PYTHONPATH": str(self.folder)})
        self.assertIn("4.0 MB are free; this needs about 35.1 MB", self.errors)
        for arguments, message in ((["--share", 0.9], "--share 0.9: use"), (["--passage", 1], "--passage 1: use"),
                                   (["--least-bytes", 0], "--least-bytes 0: use"),
                                   (["--vocabulary", 5], "use 300 or more"),
                                   (["--quire", self.folder / "none"], "none: no such program"),
                                   (["--least-bytes", 10**6], "are too few for three splits")):
            self.make("proofs", *arguments, status=2)
            self.assertIn(message, self.errors)
        self.assertFalse((self.folder / "out").exists())
        (self.folder / "out").mkdir()
        self.make("proofs", "--force", status=2)
        self.assertIn("exists and was not made by this script", self.errors)


if __name__ == "__main__":
    scripts_test.PROGRAMS = pathlib.Path(sys.argv[1])
    unittest.main(argv=[sys.argv[0], "-v"])
