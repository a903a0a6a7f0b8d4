"""Occlusion, FGSM, PGD and frequency noise: closed forms, identities, an independent library."""

import foolbox
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vitascope import measure
from vitascope.errors import UserError
from vitascope.measure.robustness.changed_images import (
    LabelledBatch,
    Pixels,
    accuracy_on_changed_images,
)
from vitascope.measure.robustness.fgsm import gradient, log_odds, one_step
from vitascope.measure.robustness.frequency import band, filtered, radius
from vitascope.measure.robustness.occlusion import box, occlude
from vitascope.measure.robustness.pgd import steps_of

STATISTICS = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25)}
SPACE = Pixels(**STATISTICS)


class Net(nn.Module):
    """Small and smooth, with dropout and batch norm that must be at rest."""

    def __init__(self, channels=3):
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3, padding=1)
        self.norm, self.drop = nn.BatchNorm2d(6), nn.Dropout(0.5)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.drop(self.norm(self.conv(x)).tanh().mean((2, 3))))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().train()


def pixels_of(number=12, size=(3, 8, 8), seed=1):
    return torch.rand(number, *size, generator=torch.Generator().manual_seed(seed))


def batches_of(pixels, size=5, labels=None, space=SPACE):
    labels = torch.arange(len(pixels)) % 4 if labels is None else labels
    return list(zip(space.normalised(pixels).split(size), labels.split(size), strict=True))


class Seen(nn.Module):
    """Remembers what it is given."""

    def __init__(self):
        super().__init__()
        self.given = []

    def forward(self, x):
        self.given.append(x.clone())
        return torch.zeros(len(x), 4)


# --- pixels ----------------------------------------------------------------------------------


def test_pixels_come_back_from_normalised_images():
    pixels = pixels_of().double()
    torch.testing.assert_close(SPACE.of(SPACE.normalised(pixels)), pixels, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("images", "statistics", "says"),
    [
        (torch.full((1, 3, 2, 2), 9.0), STATISTICS, "not 0 to 1"),
        (torch.zeros(1, 3, 2, 2), {"mean": (0,), "std": (1,)}, "do not fit a mean and std of 1"),
        (torch.zeros(1, 3, 2, 2), {"mean": (0.0,) * 3, "std": (1.0, 0.0, 1.0)}, "above 0"),
        (torch.zeros(1, 3, 2, 2), {"mean": (0.0,), "std": (1.0, 1.0, 1.0)}, "one number a channel"),
    ],
)
def test_images_that_are_not_pixels_are_refused(net, images, statistics, says):
    with pytest.raises(UserError, match=says):
        measure.fgsm(net, [(images, torch.zeros(1, dtype=torch.long))], **statistics)


def test_accuracy_is_of_all_images_whatever_the_batches(net):
    pixels = pixels_of()
    found = [
        accuracy_on_changed_images(
            net, batches_of(pixels, size), lambda shot: [("same", shot.images)]
        )
        for size in (1, 5, 12)
    ]
    right = net.eval()(SPACE.normalised(pixels)).argmax(1) == torch.arange(12) % 4
    for one in found:
        assert one.clean == one.accuracy["same"] == pytest.approx(right.double().mean().item())
        assert one.num_images == 12


def test_a_model_comes_back_as_it_was_given_also_after_a_mistake(net):
    net.norm.eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    for steps in (2, 0):
        try:
            measure.pgd(net, batches_of(pixels_of()), **STATISTICS, steps=steps)
        except UserError:
            assert steps == 0
    measure.fgsm(net, batches_of(pixels_of()), **STATISTICS)
    assert net.training
    assert not net.norm.training
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("run", [measure.occlusion, measure.fgsm, measure.pgd, measure.frequency])
def test_what_cannot_be_measured_is_refused_in_words(net, run):
    images = SPACE.normalised(pixels_of(2))
    for batches, says in (
        ([], "the batches are empty"),
        ([images], "needs labels"),
        ([(images, torch.tensor([0, 4]))], "labels go from 0 to 4; the model has 4 classes"),
    ):
        with pytest.raises(UserError, match=says):
            run(net, batches, **STATISTICS)
    nn.init.constant_(net.head.bias, float("nan"))
    with pytest.raises(UserError, match="NaN"):
        run(net, [(images, torch.tensor([0, 1]))], **STATISTICS)


# --- occlusion -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(8, 8), (7, 7), (9, 12), (1, 1)])
def test_occluded_pixels_are_exactly_zero_and_the_rest_untouched(size):
    pixels = pixels_of(2, (3, *size)) + 0.01
    changed = occlude(pixels, 0.5)
    hidden = changed == 0
    rows, columns = (round(side / 2 + 0.01) for side in size)
    assert hidden.sum() == 2 * 3 * rows * columns
    assert torch.equal(changed[~hidden], pixels[~hidden])
    where = hidden[0, 0].nonzero()
    for axis, side in enumerate(size):
        above, below = int(where[:, axis].min()), side - 1 - int(where[:, axis].max())
        assert below - above in (0, 1)  # centred, an odd rest below


def test_the_model_gets_black_or_the_mean_in_the_middle():
    pixels = pixels_of(3)
    for fill, value in (("black", SPACE.normalised(torch.zeros(1, 3, 1, 1))), ("mean", 0.0)):
        model = Seen()
        found = measure.occlusion(
            model, batches_of(pixels, 3), **STATISTICS, sizes=(0.5,), fill=fill
        )
        clean, changed = model.given
        assert torch.equal(changed[..., 2:6, 2:6], torch.zeros(3, 3, 4, 4) + value)
        changed[..., 2:6, 2:6] = clean[..., 2:6, 2:6]
        assert torch.equal(changed, clean)
        assert found.fill == fill


def test_a_model_that_looks_at_the_middle_alone_loses_all_of_it():
    class Middle(nn.Module):
        def forward(self, x):
            return torch.stack([-x[:, 0, 4, 4], x[:, 0, 4, 4]], 1)

    pixels = torch.ones(6, 3, 8, 8)
    found = measure.occlusion(
        Middle(), batches_of(pixels, labels=torch.ones(6, dtype=torch.long)), **STATISTICS
    )
    assert found.clean == 1
    assert found.accuracy == (0, 0, 0)
    assert found.to_record().values["sizes"] == [0.25, 0.5, 0.75]


def test_a_box_can_hide_everything_and_nothing_else_is_a_size(net):
    assert box(5, 1.0) == slice(0, 5)
    for wrong in ((0.0,), (1.5,), ()):
        with pytest.raises(UserError, match="shares of the side"):
            measure.occlusion(net, batches_of(pixels_of()), **STATISTICS, sizes=wrong)
    with pytest.raises(UserError, match="unknown fill 'white'"):
        measure.occlusion(net, batches_of(pixels_of()), **STATISTICS, fill="white")


# --- FGSM and PGD ----------------------------------------------------------------------------


def test_fgsm_is_the_sign_of_the_gradient_of_a_linear_model():
    """For logits (0, w.x) the loss of class 0 rises along w, of class 1 along -w."""
    torch.manual_seed(0)
    weight = torch.randn(3 * 4 * 4, dtype=torch.float64)

    class Linear(nn.Module):
        def forward(self, x):
            score = x.flatten(1) @ weight
            return torch.stack([torch.zeros_like(score), score], 1)

    pixels, labels = pixels_of(2, (3, 4, 4)).double(), torch.tensor([0, 1])
    slope = gradient(Linear(), pixels, labels, SPACE)
    moved = one_step(pixels, pixels, slope, 0.03, 0.03)
    by_hand = torch.stack(
        [
            pixels[0] + 0.03 * weight.view(3, 4, 4).sign(),
            pixels[1] - 0.03 * weight.view(3, 4, 4).sign(),
        ]
    ).clamp(0, 1)
    torch.testing.assert_close(moved, by_hand, rtol=0, atol=1e-15)


def test_the_gradient_is_of_the_pixels_through_the_normalisation(net):
    net = net.eval().double()
    pixels, labels = pixels_of(2).double(), torch.tensor([0, 3])
    slope = gradient(net, pixels, labels, SPACE)

    def loss(x):
        return log_odds(net(SPACE.normalised(x)), labels).sum().item()

    for place in ((0, 0, 3, 4), (1, 2, 0, 7)):
        step = torch.zeros_like(pixels)
        step[place] = 1e-5
        numeric = (loss(pixels + step) - loss(pixels - step)) / 2e-5
        assert slope[place].item() == pytest.approx(numeric, rel=1e-5, abs=1e-9)


@pytest.fixture
def oracle(net):
    """The same model in foolbox, which normalises inside as we do."""
    space = {"mean": STATISTICS["mean"], "std": STATISTICS["std"], "axis": -3}
    return foolbox.PyTorchModel(net.eval(), bounds=(0, 1), preprocessing=space, device="cpu")


@pytest.mark.parametrize("epsilon", [1 / 255, 0.1])
def test_fgsm_and_pgd_equal_foolbox(net, oracle, epsilon):
    pixels, labels = pixels_of(), torch.arange(12) % 4
    slope = gradient(net, pixels, labels, SPACE)
    ours = one_step(pixels, pixels, slope, epsilon, epsilon)
    attack = foolbox.attacks.LinfFastGradientAttack(random_start=False)
    theirs, _, fooled = attack(oracle, pixels, labels, epsilons=epsilon)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    found = measure.fgsm(net, batches_of(pixels), **STATISTICS, epsilons=(epsilon,))
    assert found.accuracy[0] == pytest.approx(1 - fooled.double().mean().item())

    attack = foolbox.attacks.LinfPGD(abs_stepsize=epsilon / 4, steps=7, random_start=False)
    theirs, _, fooled = attack(oracle, pixels, labels, epsilons=epsilon)
    ours = steps_of(
        net, pixels, pixels, labels, SPACE, epsilon=epsilon, steps=7, step_size=epsilon / 4
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    how = {"epsilons": (epsilon,), "steps": 7, "step_size": epsilon / 4, "random_start": False}
    found = measure.pgd(net, batches_of(pixels), **STATISTICS, **how)
    assert found.accuracy[0] == pytest.approx(1 - fooled.double().mean().item())


@pytest.mark.parametrize("attack", [measure.fgsm, measure.pgd])
def test_attacks_stay_within_epsilon_and_valid_pixels_and_reach_both(attack):
    class Watched(Seen):
        def forward(self, x):
            super().forward(x)
            middle = x.flatten(1).mean(1)
            return torch.stack([middle, -middle, middle * 2, middle.sin()], 1)

    model, pixels = Watched(), pixels_of()
    pixels[:, :, 0] = pixels[:, :, 0].round()  # some black, some white
    attack(model, batches_of(pixels, 12), **STATISTICS, epsilons=(0.05,))
    changed = SPACE.of(model.given[-1])
    away = (changed - pixels).abs()
    assert away.max().item() == pytest.approx(0.05, abs=1e-6)
    assert changed.min() == 0
    assert changed.max() == 1


def test_one_step_of_pgd_from_the_image_is_fgsm(net):
    given = batches_of(pixels_of(40))
    first = measure.fgsm(net, given, **STATISTICS, epsilons=(0.02, 0.3))
    for epsilon, accuracy in zip(first.epsilons, first.accuracy, strict=True):
        how = {"epsilons": (epsilon,), "steps": 1, "step_size": epsilon, "random_start": False}
        assert measure.pgd(net, given, **STATISTICS, **how).accuracy == (accuracy,)


def test_an_attack_of_strength_zero_changes_nothing_and_a_strong_one_fools(net):
    given = batches_of(pixels_of(40), labels=net.eval()(SPACE.normalised(pixels_of(40))).argmax(1))
    for attack in (measure.fgsm, measure.pgd):
        found = attack(net, given, **STATISTICS, epsilons=(0, 0.5))
        assert found.clean == found.accuracy[0] == 1
        assert found.accuracy[1] < 0.5


def test_the_random_start_comes_from_the_seed_and_not_from_the_batch():
    def start(seed, size):
        class First(Seen):
            def forward(self, x):
                super().forward(x)
                return x.flatten(1)[:, :4]

        model = First()
        how = {"epsilons": (0.1,), "steps": 1, "seed": seed}
        measure.pgd(model, batches_of(pixels_of(6), size), **STATISTICS, **how)
        return torch.cat(model.given[1::3])

    torch.testing.assert_close(start(0, 2), start(0, 3))
    assert not torch.equal(start(0, 2), start(1, 2))
    assert not torch.allclose(start(0, 6), SPACE.normalised(pixels_of(6)))


def test_against_the_prediction_no_label_is_used(net):
    class Recorder(Seen):
        def forward(self, x):
            super().forward(x)
            return net.eval()(x)

    pixels = pixels_of(20)
    guess = net.eval()(SPACE.normalised(pixels)).argmax(1)
    wrong = (guess + 1) % 4
    moved = {}
    for name, labels in (("label", wrong), ("prediction", guess)):
        slope = gradient(net, pixels, labels, SPACE)
        moved[name] = SPACE.normalised(one_step(pixels, pixels, slope, 0.2, 0.2))
    assert not torch.allclose(moved["label"], moved["prediction"])
    for against, expected in moved.items():
        model = Recorder()
        given = batches_of(pixels, 20, labels=wrong)
        measure.fgsm(model, given, **STATISTICS, epsilons=(0.2,), against=against)
        torch.testing.assert_close(model.given[-1], expected, rtol=0, atol=1e-5)


def test_images_without_a_gradient_are_counted():
    class Half(nn.Module):
        def forward(self, x):
            bright = x.flatten(1).sum(1).relu()
            return torch.stack([bright, 0 * bright, 0 * bright, 0 * bright], 1)

    pixels = torch.cat([torch.zeros(2, 3, 4, 4), torch.ones(3, 3, 4, 4)])  # below 0, above 0
    found = measure.fgsm(Half(), batches_of(pixels), **STATISTICS)
    assert found.num_stuck == 2
    assert found.to_record().values["num_stuck"] == 2


def test_a_model_that_is_entirely_sure_is_attacked_all_the_same(net):
    """Where p rounds to 1 the cross-entropy has no gradient left; its sign is still known."""

    class Sure(nn.Module):
        def forward(self, x):
            return 1e4 * net(x)

    net = net.eval()
    pixels = pixels_of(30)
    labels = net(SPACE.normalised(pixels)).argmax(1)
    leaf = pixels.clone().requires_grad_(True)
    F.cross_entropy(Sure()(SPACE.normalised(leaf)), labels).backward()
    assert (leaf.grad == 0).flatten(1).all(1).any()
    found = measure.fgsm(Sure(), batches_of(pixels, labels=labels), **STATISTICS, epsilons=(0.3,))
    assert found.num_stuck == 0
    assert found.accuracy[0] < 0.7


def test_the_log_odds_rise_as_the_cross_entropy_does(net):
    logits = 3 * torch.randn(20, 4, dtype=torch.float64)
    labels = torch.arange(20) % 4
    p = logits.softmax(1)[torch.arange(20), labels]
    torch.testing.assert_close(log_odds(logits, labels), ((1 - p) / p).log())
    net, pixels = net.eval().double(), pixels_of(20).double()
    leaf = pixels.clone().requires_grad_(True)
    F.cross_entropy(net(SPACE.normalised(leaf)), labels).backward()
    assert torch.equal(gradient(net, pixels, labels, SPACE).sign(), leaf.grad.sign())
    with pytest.raises(UserError, match="two classes"):
        log_odds(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))


@pytest.mark.parametrize("wrong", [(-0.1,), (8,), ()])
def test_an_epsilon_that_is_no_share_of_a_pixel_is_refused(net, wrong):
    with pytest.raises(UserError, match="8/255"):
        measure.fgsm(net, batches_of(pixels_of()), **STATISTICS, epsilons=wrong)
    with pytest.raises(UserError, match="unknown against"):
        measure.pgd(net, batches_of(pixels_of()), **STATISTICS, against="nobody")


def test_two_heads_are_attacked_as_they_are_evaluated(net):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            logits = self.net(x)
            return 2 * logits, 0 * logits

    given = batches_of(pixels_of(30))
    assert measure.fgsm(Two(), given, **STATISTICS) == measure.fgsm(net, given, **STATISTICS)


# --- frequency noise -------------------------------------------------------------------------

SIZES = [(3, 16, 16), (1, 16, 16), (3, 15, 15), (3, 12, 20), (1, 7, 10)]


@pytest.mark.parametrize("size", SIZES)
def test_frequency_noise_has_all_its_energy_inside_the_window_and_the_strength_asked(size):
    white = torch.randn(4, *size, dtype=torch.float64)
    for centre in (0.0, 0.5, 1.0, 1.3):
        mask = band(*size[1:], centre, 0.3)
        noise = filtered(torch.fft.fft2(white), mask, 0.07)
        energy = torch.fft.fft2(noise).abs().square()
        assert energy[..., ~mask].sum() < 1e-25 * energy.sum()
        rms = noise.square().mean((1, 2, 3)).sqrt()
        torch.testing.assert_close(rms, torch.full_like(rms, 0.07), rtol=1e-12, atol=0)
        away = (radius(*size[1:])[mask] - centre).abs()
        assert away.max() <= 0.15 + 1e-9


@pytest.mark.parametrize("size", [(16, 16), (15, 15), (12, 20), (8, 8)])
def test_windows_a_tenth_apart_hold_every_frequency_once(size):
    masks = torch.stack([band(*size, 0.1 * step, 0.1) for step in range(16)])
    assert (masks.sum(0) == 1).all()


def test_the_axes_end_at_one_and_the_corner_at_the_root_of_two():
    away = radius(8, 12)
    assert away[0, 0] == 0
    assert away[4, 0] == away[0, 6] == 1
    assert away[4, 6].item() == pytest.approx(2**0.5)
    assert away[1, 0] == 0.25


@pytest.mark.parametrize("size", SIZES)
def test_the_model_gets_the_image_plus_the_noise_equal_at_every_frequency(size):
    space = Pixels(mean=(0.4,) * size[0], std=(0.3,) * size[0])
    pixels = pixels_of(3, size)
    model = Seen()
    found = measure.frequency(
        model, batches_of(pixels, 3, space=space), mean=space.mean, std=space.std, rms=0.2
    )
    clean, *noisy = model.given
    assert len(noisy) == len(found.frequencies) == len(found.accuracy) >= 5
    for images in noisy:
        noise = ((images - clean) * 0.3).double()
        rms = noise.square().mean((1, 2, 3)).sqrt()
        torch.testing.assert_close(rms, torch.full_like(rms, 0.2), rtol=1e-5, atol=0)
    assert set(found.frequencies) | set(found.left_out) == {round(0.1 * k, 1) for k in range(11)}


def test_noise_comes_from_the_seed_and_the_image_and_not_from_the_batch():
    def noisy(seed, size):
        model = Seen()
        how = {"frequencies": (0.5,), "seed": seed}
        measure.frequency(model, batches_of(pixels_of(6), size), **STATISTICS, **how)
        return torch.cat(model.given[1::2])

    assert torch.equal(noisy(0, 2), noisy(0, 3))
    assert not torch.equal(noisy(0, 2), noisy(1, 2))


def test_images_are_numbered_as_their_set_numbers_them():
    from vitascope.data import Batch

    def noise(numbers):
        model, images = Seen(), SPACE.normalised(pixels_of(2))
        labels = torch.zeros(2, dtype=torch.long)
        given = [Batch(images, labels, labels, torch.tensor(numbers))]
        measure.frequency(model, given, **STATISTICS, frequencies=(0.5,))
        return model.given[1] - model.given[0]

    torch.testing.assert_close(noise([7, 3])[0], noise([3, 7])[1], rtol=0, atol=1e-5)
    assert not torch.allclose(noise([7, 3])[0], noise([3, 7])[0], atol=1e-2)


def test_clamped_pixels_are_valid_and_others_are_not():
    for clamp in (True, False):
        model = Seen()
        how = {"frequencies": (0.5,), "rms": 0.5, "clamp": clamp}
        measure.frequency(model, batches_of(pixels_of(4), 4), **STATISTICS, **how)
        columns = [torch.tensor(STATISTICS[name]).view(1, 3, 1, 1) for name in ("std", "mean")]
        pixels = model.given[1] * columns[0] + columns[1]
        assert (pixels.min() >= -1e-6 and pixels.max() <= 1 + 1e-6) == clamp


def test_a_blur_saves_a_model_from_high_frequencies_alone():
    """A model that answers from 4 x 4 means forgets fast noise and keeps slow noise."""

    class Blurred(nn.Module):
        def forward(self, x):
            middle = F.avg_pool2d(x, 8)[:, 0].flatten(1)
            return torch.stack([-middle.sum(1), middle.sum(1)], 1)

    pixels = torch.full((60, 3, 16, 16), 0.5)
    pixels[::2] = 0.3
    labels = torch.arange(60) % 2
    space = {"mean": (0.4,) * 3, "std": (1.0,) * 3}
    given = batches_of(pixels, labels=labels, space=Pixels(**space))
    found = measure.frequency(Blurred(), given, **space, frequencies=(0.0, 1.0), rms=0.2)
    assert found.clean == found.accuracy[1] == 1
    assert found.accuracy[0] < 0.9


def test_windows_without_a_frequency_are_named_or_refused(net):
    given = batches_of(pixels_of())  # 8 x 8: steps of 0.25
    found = measure.frequency(net, given, **STATISTICS)
    assert found.left_out == (0.1, 0.2)
    assert list(found.to_record().values["left_out"]) == ["0.1 pi", "0.2 pi"]
    for wrong, says in (
        ({"frequencies": (0.1,)}, "no frequency within 0.1 pi around 0.1"),
        ({"frequencies": (1.6,)}, "from 0 to 1.41"),
        ({"window": 0}, "window"),
        ({"rms": 0}, "rms above 0"),
    ):
        with pytest.raises(UserError, match=says):
            measure.frequency(net, given, **STATISTICS, **wrong)


def test_progress_counts_the_batches_down(net):
    for name in ("occlusion", "fgsm", "pgd", "frequency"):
        steps = []
        run = getattr(measure, name)
        run(
            net,
            batches_of(pixels_of()),
            **STATISTICS,
            on_step=lambda *step, s=steps: s.append(step),
        )
        assert steps == [(name, 3), (name, 2), (name, 1)]


def test_a_change_sees_labels_and_numbers(net):
    seen = []

    def change(shot: LabelledBatch):
        seen.append((shot.labels.tolist(), shot.numbers))
        return ()

    accuracy_on_changed_images(net, batches_of(pixels_of(7)), change)
    assert seen == [([0, 1, 2, 3, 0], [0, 1, 2, 3, 4]), ([1, 2], [5, 6])]
