"""The path of the weights around their end."""

import math

import pytest
import torch
from torch import nn

from vitascope.errors import UserError
from vitascope.measure.curvature.trajectory import trajectory


def states(*points):
    return {epoch: {"w": torch.tensor(point)} for epoch, point in enumerate(points)}


def test_on_a_straight_line_the_angle_stays_zero():
    found = trajectory(states([0.0, 0.0], [1.0, 2.0], [2.5, 5.0], [4.0, 8.0]))
    assert found.angle == pytest.approx((0, 0, 0, 0), abs=1e-7)
    assert found.radius == pytest.approx((1, 0.75, 0.375, 0))
    assert found.distance == pytest.approx(math.hypot(4, 8))


def test_a_step_aside_turns_by_its_angle():
    found = trajectory(states([1.0, 0.0], [0.0, 2.0], [-3.0, 0.0], [0.0, 0.0]))
    assert found.radius == pytest.approx((1, 2, 3, 0))
    assert found.angle == pytest.approx((0, math.pi / 2, math.pi, 0))


def test_only_named_weights_count_and_states_may_be_read_late():
    model = nn.BatchNorm1d(1)
    points = {
        epoch: (
            lambda e=epoch: {
                **model.state_dict(),
                "weight": torch.tensor([1.0 - e]),
                "running_mean": torch.tensor([100.0 * e * e]),
            }
        )
        for epoch in (0, 3, 9)
    }
    found = trajectory(points, weights=model)
    assert found.epochs == (0, 3, 9)
    assert found.radius == pytest.approx((1, 6 / 9, 0))
    assert found.num_weights == 2
    assert found.to_record().values["radius"] == list(found.radius)


def test_an_end_of_ones_own_may_lie_beyond_the_last_state():
    found = trajectory(states([0.0], [1.0]), end={"w": torch.tensor([2.0])})
    assert found.radius == pytest.approx((1, 0.5))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (states([0.0]), "weights of 1 epochs"),
        (states([1.0], [1.0]), "the same weights"),
        ({0: {"w": torch.zeros(1)}, 1: {"v": torch.zeros(1)}}, "'v' differs or is missing"),
        ({0: {"w": torch.zeros(1)}, 1: {"w": torch.zeros(2)}}, "'w' differs or is missing"),
    ],
)
def test_what_is_no_path_is_refused(path, said):
    with pytest.raises(UserError, match=said):
        trajectory(path)
