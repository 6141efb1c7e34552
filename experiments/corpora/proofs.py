"""The source is formal proofs: set.mm of Metamath, cut at its section headers."""

import re

from common import Failure, Package, file_name

PACKAGE = "metamath-databases"
LICENCE = "CC0-1.0 (set.mm; other files of the package have other licences and are not read)"
LEAST_BYTES = 100_000

# "$(", and on the next line the decoration of one of the four levels; then the title.
HEADER = re.compile(rb"^[ \t]*\$\([ \t]*\n+[ \t]*(####|#\*#\*|=-=-|-\.-\.)[^\n]*\n[ \t]*([^\n]*)\n", re.MULTILINE)
TYPESETTING = re.compile(rb"^[ \t]*\$\([ \t]*\$t\s.*?\$\)[ \t]*\n?", re.MULTILINE | re.DOTALL)
# The letters behind the labels of a compressed proof, which say how the steps are put together.
LETTERS = re.compile(rb"(\$=\s+\([^)]*\))[A-Z?\s]+(?=\$\.)")


def add_options(parser):
    parser.add_argument("--letters", choices=("keep", "drop"), default="keep",
                        help="letter codes behind the labels of a proof, 40 %% of the text (default: %(default)s)")


class Source:
    held_out = None

    def __init__(self, arguments):
        self.package = Package(PACKAGE, arguments.root)
        self.file = self.package.path("usr/share/metamath/databases/set.mm")
        self.least, self.letters = arguments.least_bytes, arguments.letters
        self.bytes = self.file.stat().st_size
        self.left_out = {}

    def documents(self):
        text = self.file.read_bytes()
        headers = list(HEADER.finditer(text))
        parts = [header.start() for header in headers if header[1] == b"####"]
        if not parts:
            raise Failure(f"{self.file}: no header of a part ('####') was found")
        self.left_out["bytes before the first part"] = parts[0]
        self.left_out["bytes of typesetting definitions"] = 0
        self.left_out["bytes of letter codes"] = 0
        starts = [header.start() for header in headers if header.start() >= parts[0]]
        titles = {header.start(): header[2].decode("utf-8", "replace") for header in headers}
        # A document ends at the first header at which it is long enough; what is left at the end joins the last one.
        sections = [(begin, self.clean(text[begin:end])) for begin, end in zip(starts, [*starts[1:], len(text)])]
        documents, sizes = [], []
        for begin, section in sections:
            if not documents or sizes[-1] >= self.least:
                documents.append((titles[begin], []))
                sizes.append(0)
            documents[-1][1].append(section)
            sizes[-1] += len(section)
        if len(documents) > 1 and sizes[-1] < self.least:
            documents[-2][1].extend(documents.pop()[1])
        for number, (title, parts) in enumerate(documents):
            yield f"{number:03d}-{file_name(title)}", b"".join(parts)

    def clean(self, section):
        """Returns the text without typesetting definitions and, as asked, without letter codes."""
        kept = TYPESETTING.sub(b"", section)
        self.left_out["bytes of typesetting definitions"] += len(section) - len(kept)
        if self.letters == "keep":
            return kept
        bare = LETTERS.sub(rb"\1 ", kept)
        self.left_out["bytes of letter codes"] += len(kept) - len(bare)
        return bare
