"""Attention while a model trains: in plain PyTorch, Lightning and the Trainer of Hugging Face."""

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import vitascope
from model_making import small_vit
from page_reading import blocks
from vitascope.record import load

STEPS = 6


def images(count=8):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 1, 8, 8, generator=generator), torch.arange(count) % 3


def model():
    torch.manual_seed(0)
    return small_vit(num_classes=3, drop_path_rate=0.2)


def trained(watch_with=None):
    """A plain loop with gradient accumulation; the watch looks between two backward passes."""
    network, (batch, labels) = model().train(), images()
    watch = watch_with(network) if watch_with else None
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    torch.manual_seed(3)
    for step in range(STEPS):
        nn.functional.cross_entropy(network(batch), labels).backward()
        if watch:
            watch(step)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    return network, watch


def test_a_watched_training_ends_with_the_same_bits(tmp_path):
    alone, _ = trained()
    batch, _ = images(2)

    def watching(network):
        measures = ("nonlocality", "entropy")
        return vitascope.AttentionWatch(network, batch, measures=measures, every=2, out=tmp_path)

    watched, watch = trained(watching)
    for (name, first), second in zip(
        alone.state_dict().items(), watched.state_dict().values(), strict=True
    ):
        assert torch.equal(first, second), name
    assert watched.training
    assert list(watch.maps) == [0, 2, 4]
    assert set(watch.records[4]) == {"nonlocality", "entropy"}
    assert load(tmp_path / "step-000004" / "entropy").kind == "entropy"


def test_the_maps_are_those_of_the_weights_at_that_step():
    batch, _ = images(2)
    network, watch = trained(lambda m: vitascope.AttentionWatch(m, batch))
    assert watch(99)
    with torch.no_grad(), vitascope.capture.attention(network.eval()) as maps:
        network(batch)
    for name, weights in maps.items():
        torch.testing.assert_close(watch.maps[99][name].float(), weights, atol=1e-3, rtol=1e-3)
        assert not torch.allclose(watch.maps[0][name].float(), weights, atol=1e-3)


def test_only_the_layers_that_are_named_are_kept():
    batch, _ = images(2)
    watch = vitascope.AttentionWatch(model(), batch, layers="blocks.0.*")
    watch(0)
    assert list(watch.maps[0]) == ["blocks.0.attn"]


def example(title):
    """The code of the page below a heading."""
    from pathlib import Path

    page = Path(__file__).parents[1] / "docs" / "attention-while-training.md"
    (code,) = [code for code in blocks(page, "python") if title in code]
    return code


class Few(Dataset):
    """Images as the Trainer of Hugging Face wants them."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        batch, labels = images()
        return {"pixel_values": batch[index], "labels": int(labels[index])}


def test_the_example_with_plain_pytorch_runs():
    batch, labels = images()
    names = {"model": model(), "loader": [(batch, labels)] * 3, "few_images": batch[:2]}
    exec(compile(example("for step,"), "page", "exec"), names)
    assert list(names["watch"].maps) == [0]


def test_the_example_with_lightning_runs():
    pytest.importorskip("lightning")
    from torch.utils.data import DataLoader, TensorDataset

    batch, labels = images()
    names = {
        "model": model(),
        "loader": DataLoader(TensorDataset(batch, labels), batch_size=4),
        "few_images": batch[:2],
    }
    exec(compile(example("import lightning"), "page", "exec"), names)
    assert len(names["watch"].maps) == 1
    assert "blocks.0.attn" in names["watch"].maps[0]


def test_the_example_with_the_trainer_of_hugging_face_runs(tmp_path, monkeypatch):
    from transformers import ViTConfig, ViTForImageClassification

    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        image_size=8,
        patch_size=4,
        num_channels=1,
        num_labels=3,
    )
    names = {
        "model": ViTForImageClassification(config),
        "train_set": Few(),
        "few_images": images()[0][:2],
    }
    exec(compile(example("TrainerCallback"), "page", "exec"), names)
    assert list(names["watch"].maps)
    assert all(weights.shape[-1] == 5 for weights in names["watch"].maps[0].values())
