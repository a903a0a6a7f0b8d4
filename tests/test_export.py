"""ConViT outside of eager PyTorch: compiled, exported, in ONNX."""

import numpy as np
import pytest
import torch

from model_making import randomised
from vitascope import create_model


@pytest.fixture
def model():
    model = create_model(
        "convit_micro", img_size=16, embed_dim=36, depth=2, num_gpsa_blocks=1, num_classes=5
    ).eval()
    return randomised(model, 0.05)


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16)


@pytest.mark.slow
def test_compiled_without_a_graph_break_it_gives_the_same(model, images):
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), model(images))
    compiled(images).sum().backward()
    assert model.blocks[0].attn.gating_param.grad.abs().max() > 0


def test_exported_with_a_free_batch_size_it_gives_the_same(model, images):
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (images,), dynamic_shapes={"x": {0: batch}})
    others = torch.randn(5, 3, 16, 16)
    torch.testing.assert_close(program.module()(others), model(others))


def test_a_pruned_model_exports_too(model, images):
    with torch.no_grad():
        model.blocks[0].attn.gating_param.copy_(torch.tensor([40.0, -40, 0, 40, 0, 0, -40, 0, 0]))
    pruned = model.prune_gates()
    program = torch.export.export(pruned, (images,))
    torch.testing.assert_close(program.module()(images), model(images))


def test_onnx_gives_the_same(model, images, tmp_path):
    import onnxruntime  # writes files of its own when imported: only here

    program = torch.onnx.export(model, (images,), dynamo=True, verbose=False)
    program.save(tmp_path / "convit.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "convit.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    np.testing.assert_allclose(found, model(images).detach().numpy(), rtol=1e-4, atol=1e-5)
