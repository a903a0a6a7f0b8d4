"""Options of the commands that compare models: which models, on which images, trained how.

The command line and the Python functions are made from them; torch is not needed to read them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vitascope.option_types import Changes, Data, Epochs, ImageSize, RecipeName
from vitascope.settings import Count, Seed, Within

Metric = Literal["top1", "balanced"]
# The candidates of --pretrained where none are named: timm's, small, from hard to no locality.
PRETRAINED_MODELS = (
    "resnet18.a1_in1k",
    "regnety_008.pycls_in1k",
    "convnext_tiny.fb_in1k",
    "efficientnet_b0.ra_in1k",
    "swin_tiny_patch4_window7_224.ms_in1k",
    "maxvit_tiny_tf_224.in1k",
    "caformer_s18.sail_in1k",
    "timm:convit_tiny.fb_in1k",
    "deit_tiny_patch16_224.fb_in1k",
    "vit_small_patch16_224.augreg_in21k_ft_in1k",
    "vit_small_patch14_dinov2.lvd142m",
    "vit_base_patch32_clip_224.openai",
)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of `vitascope compare`: the models, the images, and how to choose among them."""

    data: Data
    models: tuple[str, ...] = ("vit_micro", "convit_micro", "resnet_micro")
    """Models of ours or timm's; gains are relative to the first. With --pretrained: NAME,
    NAME@FILE, hf-hub:, local-dir:, hf:, a run's folder, package.module:function; twelve of timm's
    when left out."""
    patch_sizes: tuple[Annotated[int, Within(1, 1024)], ...] = ()
    """Try every transformer of ours with patches of these sides: NAME+patch2, NAME+patch4. A finer
    grid may bring accuracy and costs compute; the answer says how much."""
    pretrained: bool = False
    """Compare pretrained backbones instead of training from scratch: probe their frozen features,
    fine-tune the best (recipe finetune_small), and recommend one."""
    probe_only: bool = False
    """With --pretrained: stop after the probe."""
    groups: str | None = None
    """Images that belong together, such as a patient's or a video's: a column of csv:, or a pattern
    on file names (its first bracket, if there is one). A group is never divided by a split, and
    confidence intervals count it as one."""
    class_names: Path | None = None
    """A file of readable class names: lines of folder,name."""
    fractions: tuple[float, ...] = (0.1, 1.0)
    """Shares of each class to train on."""
    seeds: tuple[Seed, ...] = (0, 1, 2)
    """One run per seed; more seeds give smaller error bars."""
    margin: Annotated[float, Within(0, 100)] = 1.0
    """Points of top-1 that are too few to matter: a cheaper model is recommended if it is shown to
    lose no more than this to the best."""
    validation: Annotated[float, Within(0, 1, open_high=True)] = 0.2
    """Share of each class's training images that is held out to choose the model; test images only
    measure how good the choice is. 0: choose on the test images too."""
    folds: Annotated[int, Within(2, 100)] | None = None
    """Cross-validate over this many folds of the training images, instead of holding one validation
    share out; where the source has no test images, of all images. For few images: 5."""
    metric: Metric = "top1"
    """top1: share of images classified correctly; balanced: mean of that share over the classes."""
    tune: bool = False
    """Find a learning rate for each model first, in short runs with 1/4, 1/2, 1 and 2 times the
    recipe's, measured on validation images. Automatic where a --budget leaves time for it."""
    rates: tuple[str, ...] = ()
    """Learning rates of models, as NAME=VALUE, such as those that --tune found."""
    match: Literal["compute"] | None = None
    """Change the widths of our models so that all have as many multiply-adds as the first."""
    budget: str | None = None
    """Finish within this time: 90s, 20m, 2h. As far as needed, small fractions are left out first,
    then images are made smaller, then epochs go, never models or seeds; the output says which. Time
    that is left goes to further seeds, as with --until decided."""
    until: Literal["decided"] | None = None
    """decided: add seeds in rounds, only to the models still in question, until the answer is clear
    or no sensible number of seeds would make it so. The answer stays right 95 times in 100 however
    often the results are looked at. With --pretrained every seed is one more repetition of the
    folds (5 unless --folds says otherwise), which are dealt out anew."""
    recipe: RecipeName = "laptop"
    epochs: Epochs = None
    set: Changes = ()
    image_size: ImageSize = None

    @property
    def backbones(self) -> tuple[str, ...]:
        """The candidates of --pretrained: the models, or twelve of timm's where none are named."""
        return PRETRAINED_MODELS if self.models == CompareOptions.models else self.models


@dataclass(frozen=True, kw_only=True)
class BuildupOptions:
    """Options of `vitascope study buildup`: the first network, the images, and what to keep."""

    data: Data
    base: str = "resnet"
    """The network to start from, which must declare its stages, as all ResNets of ours do, also
    resnet_postact_50 and resnext_50; resnet: resnet_micro for images of at most 64 pixels,
    resnet_preact_50 for larger ones."""
    model_args: tuple[str, ...] = ()
    """Arguments of the base, as NAME=VALUE: heads=[1,2,4] head_dim=16 window=4."""
    recipe: RecipeName = "laptop"
    epochs: Epochs = None
    set: Changes = ()
    seeds: tuple[Seed, ...] = (0, 1)
    """One run per seed and network; their mean decides."""
    validation: Annotated[float, Within(0, 1, open_low=True, open_high=True)] = 0.2
    """Share of each class's training images that is held out to decide on."""
    margin: Annotated[float, Within(0, 100, open_high=True)] = 0.0
    """Points of top-1 that a block must bring to be kept; a tie is not kept."""
    max_candidates: Count | None = None
    """Stop after this many networks besides the base."""
    image_size: ImageSize = None
