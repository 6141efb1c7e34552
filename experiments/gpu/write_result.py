"""Writes what check.sh found as JSON: write_result.py FILE BUNDLE NAMES OUTCOMES COMMAND."""

import datetime
import json
import pathlib
import shutil
import subprocess
import sys

file, bundle, names, outcomes, command = sys.argv[1:]
if shutil.which("nvidia-smi") is None:
    sys.exit(f"write_result: nvidia-smi is not there, so there is no result to keep; {file} is not written")
gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
commit = pathlib.Path(bundle) / "COMMIT"
pathlib.Path(file).write_text(json.dumps({
    "date": datetime.date.today().isoformat(),
    "commit": commit.read_text().strip() if commit.exists() else "unknown",
    "command": command,
    "gpu": gpu.stdout.strip(),
    "checks": dict(zip(names.split(), ["passed" if o == "0" else o for o in outcomes.split()])),
}, indent=1) + "\n")
