"""What ``vitascope inspect`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vitascope.requests import fields
from vitascope.settings import Count, Processes, Seed, Tolerance, Within

__all__ = ["Inspect"]


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Look inside any model: attention, gates, frequencies, similarity, lesions.

    Measures: nonlocality, gates, entropy, maps, fourier, variance, norms, cka, masking, lesion, and
    with --out explorer (every patch's attention, for `vitascope report`). All that make sense for
    the model are taken unless --measures names some. Taken only when named:
    relevance (which parts of an image the prediction depends on),
    occlusion, fgsm, pgd, frequency, corruption, calibration (vitascope evaluate --on has options),
    and hessian, blocks, density, landscape, trajectory on augmented training images.

    Examples:
      vitascope inspect runs/a --out runs/a/inside
      vitascope inspect timm:vit_tiny_patch16_224 --pretrained --data photos/ --out inside
      vitascope inspect convit_micro --data digits --measures nonlocality,gates
      vitascope inspect timm:resnet18 --pretrained --data photos/ --measures relevance --out inside
      vitascope inspect timm:resnet50 --pretrained --data photos/ --measures fourier --level block
      vitascope inspect runs/a --other runs/b --measures cka --out inside
      vitascope inspect runs/a --measures occlusion fgsm frequency calibration --out inside
      vitascope inspect runs/a --measures hessian landscape --batches 32 --processes 2 --out inside
      vitascope inspect hf:google/vit-base-patch16-224 --list
    """

    model: fields.Model
    data: fields.TestData = None
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
    image_size: fields.ModelSize = None
    map_classes: fields.ClassNames = ()
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
    pretrained: fields.TimmWeights = False
    seed: Seed = 0
    """Decides random weights and the choice of images."""
    device: fields.Device = None
    threads: fields.Threads = None
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
    out: Path | None = None
    """Folder for MEASURE.json, figures/ and report.html."""
    json: fields.Json = False
    quiet: fields.Quiet = False
