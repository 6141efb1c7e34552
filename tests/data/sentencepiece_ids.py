"""Prints the ids that SentencePiece's Python package gives, for sentencepiece_ids_test.cpp.

sentencepiece_ids.py FOLDER prints {"version", "ids": {MODEL: [[ids of text.0], [ids of text.1], ...]}} for the files
MODEL.model and text.N of a folder. Exit code 77: the package is not installed.
"""
import json
import pathlib
import sys

try:
    import sentencepiece
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
texts = [path.read_bytes().decode("utf-8") for path in sorted(folder.glob("text.*"))]
ids = {}
for path in sorted(folder.glob("*.model")):
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids[path.stem] = [processor.encode(text) for text in texts]
print(json.dumps({"version": sentencepiece.__version__, "ids": ids}))
