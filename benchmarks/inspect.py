"""The instruments against a plain pass, CKA against its peers: `vitascope bench inspect`.

The record goes beside this file unless --out says otherwise. Takes about five minutes on one core,
and some more where torch-cka is installed.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Python has an `inspect` of its own, and must find that one.
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]

from vitascope.cli import main  # noqa: E402

if __name__ == "__main__":
    words = sys.argv[1:]
    if "--out" not in words:
        words += ["--out", os.path.relpath(os.path.join(HERE, "records", "inspect"))]
    sys.exit(main(["bench", "inspect", *words]))
