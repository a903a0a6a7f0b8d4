"""The training loop against bare steps and timm's loader: `vitascope bench training`.

The record goes beside this file unless --out says otherwise. Takes about three minutes on one core.
"""

import sys
from os.path import relpath
from pathlib import Path

if __name__ == "__main__":
    sys.path.pop(0)  # this folder's inspect.py must not stand in for Python's own
    from vitascope.cli import main

    words = sys.argv[1:]
    if "--out" not in words:
        words += ["--out", relpath(Path(__file__).parent / "records" / "training")]
    sys.exit(main(["bench", "training", *words]))
