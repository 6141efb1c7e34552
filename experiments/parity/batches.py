"""Computes the batches that quire trains on again from its documented data path: documents in the order of a keyed
permutation, dealt to the rows of the batch, BOS before each of them and EOS as its last target, the rest of a row
padded (data.pack: pad). Standard library only.
"""

from dataclasses import dataclass

BOS, EOS = 256, 257  # of the byte tokenizer


def philox(seed, step, scope, row, token, element):
    """Returns what Philox4x32-10 (Salmon et al. 2011) draws: four numbers of 32 bits that follow from the arguments
    alone."""
    c = [element, token, row, scope]
    k0, k1 = (seed ^ seed >> 32) & 0xFFFFFFFF, step
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def hash_of(name):
    """Returns by FNV-1a the number of a random stream."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def document_at(place, documents, seed):
    """Returns the document at a place of the endless order. Every epoch is a permutation: a Feistel network over the
    least set of 4^h numbers that holds all documents, applied again while it leads beyond the last one."""
    epoch, value = divmod(place, documents)
    half = max(1, ((documents - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    scope = hash_of("data.order")
    while True:
        left, right = value >> half, value & mask
        for turn in range(8):
            left, right = right, left ^ (philox(seed, epoch, scope, turn, 0, right)[0] & mask)
        value = left << half | right
        if value < documents:
            return value


@dataclass
class Batch:
    tokens: list  # [rows][length]
    targets: list
    counts: list  # tokens of each row; the positions behind them are padding
    starts: list  # whether a row begins a document


class Batches:
    def __init__(self, documents, rows, length, seed):
        self.documents, self.length, self.seed = documents, length, seed
        self.places = [None] * rows  # (document, offset) that a row goes on with
        self.next_place = 0

    def step(self):
        batch = Batch([], [], [], [])
        # Rows that still read come first; free rows take the next documents, the lowest row first.
        for row, place in enumerate(self.places):
            batch.starts.append(place is None)
            if place is None:
                self.places[row] = (document_at(self.next_place, len(self.documents), self.seed), 0)
                self.next_place += 1
        for row, (document, offset) in enumerate(self.places):
            text = self.documents[document]
            inputs, targets = [BOS, *text], [*text, EOS]
            end = min(offset + self.length, len(inputs))
            padding = [0] * (self.length - (end - offset))
            batch.tokens.append(inputs[offset:end] + padding)
            batch.targets.append(targets[offset:end] + padding)
            batch.counts.append(end - offset)
            self.places[row] = (document, end) if end < len(inputs) else None
        return batch
