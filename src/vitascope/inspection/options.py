"""Options of the commands that look at a model: what is measured, of which model, on which images.

The command line and the Python functions are made from them; torch is not needed to read them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vitascope.option_types import (
    ClassNames,
    Device,
    Model,
    ModelArguments,
    ModelSize,
    TestData,
    Threads,
    TimmWeights,
    WorkerCount,
)
from vitascope.settings import Count, Processes, Seed, Tolerance, Within


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """Options of `vitascope inspect`: the model, the images, and what to measure."""

    model: Model = field(kw_only=False)
    data: TestData = None
    measures: tuple[str, ...] = ()
    """What to measure, with spaces or commas between the names."""
    list: bool = False
    """List the model's units and stop; needs no images."""
    layers: tuple[str, ...] = ("*",)
    """Wildcards for attention layers: 'blocks.0.*'."""
    units: tuple[str, ...] = ("*",)
    """Wildcards for units, as --list names them: '*.mlp'."""
    level: Literal["unit", "block"] = "unit"
    """Units: each convolution on its own, or one unit per residual block of convolutions."""
    end: Literal["nyquist", "released"] = "nyquist"
    """Fourier: last frequency, 1.0 pi or one step less as in Park and Kim's released code."""
    images: Count = 256
    """Number of test images, drawn with the seed."""
    batch_size: Count = 64
    """Images per batch; CKA compares within a batch."""
    image_size: ModelSize = None
    map_classes: ClassNames = ()
    epoch: int | None = None
    """For a run: use the weights it kept at this epoch."""
    other: str | None = None
    """A second model: CKA between the two, on the same images."""
    query: tuple[Annotated[float, Within(0, 1)], Annotated[float, Within(0, 1)]] = (0.5, 0.5)
    """The patch whose maps are drawn: down and across, 0 to 1."""
    grid: tuple[Count, Count] | None = None
    """Patches down and across, for a model whose tokens cannot be traced to image positions."""
    prefix_tokens: Annotated[int, Within(0)] | None = None
    """Class and other tokens before the patches, for such a model."""
    pretrained: TimmWeights = False
    model_args: ModelArguments = ()
    seed: Seed = 0
    """Decides random weights and the choice of images."""
    device: Device = None
    threads: Threads = None
    batches: Count = 16
    """Hessian, landscape: mini-batches of 16 augmented training images."""
    eigenvalues: Count = 5
    """Hessian: eigenvalues of largest magnitude per mini-batch."""
    tolerance: Tolerance = 1e-3
    """Hessian: relative error at which an eigenvalue counts as found."""
    points: Annotated[int, Within(2, 1000)] = 21
    """Landscape: points along each direction."""
    directions: Literal[1, 2] = 2
    """Landscape: 1 for a curve, 2 for a surface."""
    along: Literal["random", "input", "eigenvectors"] = "random"
    """Landscape: random directions normalised by filter, by input filter, or the Hessian's
    eigenvectors."""
    weight_decay: Annotated[float, Within(0)] | None = None
    """Curvature: weight of the l2 term; the recipe's when left out."""
    batch_norm: Literal["running", "batch"] = "running"
    """Curvature: which statistics BatchNorm uses."""
    double: bool = False
    """Curvature: compute in float64."""
    recipe: str | None = None
    """Curvature: recipe of augmentation and weight decay; a run's own, or laptop, when left out."""
    processes: Processes = 1
    """Hessian: mini-batches at a time."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of `vitascope evaluate`: the model, the labelled images, and what to measure."""

    model: Model = field(kw_only=False)
    data: TestData = None
    on: tuple[str, ...] = ()
    """Robustness to measure, with spaces or commas between the names."""
    weights: Path | None = None
    """File of weights for a model given by name."""
    pretrained: TimmWeights = False
    model_args: ModelArguments = ()
    map_classes: ClassNames = ()
    split: Literal["test", "train", "all"] = "test"
    """Which images. Where the source has no test set, test is a fifth of them; all is every one."""
    images: int | None = None
    """How many of them, drawn with the seed; all when left out."""
    seed: Seed = 0
    """Decides the choice of images and all noise."""
    image_size: ModelSize = None
    sizes: tuple[float, ...] | None = None
    """Occlusion: hidden share of each side; 0.25 0.5 0.75 when left out."""
    fill: Literal["black", "mean"] | None = None
    """Occlusion: black (pixel 0) or the mean (0 after normalisation); black when left out."""
    epsilons: tuple[str, ...] | None = None
    """FGSM, PGD: change of pixels between 0 and 1; 1/255 2/255 4/255 8/255 when left out."""
    against: Literal["label", "prediction"] | None = None
    """FGSM, PGD: drive the model away from the label or from its own prediction."""
    steps: int | None = None
    """PGD: gradient steps; 10 when left out."""
    frequencies: tuple[float, ...] | None = None
    """Frequency: centres of the windows in pi; 0.0 to 1.0 in steps of 0.1 when left out."""
    window: float | None = None
    """Frequency: width of the windows in pi; 0.1 when left out."""
    rms: float | None = None
    """Frequency: strength of the noise, for pixels between 0 and 1; 0.1 when left out."""
    clamp: bool = False
    """Frequency: clip noisy pixels, which spreads the noise over other frequencies."""
    severities: tuple[int, ...] | None = None
    """Corruptions: some of 1 to 5; all when left out."""
    corrupted: Path | None = None
    """Corruptions: folder of CIFAR-10-C, CIFAR-100-C or ImageNet-C, read instead of made."""
    num_bins: Annotated[int, Within(1, 10_000)] | None = None
    """Calibration: bins of the confidence; 15 when left out."""
    batch_size: Count = 256
    """Images per batch."""
    workers: WorkerCount = 0
    device: Device = None
    threads: Threads = None


@dataclass(frozen=True, kw_only=True)
class SpectraOptions:
    """Options of `vitascope study spectra`: the runs, and how to measure their Hessian spectra."""

    runs: Annotated[tuple[str, ...], Positional, arg(metavar="RUN [RUN ...]")]
    """Folders of runs; the others are compared with the first."""
    epochs: tuple[Annotated[int, Within(0)], ...] = ()
    """Epochs whose weights the runs kept (keep_epochs); the final weights when left out."""
    batches: Count = InspectOptions.batches
    """Mini-batches of 16 augmented training images."""
    eigenvalues: Count = InspectOptions.eigenvalues
    """Eigenvalues of largest magnitude per mini-batch."""
    tolerance: Tolerance = InspectOptions.tolerance
    """Relative error at which an eigenvalue counts as found."""
    batch_norm: Literal["running", "batch"] = InspectOptions.batch_norm
    """Which statistics BatchNorm uses."""
    seed: Seed = 0
    """Decides the mini-batches."""
    out: Path = Path("runs/spectra")
    """Folder for records and figures."""
    threads: Threads = None
    processes: Processes = InspectOptions.processes
    """Mini-batches at a time."""
