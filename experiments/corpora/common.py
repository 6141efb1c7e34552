"""Code that the sources share: errors for one line on stderr, Debian packages and names of documents."""

import pathlib
import re
import shutil
import subprocess


class Failure(Exception):
    """Says what is wrong, for one line on stderr."""


class Package:
    """Holds an installed Debian package below a root, which is / except in tests and for other systems that are mounted."""

    def __init__(self, name, root):
        self.name, self.root = name, pathlib.Path(root)
        if shutil.which("dpkg-query") is None:
            raise Failure(f"dpkg-query is missing: this corpus is made from the Debian package {name}")
        asked = subprocess.run(["dpkg-query", f"--admindir={self.root / 'var/lib/dpkg'}", "--show",
                                "--showformat=${db:Status-Status} ${Version}", name],
                               capture_output=True, text=True, check=False)
        status, _, self.version = asked.stdout.partition(" ")
        if asked.returncode != 0 or status != "installed":
            raise Failure(f"the package {name} is missing: apt-get install {name}")

    def path(self, *places):
        """Returns the first of these places below the root that is there."""
        for place in places:
            if (self.root / place).exists():
                return self.root / place
        raise Failure(f"{self.root / places[0]} is missing, although {self.name} {self.version} is installed")


def file_name(text):
    """Returns Letters, digits and points of a title, for the name of a document."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60].rstrip("-.") or "untitled"
