"""The instruments against a plain pass, CKA against its peers: `vitascope bench inspect`.

The record goes beside this file unless --out says otherwise. Takes about five minutes on one core,
and ten more where torch-cka is installed.
"""

import sys
from pathlib import Path

from vitascope.cli import main

if __name__ == "__main__":
    words = sys.argv[1:]
    if "--out" not in words:
        words += ["--out", str(Path(__file__).parent / "records" / "inspect")]
    sys.exit(main(["bench", "inspect", *words]))
