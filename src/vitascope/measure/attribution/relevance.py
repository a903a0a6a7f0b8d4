"""Relevance: which parts of the image does the prediction depend on, and is the map faithful?

Five maps per image, of the predicted class, on any model without naming layers or
writing reshaping functions:

* ``rollout`` and ``gradient`` follow attention back to the image
  (:mod:`vitascope.measure.attribution.attention_flow`); they need attention over patches;
* ``grad-cam`` weights feature maps by their gradient
  (:mod:`vitascope.measure.attribution.grad_cam`); convolutional networks have it too;
* ``attnlrp`` propagates relevance layer by layer to the pixels
  (:mod:`vitascope.measure.attribution.attention_lrp`), ``integrated`` adds up gradients along a
  path to the image (:mod:`vitascope.measure.attribution.integrated_gradients`). The pixels of a
  place are added up; what speaks against the class is negative.

Each is judged twice:

* Faithfulness (:mod:`vitascope.measure.attribution.faithfulness`): how much faster the probability
  of the class falls when the places are hidden in this order rather than at random, and how much
  faster it rises when they are shown, with a standard error over images.
* Randomised weights (Adebayo et al. 2018, https://arxiv.org/abs/1810.03292): a map that stays the
  same when the weights of the network are destroyed shows the image and not the network. The rank
  correlation of both maps of an image should be near 0. The values of every weight matrix are
  shuffled (the paper draws new ones), and the class stays that of the true network.

Shapes: n images (m of them kept with their maps, k with randomised weights), h x w places, S
shares.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import length_hint
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError, unknown
from vitascope.measure.attribution.attention_flow import (
    follow_back,
    gradient_weighted,
    mean_over_heads,
    on_grid,
)
from vitascope.measure.attribution.attention_lrp import attention_lrp
from vitascope.measure.attribution.faithfulness import (
    ROAD_SHARES,
    SHARES,
    curves,
    ranks,
    road_curve,
)
from vitascope.measure.attribution.grad_cam import FEWEST, grad_cam, last_used
from vitascope.measure.attribution.integrated_gradients import integrated_gradients
from vitascope.measure.curvature.objective import differentiable_output, run_with
from vitascope.measure.result import InstrumentResult
from vitascope.measure.robustness.changed_images import drawn
from vitascope.measure.streaming.batches import first_images, images_in, normal_tensor
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.settings import checked

QUICK = ("rollout", "gradient", "grad-cam")  # one backward pass for all of them
METHODS = (*QUICK, "attnlrp", "integrated")
CURVES = ("deletion", "insertion", "road")
CHECKED = 32  # images on which maps are compared with those of randomised weights
PICTURE = 96  # pixels a side of the small images that are kept next to the maps


@dataclass(frozen=True, kw_only=True)
class Relevance(InstrumentResult, kind="relevance"):
    """Relevance maps, and how faithful they are."""

    maps: Mapping[str, np.ndarray]  # method -> (m, h, w), the largest of each is 1
    pictures: np.ndarray  # the m images, small. (m, height, width, 3) uint8
    layer: str | None  # whose feature maps Grad-CAM weights
    shares: tuple[float, ...]  # of the places hidden or shown
    deletion: Mapping[str, np.ndarray]  # method -> probability of the class. (n, S)
    insertion: Mapping[str, np.ndarray]
    random_deletion: Mapping[str, np.ndarray]  # in random order of the same places
    random_insertion: Mapping[str, np.ndarray]
    road: Mapping[str, np.ndarray]  # deletion with imputation
    random_road: Mapping[str, np.ndarray]
    road_shares: tuple[float, ...] = ROAD_SHARES
    randomised: Mapping[str, np.ndarray]  # rank correlation with the map of shuffled weights. (k,)
    classes: tuple[int, ...]  # predicted. (n,)
    num_images: int
    seed: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)  # method -> why

    def areas(self, curve: str, method: str) -> np.ndarray:
        """Areas below the curves ``deletion``, ``random_deletion``, ... of each image. (n,)"""
        shares = self.road_shares if curve.endswith("road") else self.shares
        return np.asarray(np.trapezoid(getattr(self, curve)[method], shares, axis=1))

    def gains(self, curve: str, method: str) -> np.ndarray:
        """By how much each image's curve is better than in random order. (n,)"""
        difference = self.areas(curve, method) - self.areas(f"random_{curve}", method)
        return difference if curve == "insertion" else -difference

    def summary(self) -> dict[str, Any]:
        """Return mean curves, areas, gains and correlations with their standard errors."""
        by_curve = {
            curve: {
                method: {
                    "curve": getattr(self, curve)[method].mean(0),
                    "random": getattr(self, f"random_{curve}")[method].mean(0),
                    "area": self.areas(curve, method).mean(),
                    "random_area": self.areas(f"random_{curve}", method).mean(),
                    "gain": self.gains(curve, method).mean(),
                    "error": _standard_error(self.gains(curve, method)),
                }
                for method in self.maps
            }
            for curve in CURVES
        }
        randomised = {
            method: {"correlation": values.mean(), "error": _standard_error(values)}
            for method, values in self.randomised.items()
        }
        return {"methods": list(self.maps), **by_curve, "randomised": randomised}

    def record_arrays(self) -> dict[str, np.ndarray]:
        """Return maps and pictures, and the gains of each image."""
        arrays = {f"map/{method}": values for method, values in self.maps.items()}
        gains = {f"{c}_gain/{m}": self.gains(c, m) for c in CURVES for m in self.maps}
        same = {f"randomised/{method}": values for method, values in self.randomised.items()}
        return {**arrays, "pictures": self.pictures, **gains, **same}


def _standard_error(values: np.ndarray) -> float | None:
    """Return the standard error of the mean; None for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


class Explainer:
    """Relevance maps of one model, for batches of one size.

    Args:
        structure: The model and where its tokens lie.
        methods: Of :data:`METHODS`.

    Attributes:
        methods: Those that the model allows.
        left_out: The others, and why.
        layer: The module whose feature maps Grad-CAM weights; known after the first batch.
    """

    def __init__(self, structure: ModelStructure, methods: Sequence[str] = METHODS):
        for method in methods:
            if method not in METHODS:
                raise unknown("method", method, METHODS)
        self.model = structure.model
        self.outputs = capture.image_outputs(structure.model, structure.images)
        if not self.outputs:
            raise UserError(f"relevance needs features on a grid; {structure.kind} has none")
        self.coordinates = {n: c for n, c in structure.coordinates.items() if c.over_tokens}
        self.left_out = {m: why for m in methods if (why := self._why_not(structure, m))}
        self.methods = [method for method in methods if method not in self.left_out]
        self.layer: capture.ImageOutput | None = None
        cells = [output.layout.grid for output in self.outputs]
        fine = [grid for grid in cells if grid[0] * grid[1] >= FEWEST]
        self.grid = fine[-1] if fine else max(cells, key=lambda grid: grid[0] * grid[1])

    def _why_not(self, structure: ModelStructure, method: str) -> str | None:
        if method not in ("rollout", "gradient"):
            return None
        if structure.untraced:
            name, why = next(iter(structure.untraced.items()))
            return f"{name}: {why}"
        if not self.coordinates:
            return f"{structure.kind} has no attention over tokens"
        return None

    def __call__(
        self,
        images: Tensor,
        classes: Tensor | None = None,
        weights: Mapping[str, Tensor] | None = None,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Maps of each image by method (B, h, w), and the class they explain (B,).

        Args:
            images: (B, C, height, width)
            classes: To explain; those that are predicted when left out. (B,)
            weights: In place of the model's own, by name.
        """
        explained = [] if classes is None else [classes]

        def score(output: Any) -> Tensor:
            logits = capture.logits_of(output)
            if logits.ndim != 2:
                raise UserError(f"relevance needs logits (B, classes), got {tuple(logits.shape)}")
            if not explained:
                explained.append(logits.detach().argmax(1))
            return logits.gather(1, explained[0][:, None])[:, 0]

        fixed = self._fixed_weights() | dict(weights or {})

        def run(model: nn.Module, images: Tensor) -> Any:
            return run_with(model, fixed, images)

        attending = set(self.methods) & {"rollout", "gradient"}
        gradients = capture.gradients(
            self.model,
            images,
            score,
            layers=list(self.coordinates) if attending else (),
            outputs=[output.name for output in self.outputs],
            run=differentiable_output if weights is None else run,
        )

        def pixels(images: Tensor) -> Tensor:
            return score(run(self.model, images))

        maps = {}
        for method in list(self.methods):
            try:
                if method in _OF_PIXELS:
                    with capture.evaluating(self.model):
                        relevance = _OF_PIXELS[method](pixels, images).sum(1, keepdim=True)
                    maps[method] = nn.functional.adaptive_avg_pool2d(relevance, self.grid)[:, 0]
                else:
                    maps[method] = self._map(method, gradients).detach()
            except UserError as error:
                if weights is None:
                    self.left_out[method] = str(error)
                    self.methods.remove(method)
        if not maps and weights is None:
            raise UserError(next(iter(self.left_out.values())))
        return maps, explained[0]

    def _fixed_weights(self) -> dict[str, Tensor]:
        """Weights and buffers that need no gradient, so that a graph depends on images alone."""
        tensors = (*self.model.named_parameters(), *self.model.named_buffers())
        return {name: normal_tensor(tensor).detach() for name, tensor in tensors}

    def _map(self, method: str, gradients: capture.Gradients) -> Tensor:
        if method == "grad-cam":
            if self.layer is None:
                self.layer = last_used(self.outputs, gradients.feature_gradients)
            image, slope = (
                self.layer.layout.as_image(part[self.layer.name])  # type: ignore[arg-type]
                for part in (gradients.features, gradients.feature_gradients)
            )
            return grad_cam(image, slope)
        read, coordinates = self._read(gradients)
        names = list(gradients.maps)
        if method == "rollout":
            maps = [mean_over_heads(gradients.maps[name]) for name in names]
            weights = {"attention": 0.5, "shortcut": 0.5}
        else:
            maps = [self._weighted(name, gradients) for name in names]
            weights = {"attention": 1.0, "shortcut": 1.0}
        tokens = [self.coordinates[name] for name in names]
        flowed, at = follow_back(read, coordinates, maps, tokens, **weights)
        return on_grid(flowed, at)

    def _weighted(self, name: str, gradients: capture.Gradients) -> Tensor:
        gradient = gradients.map_gradients[name]
        if gradient is None:
            raise UserError(f"the gradient of {name}'s attention map cannot be found")
        return gradient_weighted(gradients.maps[name], gradient)

    def _read(self, gradients: capture.Gradients) -> tuple[Tensor, Tensor]:
        """Share of each token in the gradient behind the last layer, and the tokens' coordinates.

        In class attention these are the class tokens alone.
        """
        last = self.coordinates[list(gradients.maps)[-1]].query[0]
        if last.isnan().all():
            batch = len(next(iter(gradients.features.values())))
            return last.new_full((batch, len(last)), 1 / len(last)), last
        for output in reversed(self.outputs):
            gradient = gradients.feature_gradients.get(output.name)
            if gradient is not None and bool(gradient.any()):
                norms = output.layout.as_tokens(gradient).norm(dim=-1)
                return norms / norms.sum(1, keepdim=True).clamp(min=1e-30), output.coordinates
        raise UserError("the answer does not depend on what the layers put out")


_OF_PIXELS = {"attnlrp": attention_lrp, "integrated": integrated_gradients}


def shuffled_weights(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Every weight matrix with its values in random order; vectors (norms, biases) stay.

    Matrices of one size are shuffled alike, so that tied weights stay the same as copies of them.
    """
    shuffled = {}
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            generator = torch.Generator().manual_seed(seed)
            order = torch.randperm(weight.numel(), generator=generator).to(weight.device)
            shuffled[name] = normal_tensor(weight).detach().flatten()[order].view_as(weight)
    return shuffled


def rank_correlation(first: Tensor, second: Tensor) -> np.ndarray:
    """Spearman's correlation of two maps of each image; 0 for a map without order. (B,)

    >>> rank_correlation(torch.tensor([[[1.0, 2.0, 9.0]]]), torch.tensor([[[3.0, 4.0, 5.0]]]))
    array([1.])
    """
    both = [rankdata(part.flatten(1).cpu().numpy(), axis=1) for part in (first, second)]
    one, other = (part - part.mean(1, keepdims=True) for part in both)
    size = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    return np.asarray((one * other).sum(1) / np.where(size > 0, size, 1.0))


@checked
def relevance(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    methods: Sequence[str] = METHODS,
    num_kept: int = 8,
    statistics: tuple[Sequence[float], Sequence[float]] | None = None,
    seed: int = 0,
    on_step: Callable[[str, int], None] = lambda step, ahead: None,
    **layout: Any,
) -> Relevance:
    """Relevance maps of the predicted class, and how faithful they are.

    Args:
        model: Any classifier; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, normalised, or (images, labels).
        methods: Of :data:`METHODS`; those that the model does not allow are named in ``left_out``.
        num_kept: Images whose maps are kept.
        statistics: Mean and std of the normalisation, to keep pictures in their original colours.
        seed: Of the random orders.
        on_step: Called before each batch with the measure's name and the number of batches ahead.
        layout: ``grid=(h, w)`` and ``num_prefix_tokens`` of layers whose tokens cannot be traced.
    """
    length = length_hint(batches, 0)
    images, batches = first_images(batches, model)
    explain = Explainer(ModelStructure(model, images, **layout), methods)
    shuffled = shuffled_weights(model, seed)
    randomised: dict[str, list[np.ndarray]] = {}
    maps: dict[str, list[Tensor]] = {}
    curves_of: dict[str, dict[str, list[Tensor]]] = {
        f"{order}{curve}": {} for order in ("", "random_") for curve in CURVES
    }
    classes: list[Tensor] = []
    pictures: list[Tensor] = []
    done = 0
    for number, batch in enumerate(images_in(batches, model)):
        on_step("relevance", max(length - number, 1))
        made, answers = explain(batch)
        rows = range(done, done + len(batch))
        noise = drawn(seed, rows, partial(_noise, tuple(batch.shape[2:])))
        if done < CHECKED:
            few = batch[: CHECKED - done]
            others, _ = explain(few, answers[: len(few)], shuffled)
            for method, values in others.items():
                same = rank_correlation(made[method][: len(few)], values)
                randomised.setdefault(method, []).append(same)
        grids: dict[tuple[int, ...], tuple[Tensor, ...]] = {}
        for method, values in made.items():
            grid = tuple(values.shape[1:])
            with capture.evaluating(model):
                if grid not in grids:
                    order = drawn(seed, rows, partial(_shuffled, grid))
                    order = order.to(batch.device).unflatten(1, grid)
                    grids[grid] = _all_curves(model, batch, answers, order, noise)
                mine_all = _all_curves(model, batch, answers, ranks(values), noise)
            for curve, mine, other in zip(CURVES, mine_all, grids[grid], strict=True):
                curves_of[curve].setdefault(method, []).append(mine.cpu())
                curves_of[f"random_{curve}"].setdefault(method, []).append(other.cpu())
            if done < num_kept:
                first = values[: num_kept - done].clamp(min=0)
                top = first.flatten(1).amax(1).clamp(min=1e-30)[:, None, None]
                maps.setdefault(method, []).append((first / top).cpu())
        if done < num_kept:
            pictures.append(_small(batch[: num_kept - done], statistics))
        classes.append(answers.cpu())
        done += len(batch)
    whole = {
        name: {method: torch.cat(parts).numpy() for method, parts in by_method.items()}
        for name, by_method in curves_of.items()
    }
    return Relevance(
        maps={method: torch.cat(parts).numpy() for method, parts in maps.items()},
        pictures=torch.cat(pictures).numpy(),
        layer=explain.layer.name if explain.layer is not None else None,
        shares=SHARES,
        classes=tuple(torch.cat(classes).tolist()),
        num_images=done,
        seed=seed,
        left_out=explain.left_out,
        randomised={method: np.concatenate(parts) for method, parts in randomised.items()},
        **whole,  # type: ignore[arg-type]
    )


def _all_curves(
    model: nn.Module, images: Tensor, classes: Tensor, order: Tensor, noise: Tensor
) -> tuple[Tensor, ...]:
    """The curves of :data:`CURVES`. (B, S) each"""
    hidden = curves(model, images, classes, order)
    return (*hidden, road_curve(model, images, classes, order, noise))


def _noise(size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Standard normal numbers for the pixels of an image."""
    return rng.standard_normal(size)


def _shuffled(grid: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """The places of a grid in random order."""
    return rng.permutation(grid[0] * grid[1])


def _small(images: Tensor, statistics: tuple[Sequence[float], Sequence[float]] | None) -> Tensor:
    """Images as bytes, at most ``PICTURE`` pixels a side. (B, h, w, 3)

    Without normalisation statistics each image is stretched from its darkest to its brightest
    value.
    """
    small = images.detach().float().cpu()
    height, width = (min(PICTURE, size) for size in small.shape[-2:])
    small = nn.functional.adaptive_avg_pool2d(small, (height, width))
    if statistics is not None:
        mean, std = (torch.tensor(part)[:, None, None] for part in statistics)
        small = small * std + mean
    else:
        low, high = (end[:, None, None, None] for end in small.flatten(1).aminmax(dim=1))
        small = (small - low) / (high - low).clamp(min=1e-12)
    colours = small if small.shape[1] == 3 else small.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    return (255 * colours.clamp(0, 1)).round().byte().permute(0, 2, 3, 1).contiguous()
