"""Finds passages that stand in two sets of documents.

A passage is text of at least `length` bytes that is the same but for white space, of which each run counts as one byte.
All passages are found: the held-out text is cut into blocks of half that length, every passage contains a whole one,
and training text is compared with the blocks at every byte. Memory grows with the held-out text alone.
"""

import array
import bisect
import hashlib
import re

WORD = re.compile(rb"\S+")


class Normalised:
    """Holds words separated by single spaces, and where they stood."""

    def __init__(self, text):
        self.at, self.original = array.array("q"), array.array("q")  # of every word, here and in the text
        words, size = [], 0
        for word in WORD.finditer(text):
            self.at.append(size)
            self.original.append(word.start())
            words.append(word[0])
            size += len(word[0]) + 1
        self.text = b" ".join(words)

    def place(self, offset):
        """Returns where the byte at an offset of the normalised text stood; spaces stand behind their word."""
        word = bisect.bisect_right(self.at, offset) - 1
        return self.original[word] + offset - self.at[word]


def digest(window):
    return hashlib.blake2b(window, digest_size=16).digest()


class SharedPassages:
    """Finds what other documents share with the held-out ones: look() at all of them, then ask for spans()."""

    def __init__(self, held_out, length):
        self.length, self.block = length, length // 2
        self.texts = [Normalised(text).text for text in held_out]
        self.places = {}  # of blocks: text and offset
        for number, text in enumerate(self.texts):
            for offset in range(0, len(text) - self.block + 1, self.block):
                self.places.setdefault(text[offset:offset + self.block], []).append((number, offset))
        self.found = set()
        self.windows = None

    def look(self, text):
        """Returns where a block of the held-out text begins in the normalised text."""
        text, block, places = Normalised(text).text, self.block, self.places
        offsets = [offset for offset in range(len(text) - block + 1) if text[offset:offset + block] in places]
        self.found.update(text[offset:offset + block] for offset in offsets)
        return array.array("q", offsets)

    def window_starts(self, offset, size):
        """Returns the starts of windows of a whole passage's length around a block."""
        return range(max(0, offset - self.length + self.block), min(offset, size - self.length) + 1)

    def spans(self, text, offsets):
        """Returns (begin, end) of the passages of a text, given what look() said of it."""
        if self.windows is None:
            self.windows = {digest(self.texts[number][start:start + self.length])
                            for block in self.found for number, offset in self.places[block]
                            for start in self.window_starts(offset, len(self.texts[number]))}
        normalised = Normalised(text)
        spans, tried = [], -1
        for offset in offsets:
            for start in self.window_starts(offset, len(normalised.text)):
                if start <= tried or digest(normalised.text[start:start + self.length]) not in self.windows:
                    continue
                end = start + self.length
                if spans and start <= spans[-1][1]:
                    spans[-1][1] = end
                else:
                    spans.append([start, end])
            tried = max(tried, offset)
        trimmed = []
        for begin, end in spans:
            begin += normalised.text[begin:begin + 1] == b" "
            end -= normalised.text[end - 1:end] == b" "
            trimmed.append((normalised.place(begin), normalised.place(end - 1) + 1))
        return trimmed


def without(text, spans, reach):
    """Returns the text without the spans; a line of which less than `reach` bytes would be left before or behind goes,
    too."""
    kept, at = [], 0
    for begin, end in spans:
        line_begin = text.rfind(b"\n", 0, begin) + 1
        if begin - line_begin < reach:
            begin = line_begin
        line_end = text.find(b"\n", end) + 1 or len(text)
        if line_end - end < reach:
            end = line_end
        kept.append(text[at:max(at, begin)])
        at = max(at, end)
    kept.append(text[at:])
    return b"".join(kept)
