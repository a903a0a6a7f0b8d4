"""Attention maps against each library's own way to them: `vitascope bench capture`.

The record goes beside this file unless --out says otherwise. Takes half a minute on one core.
"""

import sys
from os.path import relpath
from pathlib import Path

if __name__ == "__main__":
    sys.path.pop(0)  # this folder's inspect.py must not stand in for Python's own
    from vitascope.cli import main

    words = sys.argv[1:]
    if "--out" not in words:
        words += ["--out", relpath(Path(__file__).parent / "records" / "capture")]
    sys.exit(main(["bench", "capture", *words]))
