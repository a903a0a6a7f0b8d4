"""What ``vitascope compare`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vitascope.requests.fields import (
    Changes,
    Data,
    Epochs,
    ImageSize,
    Json,
    Quiet,
    RecipeName,
    RunsAtATime,
)
from vitascope.settings import Seed, Within

__all__ = ["Compare"]


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Find out which model, with how much built-in locality, suits your images.

    Trains every model on fractions of the images with several seeds, and answers with a table,
    figures and one recommendation on a page. If it is interrupted, the same command continues.

    Examples:
      vitascope compare --data digits
      vitascope compare --data photos/ --image-size 64 --fractions 0.1 0.3 1 --seeds 0 1 2 --out c
      vitascope compare --data photos/ --image-size 64 --folds 5 --metric balanced --budget 2h
      vitascope compare --data photos/ --models vit_micro convit_micro swin_tiny_patch4_window7_224
      vitascope compare --data photos/ --pretrained --probe-only
      vitascope compare --data photos/ --pretrained --models resnet18 tf_efficientnet_lite0@a.pt
      vitascope compare --data photos/ --models vit_mini convit_mini --patch-sizes 2 4
    """

    data: Data
    models: tuple[str, ...] = ("vit_micro", "convit_micro", "resnet_micro")
    """Models of ours or timm's; gains are relative to the first. With --pretrained: NAME,
    NAME@FILE, hf-hub:, local-dir:, hf:, a run's folder; twelve of timm's when left out."""
    patch_sizes: tuple[Annotated[int, Within(1, 1024)], ...] = ()
    """Try every transformer of ours with patches of these sides: NAME+patch2, NAME+patch4. A finer
    grid may bring accuracy and costs compute; the table has both."""
    pretrained: bool = False
    """Which pretrained backbone: probe frozen features, fine-tune the best (recipe finetune), and
    recommend one."""
    probe_only: bool = False
    """With --pretrained: stop after the probe."""
    groups: str | None = None
    """Images that belong together, such as a patient's or a video's: a column of csv:, or a pattern
    on file names (its first bracket, if there is one). No group is on two sides of a split, and its
    images count together in every interval."""
    class_names: Path | None = None
    """A file of readable class names: lines of folder,name."""
    fractions: tuple[float, ...] = (0.1, 1.0)
    """Shares of each class to train on."""
    seeds: tuple[Seed, ...] = (0, 1, 2)
    """One run per seed; more seeds give smaller error bars."""
    margin: Annotated[float, Within(0, 100)] = 1.0
    """Points of top-1 that do not matter: a cheaper model is taken if it is shown to be no further
    behind the best."""
    validation: Annotated[float, Within(0, 1, open_high=True)] = 0.2
    """Share of each class's training images that is held out and chooses the model; test images
    only tell how good it is. 0: the test images choose too."""
    folds: Annotated[int, Within(2, 100)] | None = None
    """Hold every training image out once, in so many parts, instead of one validation share; where
    the source has no test images, of all images. For few images: 5."""
    metric: Literal["top1", "balanced"] = "top1"
    """Share of images that are right, or its mean over classes, for classes of unequal size."""
    tune: bool = False
    """Find a learning rate for each model first, on validation images: a quarter, a half, once and
    twice the recipe's, in short runs. Done by itself where a --budget has room."""
    rates: tuple[str, ...] = ()
    """Learning rates of models, as NAME=VALUE, such as those that --tune found."""
    match: Literal["compute"] | None = None
    """Change the widths of our models so that all take the multiply-adds of the first."""
    budget: str | None = None
    """End within this time: 90s, 20m, 2h. Left out are, as far as need be, small fractions, then
    dear models, then epochs, and it is said what; never seeds."""
    recipe: RecipeName = "laptop"
    epochs: Epochs = None
    set: Changes = ()
    image_size: ImageSize = None
    out: Path = Path("runs/compare")
    """Folder for runs, record and report."""
    processes: RunsAtATime = None
    figures: bool = False
    """Also write the page's figures as PNG, SVG and PDF, for a paper."""
    print_commands: bool = False
    """Print one `vitascope train` per run, for a cluster's scheduler, and stop."""
    json: Json = False
    quiet: Quiet = False
