"""What ``vitascope evaluate`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitascope.requests import fields

__all__ = ["Evaluate"]


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure top-1, top-5, NLL and calibration error; with --on, robustness.

    Classes of --data are matched to the run's by name; they may be some of them.

    --on takes occlusion, fgsm, pgd, frequency, corruptions and calibration. The same seed gives the
    same numbers.

    Examples:
      vitascope evaluate runs/a
      vitascope evaluate runs/a --data photos/ --split all --json
      vitascope evaluate runs/a --data pets/ --map-classes puppy=dog kitten=cat
      vitascope evaluate convit_tiny --pretrained --data imagenet-v2:/data/v2
      vitascope evaluate vit_micro --weights my.safetensors --data digits
      vitascope evaluate runs/a --on occlusion,fgsm,frequency,corruptions,calibration --out robust
      vitascope evaluate runs/a --on fgsm pgd --epsilons 1/255 8/255 --steps 20
    """

    model: fields.Model
    data: fields.TestData = None
    on: tuple[str, ...] = ()
    """Robustness to measure, with spaces or commas between the names."""
    weights: Path | None = None
    """File of weights for a model given by name."""
    pretrained: fields.TimmWeights = False
    map_classes: fields.ClassNames = ()
    split: Literal["test", "train", "all"] = "test"
    """Which images. Where the source has no test set, test is a fifth of them; all is every one."""
    images: int | None = None
    """How many of them, drawn with the seed; all when left out."""
    seed: int = 0
    """Decides the choice of images and all noise."""
    image_size: fields.ModelSize = None
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
    num_bins: int | None = None
    """Calibration: bins of the confidence; 15 when left out."""
    batch_size: int = 256
    """Images per batch."""
    workers: fields.WorkerCount = 0
    device: fields.Device = None
    threads: fields.Threads = None
    out: Path | None = None
    """Write a record, OUT.json; with --on a folder of records, figures and report.html."""
    json: fields.Json = False
    quiet: fields.Quiet = False
