"""Makes a folder of tokenizers and the ids that the package `tokenizers` (Hugging Face) gives for random texts.

    python3 exchanged_tokenizers.py FROM TO [SEED]

FROM is a folder like tests/golden/exchange, TO becomes another of the same form, with more kinds of tokenizers. The exit
code is 77 where the package is missing.
"""

import copy
import json
import pathlib
import random
import sys

try:
    import tokenizers
except ImportError:
    sys.exit(77)

GPT4O = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = "|".join([
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+", r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme, splits):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": splits}


def token(identity, content, **flags):
    return {"id": identity, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": False, **flags}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def variants(folder):
    """Yields names and files of tokenizers with other components than those of the folder."""
    def read(name):
        return json.loads((folder / name / "tokenizer.json").read_text(encoding="utf-8"))

    def changed(name, **parts):
        file = copy.deepcopy(read(name))
        file.update(parts)
        return file

    if (folder / "gpt2").exists():
        for name, step in {
                "prefix": byte_level(True, True), "gpt4o": sequence(split(GPT4O), byte_level()),
                "deepseek": sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                                     split(DEEPSEEK), byte_level()),
                "words": sequence(split(r"\w+|[^\w\s]+"), byte_level()),
                "bounds": sequence(split(r"\b\w|\W\b"), byte_level(True)),
                "interval": sequence(split(r"\p{N}{1,3}+|\h{2}|\p{Han}+|\p{^L}\P{Z}|(?<=a)b|^x|\.{,2}$"), byte_level()),
                "removed": sequence(split(r"\p{L}+", "Removed"), byte_level()),
                "kept": sequence(split(r"'s| ?\p{L}+", "Removed", True), byte_level()),
                "previous": sequence(split(r"\s|,", "MergedWithPrevious"), byte_level()),
                "next": sequence(split(r"\s|,", "MergedWithNext"), byte_level()),
                "contiguous": sequence(split(r"\s|,", "Contiguous"), byte_level(False, True)),
                "inverted": sequence(split(r"\s|,", "MergedWithNext", True), byte_level()),
                "empty": sequence(split(r"x*|(?=b)"), byte_level()),
                "digits": sequence({"type": "Digits", "individual_digits": False}, byte_level(False, True)),
        }.items():
            yield "gpt2_" + name, changed("gpt2", pre_tokenizer=step)
        yield "gpt2_NFD", changed("gpt2", normalizer={"type": "NFD"})
        file = read("gpt2")
        n = file["added_tokens"][-1]["id"] + 1
        vocab = file["model"]["vocab"]
        for normalizer in [None, {"type": "NFC"}]:
            file["normalizer"] = normalizer
            file["added_tokens"] = read("gpt2")["added_tokens"] + [
                token(n, "quire", single_word=True), token(n + 1, "[L]", lstrip=True), token(n + 2, "[R]", rstrip=True),
                token(n + 3, "  ", normalized=True), token(n + 4, "\u03ac", normalized=True),
                token(n + 5, "[S]", special=True, lstrip=True, rstrip=True), token(n + 6, "[L][R]"),
                token(vocab["the"], "the", single_word=True), token(vocab[","], ",", rstrip=True, normalized=True),
                token(n + 7, "\u03bb\u03ac", single_word=True, normalized=True)]
            yield "gpt2_added" + ("_nfc" if normalizer else ""), copy.deepcopy(file)
    if (folder / "llama2").exists():
        marks = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
        decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, marks]}
        for scheme in ["first", "always", "never"]:
            for splits in [True, False]:
                marks["prepend_scheme"] = scheme
                yield f"llama2_{scheme}_{splits}", changed(
                    "llama2", normalizer=None, pre_tokenizer=metaspace(scheme, splits), decoder=copy.deepcopy(decoder))
        for fallback, fuse in [(False, False), (False, True), (True, False)]:
            file = read("llama2")
            file["model"].update(byte_fallback=fallback, fuse_unk=fuse)
            yield f"llama2_unknown_{fallback}_{fuse}", file


POOLS = [
    list("abcdefghijklmnopqrstuvwxyz"), list("ABCXYZ"), list("0123456789"), list(" .,;:!?'\"()-_/\\{}[]<>|@#$%&*+=~`^"),
    list(" " * 6), ["\n", "\r\n", "\r", "\t", "\u00a0", "\u2003", "\u3000", "\u1680", "\u2028", "\u0085", "\u180e", "\u200b",
                   "\x0b", "\x0c", "\x1c", "\x1f", "\u202f", "\x00", "\x7f", "\ufeff"],
    ["'s", "'T", "'RE", "'ve", "'m", "'ll", "'d", "'\u017f", "\u2019s", "n't"],
    ["\u0301", "\u0327", "\u0308", "\u030a", "\u0345", "\u0f71", "\u093c", "\u1161", "\u11a8", "e", "A", "o", "\u1100"],
    ["the ", " the", "The", " of", "and", "ing", "ther", "wherewithal", "mathfrak{", "2024-01-31T23", "Selah"],
    ["quire", "\u2581", "\u0120", "\u010a", "[L]", "[R]", "[S]", "\u03ac", "\u03b1\u0301", "  ", "\u03bb\u03ac", "\u03bb\u03b1\u0301", "<think>",
     "<|im_start|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "<0x41>", "a" * 60, "ab" * 40, " " * 30, "\n" * 5],
]


def random_text(random_):
    parts = []
    for _ in range(random_.randint(1, 30)):
        kind = random_.random()
        if kind < 0.75:
            parts.append(random_.choice(random_.choice(POOLS)))
        elif kind < 0.85:
            base = random_.choice([0x80, 0x370, 0x400, 0x590, 0x600, 0x900, 0xe00, 0x1100, 0x1e00, 0x2000, 0x2100,
                                   0x3040, 0x4e00, 0xac00, 0xfb00, 0x1f300, 0x1d400, 0x10400, 0x105c0, 0x10d40, 0x11f00,
                                   0x16d40, 0x1e4d0, 0x31350, 0x2ebf0, 0xa7c0, 0x1c80])
            parts.extend(chr(base + random_.randrange(64)) for _ in range(random_.randint(1, 4)))
        else:
            code = random_.randrange(0x110000)
            parts.append(chr(code) if not 0xd800 <= code < 0xe000 else "\ufffd")
    return "".join(parts)


def expected_of(tokenizer, texts):
    specials = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    decoded = {}
    for index, text in enumerate(texts):
        back = tokenizer.decode(specials[index], skip_special_tokens=False)
        if back != text:
            decoded[str(index)] = back
    tokenizer.encode_special_tokens = True
    plain = {}
    for index, text in enumerate(texts):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if ids != specials[index]:
            plain[str(index)] = ids
    return {"specials": specials, "plain": plain, "decoded": decoded, "pieces": [], "long": {},
            "vocabulary": tokenizer.get_vocab_size(with_added_tokens=True), "bos": None, "eos": None}


def main():
    source = pathlib.Path(sys.argv[1]) / "tokenizers"
    target = pathlib.Path(sys.argv[2]) / "tokenizers"
    random_ = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    texts = [random_text(random_) for _ in range(400)]
    target.mkdir(parents=True)
    (target / "strings.json").write_text(json.dumps(texts), encoding="utf-8")
    files = {}
    configs = {}
    for folder in sorted(source.iterdir()):
        if folder.is_dir():
            files[folder.name] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
            configs[folder.name] = (folder / "tokenizer_config.json").read_text(encoding="utf-8")
    files.update(variants(source))
    for name, file in files.items():
        folder = target / name
        folder.mkdir()
        text = json.dumps(file, ensure_ascii=False)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        config = configs.get(name) or configs[name.split("_")[0]]
        (folder / "tokenizer_config.json").write_text(config, encoding="utf-8")
        expected = expected_of(tokenizers.Tokenizer.from_str(text), texts)
        (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


main()
