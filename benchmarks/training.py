"""The training loop against bare steps and timm's loader: `vitascope bench training`.

The record goes beside this file unless --out says otherwise. Takes about three minutes on one core.
"""

import sys
from pathlib import Path

from vitascope.cli import main

if __name__ == "__main__":
    words = sys.argv[1:]
    if "--out" not in words:
        words += ["--out", str(Path(__file__).parent / "records" / "training")]
    sys.exit(main(["bench", "training", *words]))
