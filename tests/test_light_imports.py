"""Corruptions and neighbourhood attention can be used without the rest of the library."""

import subprocess
import sys
from pathlib import Path

import pytest

from page_reading import blocks

HEAVY = ("timm", "torchvision", "matplotlib", "accelerate", "sklearn", "transformers")
USES = {
    "corruptions": """
import torch
from vitascope.measure.robustness.corruptions import CORRUPTIONS, corrupt
assert len(CORRUPTIONS) == 15
""",
    "neighbourhood attention": """
import torch
from vitascope.layers import neighborhood_attention
q = k = v = torch.randn(1, 2, 1 + 16, 4)
assert neighborhood_attention(q, k, v, (4, 4), 3).shape == q.shape
""",
}


@pytest.mark.parametrize("use", USES)
def test_it_imports_none_of_the_heavy_libraries(use):
    code = f"{USES[use]}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_examples_of_the_page_run(capsys):
    page = Path(__file__).parents[1] / "docs" / "alone.md"
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "torch.Size([4, 3, 64, 64]) torch.uint8 15",
        "torch.Size([2, 3, 1024, 64])",
    ]
