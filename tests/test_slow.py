"""What takes minutes: the first claim of the first paper, trained, and a large model's page."""

import pytest

from vitascope.commands import main
from vitascope.record import load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def test_on_few_images_built_in_locality_is_ahead_beyond_the_noise(tmp_path):
    """ConViT, Table 2, as the laptop studies have it: +19 points with a tenth of the digits."""
    words = "compare --data digits --models vit_micro convit_micro --fractions 0.1 --epochs 20"
    assert main([*words.split(), "--seeds", "0", "1", "--out", str(tmp_path), "--quiet"]) == 0
    record = load(tmp_path / "compare")
    (row,) = record.values["table"]
    ours = {entry["model"]: entry for entry in row["entries"]}
    assert ours["convit_micro"]["mean"] > ours["vit_micro"]["mean"] + 10
    assert record.values["recommendation"]["model"] == "convit_micro"
    assert record.values["recommendation"]["confidence"] == "clear"


SHARP = """
import timm, torch

def vit_base():
    torch.manual_seed(0)
    model = timm.create_model("vit_base_patch16_224")
    for block in model.blocks:  # attention as sharp as after training: near uniform is small
        block.attn.qkv.weight.data *= 8
    return model
"""


def test_the_page_of_a_large_model_stays_below_its_limit_and_says_what_it_left_out(
    tmp_path, monkeypatch
):
    (tmp_path / "sharp.py").write_text(SHARP)
    monkeypatch.syspath_prepend(tmp_path)
    words = "inspect sharp:vit_base --data digits --image-size 224 --measures explorer --images 2"
    assert main([*words.split(), "--quiet", "--out", str(tmp_path)]) == 0
    record, page = load(tmp_path / "explorer"), tmp_path / "report.html"
    assert page.stat().st_size < 5_000_000
    assert 0 < len(record.values["layers"]) < 12
    text = page.read_text(encoding="utf-8")
    assert record.values["left_out"]
    assert all(name in text for name in record.values["left_out"])
