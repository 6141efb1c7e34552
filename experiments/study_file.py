"""The JSON file of a study (study.py): its keys, and what is wrong with it."""

import json
import pathlib
import re

KEYS = {"name", "config", "prepare", "base", "bases", "set", "variants", "seeds", "baseline", "beside", "evaluate", "metrics",
        "curve"}
NAME = re.compile(r"\{([a-z_]+)\}")


class StudyError(Exception):
    """What is wrong with the study or one of its commands, for one line on stderr."""


def load_study(path, replacements, complete=True):
    """The study with {work}, {study} and the --define names filled in; complete: all of them must be."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    for name, value in replacements.items():
        text = text.replace("{" + name + "}", json.dumps(str(value))[1:-1])
    try:
        study = json.loads(text)
    except json.JSONDecodeError as error:
        raise StudyError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    unknown = set(study) - KEYS
    if unknown:
        raise StudyError(f"{path}: unknown key {sorted(unknown)[0]}; there is: {', '.join(sorted(KEYS))}")
    for key in ("name", "config", "variants", "seeds"):
        if not study.get(key):
            raise StudyError(f"{path}: {key} is missing")
    study.setdefault("baseline", next(iter(study["variants"])))
    if study["baseline"] not in study["variants"]:
        raise StudyError(f"{path}: baseline {study['baseline']} is no variant")
    for variant, other in study.get("beside", {}).items():
        for name in (variant, other):
            if name not in study["variants"]:
                raise StudyError(f"{path}: beside: {name} is no variant")
    if "{base}" in text and "base" not in study:
        raise StudyError(f"{path}: {{base}} is the run of the study's base; there is none")
    study["bases"] = {**study.get("bases", {}), **({"base": study["base"]} if "base" in study else {})}
    check_origins(path, study)
    missing = [name for name in NAME.findall(text) if name not in study["bases"] and name not in study["variants"]]
    if missing and complete:
        raise StudyError(f"{path}: {{{missing[0]}}} has no value; give --define {missing[0]}=VALUE")
    study.setdefault("metrics", ["bits_per_byte"])
    for metric in study["metrics"]:
        name, _, begin = metric.partition("@")
        if begin and (name != "bits_per_byte" or not begin.isdigit() or bin(int(begin)).count("1") != 1):
            raise StudyError(f"{path}: metric {metric}: use bits_per_byte@N, where N is a power of two")
    return study


def check_origins(path, study):
    """A variant begins from a base or from a variant before it; bases begin from nothing. "base" is the only one, or the
    one that most variants begin from; further ones have names of their own in "bases"."""
    for name in study["bases"]:
        if name in study["variants"]:
            raise StudyError(f"{path}: {name} names a variant and a base")
    if "base" in study["variants"]:
        raise StudyError(f"{path}: a variant cannot be called base")
    for of, settings in [("set", study.get("set", [])),
                         *((name, base.get("set", [])) for name, base in study["bases"].items())]:
        for name in NAME.findall(" ".join(settings)):
            if name in study["bases"] or name in study["variants"]:
                raise StudyError(f"{path}: {of}: {{{name}}}: only variants can begin from another run of the study")
    before = set()
    for variant, settings in study["variants"].items():
        for name in NAME.findall(" ".join(settings)):
            if name in study["variants"] and name not in before:
                raise StudyError(f"{path}: {variant} begins from {name}, which must stand before it")
        before.add(variant)
