"""Python functions called with what nobody meant: each call works or is refused in one sentence.

A case is a call with arguments that work, of which most cases replace one by something odd. The
cases of a run are new each time; the seed in a failure's message gives them again
(``FUZZ_SEED=... pytest tests/test_fuzz_python.py``).
"""

import os
import random
import secrets
import warnings
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

import vitascope
from fuzzing import run_cases
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.stats import difference, recommend

ODD = (
    None, True, -1, 0, 3, 10**30, 1.5, float("nan"), float("inf"), "", "x", "\0", "../../x", b"x",
    [], {}, [[]], [None], [1, "a"], {"name": None}, object(), Path("nowhere"), np.zeros(0),
    np.zeros((2, 2)), torch.zeros(0), torch.zeros(3), torch.full((1, 3, 8, 8), torch.nan), len,
)  # fmt: skip
IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELLED = [(IMAGES, torch.arange(4))]
MODEL = vitascope.create_model("convit_micro", depth=2, num_gpsa_blocks=1).eval()
NAMED = {"model": "convit_micro", "data": IMAGES, "batch_size": 4, "quiet": True}
PIXELS = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
SPREAD = np.arange(40).reshape(2, 20) % 3 == 0


def measured(name, **options):
    first = MODEL, (LABELLED if options.pop("labels", False) else IMAGES)
    return (
        getattr(measure, name),
        dict(zip(("model", "batches"), first, strict=True)) | options,
    )


def inside(name, **options):
    """A function of `capture` whose first arguments are positional."""
    return lambda model, images, **more: getattr(capture, name)(model, images, **more), {
        "model": MODEL,
        "images": IMAGES[:1],
        **options,
    }


CALLS = {
    "create_model": (vitascope.create_model, {"name": "vit_micro", "num_classes": 3, "depth": 1}),
    "list_models": (vitascope.list_models, {"pattern": "convit_*"}),
    "broadcast": (
        lambda model, **options: vitascope.broadcast(deepcopy(model), **options),
        {"model": MODEL, "kind": "cb", "position": "end", "where": "mlp"},
    ),
    "inspect": (
        lambda model, **options: vitascope.inspect(model, **options),
        {**NAMED, "measures": "gates", "layers": "*", "seed": 0, "device": "cpu"},
    ),
    "evaluate": (
        lambda model, **options: vitascope.evaluate(model, **options),
        {**NAMED, "data": LABELLED, "num_bins": None, "seed": 0, "device": "cpu"},
    ),
    "nonlocality": measured("nonlocality", layers="*"),
    "entropy": measured("entropy", layers="*"),
    "fourier": measured("fourier", units="*"),
    "norms": measured("norms", units="*"),
    "cka": measured("cka", units="*"),
    "lesion": measured("lesion", labels=True),
    "calibration": measured("calibration", labels=True, num_bins=5),
    "fgsm": measured("fgsm", labels=True, epsilons=(0.1,), **PIXELS),
    "occlusion": measured("occlusion", labels=True, sizes=(0.5,), **PIXELS),
    "frequency": measured("frequency", labels=True, frequencies=(0.5,), **PIXELS),
    "units": inside("units"),
    "token_coordinates": inside("token_coordinates"),
    "prefix_tokens": inside("prefix_tokens"),
    "show": (vitascope.show, {"image": np.zeros((8, 8, 3)), "map": np.eye(17), "query": 3}),
    "difference": (difference, {"first": SPREAD, "second": ~SPREAD}),
    "recommend": (
        recommend,
        {"correct": {"a": SPREAD, "b": ~SPREAD}, "cost": {"a": 1.0, "b": 2.0}, "margin": 1.0},
    ),
}


def case(seed):
    def run(number, folder):
        rng = random.Random(f"{seed}-{number}")
        name = rng.choice(sorted(CALLS))
        function, usual = CALLS[name]
        arguments, valid = dict(usual), rng.random() < 0.25
        if not valid:
            arguments[rng.choice(sorted(usual))] = rng.choice(ODD)
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                function(**arguments)
            except UserError:
                if valid:
                    raise
                return "refused"
        return "valid" if valid else "taken"

    return run


@pytest.mark.parametrize("count", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_call_works_or_is_refused_in_a_sentence(count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seed = os.environ.get("FUZZ_SEED") or secrets.token_hex(4)
    met, wrong = run_cases(case(seed), range(count), tmp_path / "cases")
    assert not wrong, f"FUZZ_SEED={seed}: {len(wrong)} of {count}\n" + "\n".join(wrong[:5])
    assert met["valid"] > count / 6
