"""What ``vitascope compare`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
      vitascope compare --data photos/ --models vit_micro convit_micro swin_tiny_patch4_window7_224
      vitascope compare --data photos/ --pretrained --probe-only
      vitascope compare --data photos/ --pretrained --models resnet18 tf_efficientnet_lite0@a.pt
    """

    data: Data
    models: tuple[str, ...] = ("vit_micro", "convit_micro", "resnet_micro")
    """Models of ours or timm's; gains are relative to the first. With --pretrained: NAME,
    NAME@FILE, hf-hub:, local-dir:, hf:, a run's folder; twelve of timm's when left out."""
    groups: str | None = None
    """Images that belong together, such as a patient's or a video's: a column of csv:, or a pattern
    on file names (its first bracket, if there is one). Splits and intervals know."""
    class_names: Path | None = None
    """A file of readable class names: lines of folder,name."""
    pretrained: bool = False
    """Which pretrained backbone: probe frozen features, fine-tune the best (recipe finetune), and
    recommend one."""
    probe_only: bool = False
    """With --pretrained: stop after the probe."""
    budget: str | None = None
    """With --pretrained: end within about this time, such as 90s, 20m or 2h."""
    fractions: tuple[float, ...] = (0.1, 1.0)
    """Shares of each class to train on."""
    seeds: tuple[Seed, ...] = (0, 1, 2)
    """One run per seed; more seeds give smaller error bars."""
    margin: Annotated[float, Within(0, 100)] = 1.0
    """Points of top-1 that do not matter: a cheaper model is taken if it is shown to be no further
    behind the best."""
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
