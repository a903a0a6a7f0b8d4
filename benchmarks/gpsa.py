"""ConViT against timm's ConViT and a ViT of the same width: `vitascope bench gpsa`.

The record goes beside this file unless --out says otherwise. Takes about half an hour on two cores.
"""

import sys
from os.path import relpath
from pathlib import Path

if __name__ == "__main__":
    sys.path.pop(0)  # this folder's inspect.py must not stand in for Python's own
    from vitascope.cli import main

    words = sys.argv[1:]
    if "--out" not in words:
        words += ["--out", relpath(Path(__file__).parent / "records" / "gpsa")]
    sys.exit(main(["bench", "gpsa", *words]))
