"""Run uv with the package sources that pip is configured with: uv.py UV ARGUMENTS..."""

import os
import subprocess
import sys

NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}

listed = subprocess.run(
    [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
).stdout
settings = {}
# the environment comes first in the list, and wins
for line in reversed(listed.splitlines()):
    key, _, value = line.partition("=")
    name = NAMES.get(key.rpartition(".")[2])
    if name:
        # several addresses stand in one value, separated by white space
        words = value.strip().strip("'\"").replace("\\n", " ").split()
        settings[name] = ("," if name == "UV_FIND_LINKS" else " ").join(words)
if "UV_INDEX" in settings:
    settings["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip too looks into all of them
os.execve(sys.argv[1], sys.argv[1:], {**os.environ, **settings})  # noqa: S606
