"""Threads: one at a time looks into a model, and each has its own models to itself."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Thread

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.curvature.objective import deterministic
from vitascope.models import create_model

THREADS = 3
MICRO = {"num_classes": 3, "img_size": 16, "embed_dim": 16, "num_heads": 4, "depth": 2}


def model_of(seed, name="vit_micro", **options):
    torch.manual_seed(seed)
    return create_model(name, **MICRO, **options).eval()


def images_of(seed):
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def elsewhere(call):
    """What ``call`` gives or raises in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def attention_of(model, images):
    with capture.attention(model) as maps:
        model(images)
    return maps


@pytest.mark.parametrize(
    "look",
    [
        lambda model: capture.attention(model),
        lambda model: capture.features(model, "blocks.0"),
        lambda model: capture.edit(model, {"blocks.0": torch.zeros_like}),
        lambda model: capture.evaluating(model),
        lambda model: capture.without(model, capture.units(model, images_of(0)), "blocks.0.mlp"),
        lambda model: deterministic(model),
    ],
    ids=["attention", "features", "edit", "evaluating", "without", "deterministic"],
)
def test_a_second_thread_is_refused_while_a_model_is_looked_into_and_welcome_after(look):
    model, images = model_of(0), images_of(0)
    with look(model):
        for part in (model, model.blocks[0].attn, nn.Sequential(model)):
            with pytest.raises(UserError, match="another thread is looking into this"):
                elsewhere(lambda part=part: capture.evaluating(part).__enter__())
        with pytest.raises(UserError, match="another thread"):
            elsewhere(lambda: attention_of(model, images))
        model(images)
        with capture.evaluating(model):  # the thread itself may look as often as it likes
            model(images)
    assert elsewhere(lambda: attention_of(model, images)).keys()


@pytest.mark.bit_exact("other threads run without noise")
def test_a_capture_in_one_of_many_threads_is_right_or_refused():
    model = model_of(0)
    right = {seed: attention_of(model, images_of(seed)) for seed in range(12)}

    def wrong(seed):
        try:
            found = attention_of(model, images_of(seed))
        except UserError:
            return None
        return any(not torch.equal(found[name], right[seed][name]) for name in right[seed])

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(wrong, range(12)))
    assert True not in answers
    assert False in answers  # somebody was first


@pytest.mark.bit_exact("other threads run without noise")
def test_runs_of_other_threads_are_not_seen_and_not_edited():
    model, images = model_of(0), images_of(0)
    other = images_of(1)
    expected, untouched = attention_of(model, images), model(other)
    with capture.attention(model) as maps, capture.features(model, "blocks.0") as seen:
        model(images)
        kept = dict(seen)
        elsewhere(lambda: model(other))
    assert all(torch.equal(maps[name], expected[name]) for name in expected)
    assert seen["blocks.0"] is kept["blocks.0"]
    with capture.edit(model, {"blocks.0": torch.zeros_like}):
        assert torch.equal(elsewhere(lambda: model(other)), untouched)
        model(other)


def test_runs_of_other_threads_through_a_fused_layer_are_not_seen():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    first, second = torch.randn(2, 1, 5, 8)
    expected = attention_of(model, first)["self_attn"]
    with capture.attention(model) as maps:
        model(first)
        elsewhere(lambda: model(second))
    torch.testing.assert_close(maps["self_attn"], expected)
    assert "forward" not in vars(model)


def test_two_looks_at_a_fused_layer_may_be_nested():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with capture.attention(model) as outer, capture.attention(model) as inner:
        model(torch.randn(1, 5, 8))
    torch.testing.assert_close(outer["self_attn"], inner["self_attn"])
    assert "forward" not in vars(model)


def test_different_models_in_different_threads_are_measured_as_one_after_the_other():
    models = [model_of(0), model_of(1), model_of(2, "convit_micro", num_gpsa_blocks=1)]
    labels = torch.tensor([0, 1, 2, 0])

    def measured(seed):
        batch = [(images_of(seed), labels)]
        return [
            measure.nonlocality(models[seed], batch).per_layer().tolist(),
            list(measure.variance(models[seed], batch).variance.values()),
            measure.landscape(models[seed], batch, grid=2).nll.ravel().tolist(),
            *measure.lesion(models[seed], batch).lost.values(),
        ]

    expected = [measured(seed) for seed in range(len(models))]
    start = Barrier(len(models))

    def together(seed):
        start.wait()
        return measured(seed)

    with ThreadPoolExecutor(len(models)) as pool:
        found = list(pool.map(together, range(len(models))))
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a == pytest.approx(b, rel=1e-5, abs=1e-6)


def test_threads_that_leave_in_any_order_leave_torchs_switches_as_they_were():
    switches = (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.math_sdp_enabled)
    before = [switch() for switch in switches]
    entered, left = Barrier(2), Barrier(2)

    def first():
        with deterministic(model_of(0)):
            entered.wait()
        left.wait()

    thread = Thread(target=first)
    with_second = deterministic(model_of(1))
    thread.start()
    entered.wait()
    with with_second:
        left.wait()  # the first, who switched, is out before the second
        assert not torch.backends.cuda.flash_sdp_enabled()
    thread.join()
    assert [switch() for switch in switches] == before


@pytest.mark.bit_exact("other threads run without noise")
def test_places_found_by_several_threads_leave_no_mode_on():
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [pool.submit(capture.token_coordinates, model_of(s), images_of(s)) for s in range(6)]
        assert all(job.result() for job in jobs)
    assert not is_in_torch_dispatch_mode()
