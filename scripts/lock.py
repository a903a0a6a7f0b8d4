"""Write constraints.txt: a pin for every package that pip found to install.

    pip install --dry-run --ignore-installed --report report.json '.[test]'
    python scripts/lock.py report.json constraints.txt

Pins are plain versions, so that they hold wherever torch comes from: no hashes, no ``+cpu``, and
nothing of the GPU packages that only some builds of torch ask for.
"""

import json
import re
import sys
from pathlib import Path

GPU = re.compile(r"(nvidia|cuda|triton|pytorch-triton)(-|$)")
HEADER = """\
# The versions Vitascope is tested with; `make` installs these. Written by `make lock` on Linux
# x86-64 with Python 3.11; what only other systems ask for is not among them.
"""


def canonical(name: str) -> str:
    """A package's name as indexes spell it: ``PyYAML`` and ``pyyaml`` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def on_gpu(name: str) -> bool:
    """Whether the package is there for GPUs alone."""
    return GPU.match(canonical(name)) is not None


def pins(report: dict) -> list[str]:
    """``name==version`` for every package of pip's report but ourselves, by name."""
    found = {}
    for item in report["install"]:
        name = canonical(item["metadata"]["name"])
        if name != "vitascope" and not on_gpu(name):
            found[name] = item["metadata"]["version"].partition("+")[0]
    return [f"{name}=={version}" for name, version in sorted(found.items())]


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    lines = pins(json.loads(source.read_text(encoding="utf-8")))
    target.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{target}: {len(lines)} packages")
