"""Writes what a stage of check.sh found as JSON: write_result.py FILE BUNDLE OUTCOME SECONDS COMMAND LOG.

Of the log it keeps failed tests and the last lines.
"""

import datetime
import json
import pathlib
import shutil
import subprocess
import sys

LINES = 40

file, bundle, outcome, seconds, command, log = sys.argv[1:]
if shutil.which("nvidia-smi") is None:
    sys.exit(f"write_result: nvidia-smi is not there, so there is no result to keep; {file} is not written")
gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
commit = pathlib.Path(bundle) / "COMMIT"
lines = pathlib.Path(log).read_text(errors="replace").splitlines()
pathlib.Path(file).write_text(json.dumps({
    "date": datetime.date.today().isoformat(),
    "commit": commit.read_text().strip() if commit.exists() else "unknown",
    "command": command,
    "gpu": gpu.stdout.strip(),
    "outcome": outcome,
    "seconds": int(seconds),
    "failed": sorted({line.split("]", 1)[1].split(" (")[0].split(", where")[0].strip()
                      for line in lines if line.startswith("[  FAILED  ] ") and "." in line}),
    "end": lines[-LINES:],
}, indent=1) + "\n")
