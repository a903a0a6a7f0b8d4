"""Reading and writing weights, safely."""

import pickle
import zipfile

import numpy as np
import pytest
import torch

from vitascope import create_model
from vitascope.errors import UserError
from vitascope.models.weights import check_weights, load_weights, read_state, to_timm
from vitascope.training.run_folder.lock import save_tensors


@pytest.fixture
def model():
    return create_model("convit_micro", num_classes=3)


def assert_same(a, b):
    for name, value in a.state_dict().items():
        torch.testing.assert_close(b.state_dict()[name], value, rtol=0, atol=0)


def test_weights_come_back_from_a_file(model, tmp_path):
    save_tensors(tmp_path / "a.safetensors", model.state_dict())
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
    save_tensors(
        tmp_path / "a.safetensors", create_model("convit_micro", num_classes=4).state_dict()
    )
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


def test_a_file_that_contains_itself_is_refused_at_once(tmp_path):
    around = {"epoch": 3}
    around["model"] = around
    torch.save(around, tmp_path / "a.pth")
    first, second = {}, {"state_dict": None}
    first["model"], second["state_dict"] = second, first
    torch.save(first, tmp_path / "b.pth")
    row = []
    row.append(row)
    torch.save({"model": row}, tmp_path / "c.pth")
    for name in ("a.pth", "b.pth", "c.pth"):
        with pytest.raises(UserError, match="holds no state dict"):
            read_state(tmp_path / name)


def test_two_wrappers_are_taken_off_and_no_more(model, tmp_path):
    state = model.state_dict()
    torch.save({"state_dict": {"model": state}}, tmp_path / "a.pth")
    assert read_state(tmp_path / "a.pth").keys() == state.keys()
    torch.save({"state_dict": {"model": {"model": state}}}, tmp_path / "b.pth")
    with pytest.raises(UserError, match="holds no state dict"):
        read_state(tmp_path / "b.pth")


@pytest.mark.parametrize("state", [{1: torch.zeros(2)}, {"a": 3}, [torch.zeros(2)], 3, None])
def test_what_is_no_state_dict_is_refused(tmp_path, state):
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(UserError, match="holds no state dict"):
        read_state(tmp_path / "a.pth")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused_by_name(model, tmp_path, value):
    broken = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    broken["blocks.1.norm1.weight"][3] = value
    torch.save(broken, tmp_path / "a.pth")
    before = model.blocks[1].norm1.weight.clone()
    with pytest.raises(UserError, match=r"blocks.1.norm1.weight has 1 values of 72"):
        load_weights(model, tmp_path / "a.pth")
    torch.testing.assert_close(model.blocks[1].norm1.weight, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.to("meta"), "weight is sparse, quantized, nested or without values"),
        (lambda w: w.to_sparse(), "weight is sparse"),
        (lambda w: w.to_sparse_csr(), "weight is sparse"),
        (lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.qint8), "weight is sparse, quant"),
        (lambda w: torch.nested.nested_tensor([w[0], w[1]]), "weight is sparse, quant"),
        (lambda w: w.to(torch.complex64), "weight is complex"),
    ],
)
def test_tensors_of_another_kind_are_refused_by_name(tmp_path, change, words):
    torch.save({"weight": change(torch.ones(2, 2))}, tmp_path / "a.pth")
    with pytest.raises(UserError, match=words):
        load_weights(torch.nn.Linear(2, 2, bias=False), tmp_path / "a.pth")


def test_an_archive_that_unpacks_to_more_than_its_length_is_refused(tmp_path):
    torch.save({"weight": torch.zeros(2**20)}, tmp_path / "a.pth")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as plain,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    assert read_state(tmp_path / "a.pth")["weight"].shape == (2**20,)
    with pytest.raises(UserError, match="unpacks to 4,19.,... bytes; write it again"):
        read_state(tmp_path / "b.pth")


def test_a_buffer_may_mask_with_minus_infinity_but_not_with_nan():
    net = torch.nn.BatchNorm1d(2)
    net.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    check_weights(net, "net")
    net.running_var[0] = float("inf")
    with pytest.raises(UserError, match="net: running_var"):
        check_weights(net, "net")


def test_damaged_files_are_one_line(model, tmp_path):
    torch.save(model.state_dict(), tmp_path / "good.pth")
    raw = (tmp_path / "good.pth").read_bytes()
    rng, said = np.random.default_rng(0), []
    for case in range(40):
        damaged = bytearray(raw[: int(rng.integers(1, len(raw)))] if case % 2 else raw)
        places = rng.integers(0, len(damaged) if case % 4 else 4000, 20)
        for place in places[places < len(damaged)]:
            damaged[place] = int(rng.integers(256))
        (tmp_path / "bad.pth").write_bytes(damaged)
        try:
            read_state(tmp_path / "bad.pth")  # a flipped bit of a weight may go through
        except UserError as error:
            said.append(str(error))
    assert len(said) > 20
    assert not [words for words in said if "\n" in words]


def test_weights_that_nobody_released_are_one_clear_error():
    with pytest.raises(UserError, match="no pretrained weights for resnet_micro"):
        create_model("resnet_micro", pretrained=True)
