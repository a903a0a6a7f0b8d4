"""Reading and writing weights, safely."""

import pickle

import pytest
import torch

from vitascope import create_model
from vitascope.errors import UserError
from vitascope.models.weights import load_weights, read_state, save_weights, to_timm


@pytest.fixture
def model():
    return create_model("convit_micro", num_classes=3)


def assert_same(a, b):
    for name, value in a.state_dict().items():
        torch.testing.assert_close(b.state_dict()[name], value, rtol=0, atol=0)


def test_weights_come_back_from_a_file(model, tmp_path):
    save_weights(model, tmp_path / "a.safetensors")
    other = create_model("convit_micro", num_classes=3)
    assert_same(model, load_weights(other, tmp_path / "a.safetensors"))
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize(
    "wrap", [dict, lambda s: {"model": s, "epoch": 3}, lambda s: {"state_dict": s}]
)
def test_checkpoints_of_other_trainings_are_unwrapped(model, tmp_path, wrap):
    state = {f"module.{name}": value for name, value in to_timm(model.state_dict()).items()}
    torch.save(wrap(state), tmp_path / "a.pth")
    other = create_model("convit_micro", num_classes=3)
    assert_same(model, load_weights(other, tmp_path / "a.pth"))


class Trap:
    """What an evil checkpoint does."""

    def __reduce__(self):
        return (print, ("code of a stranger ran",))


def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path, capsys):
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"model": Trap()}))
    torch.save({"model": Trap()}, tmp_path / "evil2.pth")
    for name in ("evil.pth", "evil2.pth"):
        with pytest.raises(UserError, match="refused|not a file of weights"):
            read_state(tmp_path / name)
    assert "stranger" not in capsys.readouterr().out


def test_what_does_not_fit_leaves_the_model_as_it_was(model, tmp_path):
    save_weights(create_model("convit_micro", num_classes=4), tmp_path / "a.safetensors")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError, match=r"head.bias is \(4,\) in the file and \(3,\)"):
        load_weights(model, tmp_path / "a.safetensors")
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["nothing.safetensors", "nothing.pth"])
def test_a_missing_or_broken_file_is_one_clear_error(tmp_path, name):
    with pytest.raises(UserError, match="no weights at"):
        read_state(tmp_path / name)
    (tmp_path / name).write_bytes(b"not weights")
    with pytest.raises(UserError, match="not a file of weights|refused"):
        read_state(tmp_path / name)
