"""Fourier, variance, CKA, lesion and masking: closed forms, identities, parity."""

import cka as pytorch_cka
import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vitascope
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.ablation.masking import forced_gates, position_embeddings, without_positions
from vitascope.measure.features.cka import u_centred
from vitascope.measure.features.fourier import FLOOR, diagonal, log_amplitude, over_white_noise
from vitascope.measure.features.variance import spatial_variance

# --- Fourier ---------------------------------------------------------------------------------


def curve(x):
    """Of one map (h, w)."""
    return diagonal(log_amplitude(x[None, None])[0].double().numpy(), x.shape[1])


@pytest.mark.parametrize("size", [(8, 8), (8, 16), (12, 4)])
@pytest.mark.parametrize("half", [1, 2])
def test_a_single_sinusoid_gives_one_peak(size, half):
    """A wave at ``pi / half`` in both directions peaks there, and nowhere else."""
    h, w = size
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    frequency, value = curve(torch.cos(torch.pi / half * (y + x)))
    peak = int(value.argmax())
    assert frequency[peak] == pytest.approx(1 / half)
    assert value[peak] == pytest.approx(np.log(h * w / (2 if half == 2 else 1)), rel=1e-5)
    assert np.delete(value, peak).max() < value[peak] - 1


def test_the_curve_ends_at_nyquist_of_both_axes():
    half = np.arange(8)[:, None] * 100.0 + np.arange(9)  # names each of 8 x 16 frequencies
    frequency, value = diagonal(half, 16)
    assert frequency[-1] == 1
    assert value[-1] == 408
    assert value[0] == 0
    assert frequency[4] == 0.5
    assert value[4] == 204


def test_odd_sizes_are_read_between_the_two_nearest_frequencies():
    spectrum = np.log(np.abs(np.fft.fft2(np.random.default_rng(0).normal(size=(5, 5)))))
    _, value = diagonal(spectrum[:, :3], 5)
    corners = [spectrum[u, v] for u in (2, 3) for v in (2, 3)]
    assert value[-1] == pytest.approx(np.mean(corners))


def test_parseval_holds():
    x = torch.randn(2, 3, 6, 8, dtype=torch.float64)
    half = torch.fft.rfft2(x).abs()
    double = half.square().clone()
    double[..., 1:-1] *= 2  # the mirrored half
    torch.testing.assert_close(double.sum((2, 3)) / 48, x.square().sum((2, 3)))
    torch.testing.assert_close(log_amplitude(x), half.clamp(min=FLOOR).log().mean(1))


@pytest.mark.parametrize("size", [(8, 8), (7, 7), (6, 10), (9, 4)])
def test_white_noise_is_flat_at_every_frequency(size):
    """Means of 40,000 maps: their standard error is 0.006 at real coefficients, less elsewhere."""
    noise = torch.randn(40_000, 1, *size, generator=torch.Generator().manual_seed(0))
    half = log_amplitude(noise).double().mean(0).numpy()
    _, value = diagonal(over_white_noise(half, size[1]), size[1])
    assert np.abs(value - value[0]).max() < 0.04
    if size == (8, 8):  # without the correction it is (ln 2)/2 higher inside
        _, raw = diagonal(half, 8)
        expected = np.array([0, 1, 1, 1, 0]) * np.log(2) / 2
        np.testing.assert_allclose(raw - raw[0], expected, atol=0.04)


def released(x):
    """The half-diagonal of fourier_analysis.ipynb, of maps (B, C, h, w) with h = w."""
    shifted = torch.roll(
        torch.fft.fft2(x).abs().log(), (x.shape[2] // 2, x.shape[3] // 2), dims=(2, 3)
    )
    line = shifted.mean((0, 1)).diag()[x.shape[2] // 2 :]
    return (line - line[0]).numpy()


@pytest.mark.parametrize("size", [6, 7])
def test_the_released_end_gives_the_released_curve(size):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * size**2, 2))
    x = torch.randn(5, 3, size, size, generator=torch.Generator().manual_seed(0))
    found = measure.fourier(model, [x], end="released")
    with torch.no_grad():
        expected = released(model[0](x).double())
    (name,) = found.amplitude
    np.testing.assert_allclose(found.amplitude[name], expected, atol=1e-5)
    np.testing.assert_allclose(found.frequency[name], 2 * np.arange(len(expected)) / size)
    usual = measure.fourier(model, [x])
    assert usual.frequency[name][-1] == 1
    if size == 6:
        inner = usual.amplitude[name][1:-1] + np.log(2) / 2
        np.testing.assert_allclose(inner, expected[1:], atol=1e-6)
    with pytest.raises(UserError, match="unknown end"):
        measure.fourier(model, [x], end="pi")


def test_white_noise_is_at_0_and_a_blur_lowers_high_frequencies():
    class Blur(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 3, 1, bias=False)
            self.blur = nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular", bias=False, groups=3)
            self.head = nn.Linear(3, 2)
            nn.init.constant_(self.blur.weight, 1 / 9)
            nn.init.dirac_(self.stem.weight)

        def forward(self, x):
            return self.head(self.blur(self.stem(x)).mean((2, 3)))

    high = measure.fourier(Blur(), [torch.randn(64, 3, 16, 16)]).high
    assert abs(high["stem"]) < 0.2
    # the kernel's response at (pi, pi) is (1 - 2 + 1 - 2 + 4 - 2 + ...) / 9 = 1/9
    assert high["blur"] == pytest.approx(high["stem"] - np.log(9), abs=1e-3)


# --- variance --------------------------------------------------------------------------------


def test_variance_is_over_space_alone():
    x = torch.randn(4, 5, 6, 7, dtype=torch.float64)
    expected = ((x - x.mean((2, 3), keepdim=True)) ** 2).mean((1, 2, 3))
    torch.testing.assert_close(spatial_variance(x), expected)
    torch.testing.assert_close(spatial_variance(x + torch.randn(4, 5, 1, 1)), expected)
    assert spatial_variance(torch.ones(1, 2, 3, 3)).item() == 0


def test_variance_and_fourier_see_the_stream_without_class_tokens():
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, num_classes=2).eval()
    x = torch.randn(3, 3, 64, 64)
    with capture.features(model, "blocks.0") as seen:
        model(x)
    patches = seen["blocks.0"][:, 1:].mT.unflatten(2, (4, 4))
    found = measure.variance(model, [x[:2], x[2:]])
    expected = spatial_variance(patches).mean().item()
    assert found.variance["blocks.0.mlp"] == pytest.approx(expected, rel=1e-5)
    spectrum = log_amplitude(patches).mean(0).double().numpy()
    _, value = diagonal(over_white_noise(spectrum, 4), 4)
    result = measure.fourier(model, [x])
    np.testing.assert_allclose(result.amplitude["blocks.0.mlp"], value - value[0], atol=1e-5)
    assert result.kind["blocks.0.mlp"] == "mlp"


# --- CKA -------------------------------------------------------------------------------------


def dense_hsic(x, y):
    """The definition, term by term."""
    n = len(x)
    kx, ky = x @ x.T, y @ y.T
    kx.fill_diagonal_(0)
    ky.fill_diagonal_(0)
    one = torch.ones(n, dtype=x.dtype)
    value = torch.trace(kx @ ky) + (one @ kx @ one) * (one @ ky @ one) / ((n - 1) * (n - 2))
    return (value - 2 / (n - 2) * (one @ kx @ ky @ one)) / (n * (n - 3))


def test_hsic_is_the_inner_product_of_centred_grams():
    x, y = torch.randn(7, 5, dtype=torch.float64), torch.randn(7, 9, dtype=torch.float64) + 3
    product = u_centred(x) @ u_centred(y) / (7 * 4)
    torch.testing.assert_close(product, dense_hsic(x, y))


class Layers(nn.Module):
    """Three convolutions in a row."""

    def __init__(self, width=4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.a = nn.Conv2d(width, width, 3, padding=1)
        self.b = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.b(self.a(self.stem(x)).relu()).relu()
        return self.head(x.mean((2, 3)))


def test_minibatch_cka_is_the_dense_one_summed_before_the_division():
    model, batches = Layers().eval(), [torch.randn(6, 3, 5, 5), torch.randn(8, 3, 5, 5)]
    found = measure.cka(model, batches)
    assert found.rows == found.columns == ("stem", "a", "b", "head")
    sums = {}
    for images in batches:
        with capture.features(model, list(found.rows)) as seen:
            model(images)
        flat = {n: f.flatten(1).double() for n, f in seen.items()}
        for pair in [("stem", "b"), ("stem", "stem"), ("b", "b")]:
            sums[pair] = sums.get(pair, 0) + dense_hsic(flat[pair[0]], flat[pair[1]])
    expected = sums["stem", "b"] / (sums["stem", "stem"] * sums["b", "b"]).sqrt()
    assert found.similarity[0, 2] == pytest.approx(expected.item(), rel=1e-9)


def test_cka_of_a_model_with_itself_is_one_on_the_diagonal_and_symmetric():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5)
    found = measure.cka(model, [torch.randn(8, 3, 32, 32)]).similarity
    np.testing.assert_allclose(np.diag(found), 1, rtol=1e-12)
    np.testing.assert_allclose(found, found.T, rtol=1e-12)


def test_cka_is_unchanged_by_rotation_and_scale():
    x, y = torch.randn(9, 6, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]

    def similarity(a, b):
        a, b = u_centred(a), u_centred(b)
        return a @ b / (a.norm() * b.norm())

    torch.testing.assert_close(similarity(3 * x @ rotation + 2, y), similarity(x, y))


def test_independent_features_have_a_cka_about_zero_and_batches_do_not_bias_it():
    whole = similarity_of(torch.randn(512, 20), torch.randn(512, 30), 512)
    split = [similarity_of(torch.randn(512, 20), torch.randn(512, 30), 8) for _ in range(10)]
    assert abs(whole) < 0.05
    assert abs(np.mean(split)) < 0.05  # the biased estimate is 0.8 here


def test_minibatches_give_the_full_batch_in_expectation():
    x = torch.randn(512, 20)
    y = torch.cat([x[:, :6] + 0.5 * torch.randn(512, 6), torch.randn(512, 14)], 1)
    whole = similarity_of(x, y, 512)
    assert 0.1 < whole < 0.9
    for size in (8, 32):
        order = [torch.randperm(512) for _ in range(6)]
        split = np.mean([similarity_of(x[rows], y[rows], size) for rows in order])
        assert split == pytest.approx(whole, abs=0.03)


def similarity_of(x, y, size):
    xs, ys = ([u_centred(part) for part in features.split(size)] for features in (x, y))
    cross = sum(a @ b for a, b in zip(xs, ys, strict=True))
    own = [sum(a @ a for a in side) for side in (xs, ys)]
    return float(cross / (own[0] * own[1]).sqrt())


@pytest.mark.parametrize("same", [True, False])
def test_cka_agrees_with_pytorch_cka(same):
    first, second = Layers(4).eval().double(), Layers(6).eval().double()
    images = torch.randn(24, 3, 6, 6).double()  # it keeps the precision it is given
    loader = DataLoader(TensorDataset(images), batch_size=8)
    names = ["stem", "a", "b", "head"]
    other = first if same else second
    expected = pytorch_cka.compute_cka(
        first, other, loader, layers=names, model2_layers=names, progress=False
    )[0]
    found = measure.cka(first, loader, other=None if same else second).similarity
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


def test_cka_never_gives_nan():
    model = Layers()
    with pytest.raises(UserError, match="at least 4"):
        measure.cka(model, [torch.randn(3, 3, 5, 5)])
    with pytest.raises(UserError, match="the same for all images"):
        measure.cka(model, [torch.ones(5, 3, 5, 5)])
    nn.init.constant_(model.head.weight, float("nan"))
    broken = measure.cka(model, [torch.randn(5, 3, 5, 5)])
    assert set(broken.left_out) == {"head"}
    assert broken.rows == ("stem", "a", "b")
    assert np.isfinite(broken.similarity).all()
    with pytest.raises(UserError, match="stream, unit"):
        measure.cka(model, [torch.randn(5, 3, 5, 5)], at="moon")


def test_cka_leaves_out_a_unit_that_fails_in_any_batch_and_gives_the_rest_alike():
    model, other = Layers().eval(), Layers(6).eval()
    batches = [torch.randn(5, 3, 5, 5), torch.randn(5, 3, 5, 5)]
    whole = measure.cka(model, batches, other=other)
    runs = []

    def same_in_the_second(_module, _inputs, output):
        runs.append(output)
        return output if len(runs) % 2 else output * 0 + 1

    nn.Module.register_forward_hook(model.head, lambda _, x, out: out[:1].expand(5, -1))
    nn.Module.register_forward_hook(other.head, same_in_the_second)
    found = measure.cka(model, batches, other=other)
    assert set(found.left_out) == {"head", "head (other)"}
    assert found.rows == found.columns == ("stem", "a", "b")
    np.testing.assert_allclose(found.similarity, whole.similarity[:3, :3], rtol=1e-9)
    assert found.row_kinds == whole.row_kinds[:3]


# --- lesion ----------------------------------------------------------------------------------


def test_a_lesion_is_the_accuracy_of_the_network_without_the_unit():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=4).eval()
    nn.init.normal_(model.head.weight)
    for block in model.blocks:
        nn.init.normal_(block.attn.proj.weight)
    images = torch.randn(32, 3, 32, 32)
    with torch.no_grad():
        labels = model(images).argmax(1)
    called = []
    result = measure.lesion(
        model, [(images, labels)], on_unit=lambda name, ahead: called.append((name, ahead))
    )
    assert result.intact == 1
    assert (
        list(result.lost)
        == [name for name, _ in called[:-1]]
        == [f"blocks.{i}.{u}" for i in (0, 1) for u in ("attn", "mlp")]
    )
    assert [ahead for _, ahead in called] == [5, 4, 3, 2, 1]
    model.blocks[0].attn = Zero()
    with torch.no_grad():
        expected = (model(images).argmax(1) == labels).float().mean().item()
    assert result.accuracy["blocks.0.attn"] == pytest.approx(expected)
    assert result.lost["blocks.0.attn"] == pytest.approx(1 - expected)
    assert expected < 1


class Zero(nn.Module):
    def forward(self, x, **_):
        return torch.zeros_like(x)


def test_units_that_cannot_be_dropped_are_listed_or_refused():
    model = timm.create_model("levit_128s", img_size=32, depth=(1, 1, 1), num_classes=3)
    batches = [(torch.randn(2, 3, 32, 32), torch.tensor([0, 1]))]
    result = measure.lesion(model, batches)
    assert set(result.kept) == {f"stages.{i}.downsample.attn_downsample" for i in (1, 2)}
    assert set(result.kept).isdisjoint(result.accuracy)
    with pytest.raises(UserError, match="cannot be dropped"):
        measure.lesion(model, batches, units="stages.1.downsample.attn_downsample")
    with pytest.raises(UserError, match="labels"):
        measure.lesion(model, [batches[0][0]])


# --- masking ---------------------------------------------------------------------------------


def ours():
    return vitascope.create_model("convit_micro", num_classes=3)


def timms():
    return timm.create_model(
        "convit_tiny", img_size=32, depth=4, local_up_to_layer=3, num_classes=3
    )


@pytest.mark.parametrize("make", [ours, timms])
@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_a_forced_gate_leaves_one_part_alone_and_comes_back(make, gate):
    model, x = make().eval(), torch.randn(2, 3, 32, 32)
    gated = capture.gated_layers(model)
    name, layer = next(iter(gated.items()))
    before = layer.gating_param.detach().clone()
    with forced_gates([layer], gate):
        maps = {}
        for part in ("content", "position", "mixed"):
            with capture.attention(model, name, part=part) as maps[part]:
                model(x)
    torch.testing.assert_close(
        maps["mixed"][name], maps["position" if gate else "content"][name], atol=1e-6, rtol=1e-5
    )
    assert torch.equal(layer.gating_param, before)
    assert getattr(layer, "forced_gate", None) is None


@pytest.mark.parametrize("make", [ours, timms])
def test_masking_runs_both_tables_and_puts_everything_back(make):
    model = make()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    images = torch.randn(8, 3, 32, 32)
    with capture.evaluating(model):
        labels = model(images).argmax(1)
    result = measure.masking(model, [(images, labels)])
    assert result.unmasked == 1
    assert result.no_positions is not None
    for gate, part in ((1.0, "content_masked"), (0.0, "position_masked")):
        with capture.evaluating(model), forced_gates(capture.gated_layers(model).values(), gate):
            answers = model(images).argmax(1)
        assert getattr(measure.masking(model, [(images, answers)]), part)[3] == 1.0
    assert list(result.content_masked) == list(result.position_masked) == [1, 2, 3]
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    with pytest.raises(UserError, match="there are 3"):
        measure.masking(model, [(images, labels)], first=[4])


def test_positions_are_off_inside_and_back_after_an_exception():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=2)
    before = model.pos_embed.detach().clone()
    with pytest.raises(RuntimeError, match="inside"), without_positions(model):
        assert model.pos_embed.abs().sum() == 0
        raise RuntimeError("inside")
    assert torch.equal(model.pos_embed, before)


def test_without_positions_a_vit_does_not_mind_where_patches_are():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=2).eval()
    x = torch.randn(1, 3, 32, 32)
    moved = x.roll(16, dims=-1)
    with torch.no_grad():
        assert not torch.allclose(model(x), model(moved), atol=1e-6)
        with without_positions(model):
            torch.testing.assert_close(model(x), model(moved), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "pos_embed",
        "vit.embeddings.position_embeddings",
        "encoder.pos_embedding",
        "pos_embed1",
        "absolute_pos_embed",
        "vision_model.embeddings.position_embedding.weight",
        "pos_embed.0",
    ],
)
def test_position_embeddings_are_known_by_name(name):
    model = nn.Module()
    *path, leaf = name.split(".")
    holder = model
    for part in path:
        holder.add_module(part, nn.Module())
        holder = holder.get_submodule(part)
    if leaf.isdigit():
        model.add_module(path[0], nn.ParameterList([torch.zeros(1)]))
    else:
        holder.register_parameter(leaf, nn.Parameter(torch.zeros(1)))
    model.register_parameter("relative_position_bias_table", nn.Parameter(torch.zeros(1)))
    model.register_parameter("pos_proj", nn.Parameter(torch.zeros(1)))
    assert list(position_embeddings(model)) == [name]


def test_masking_refuses_a_model_with_nothing_to_mask():
    with pytest.raises(UserError, match="neither"):
        measure.masking(Layers(), [(torch.randn(1, 3, 5, 5), torch.zeros(1))])
    with pytest.raises(UserError, match="0 or 1"), forced_gates([], 0.5):
        pass
