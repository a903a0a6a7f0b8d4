"""Options that several commands have: their type, range and help."""

from typing import Annotated

from tyro.conf import Positional, arg

from vitascope.settings import Count, Processes, Side, Workers

Model = Annotated[
    str,
    Positional,
    arg(
        metavar="MODEL",
        help="The folder of a run or of a comparison, a model's name, NAME@FILE, timm:NAME, "
        "hf-hub:, local-dir:, hf:NAME, or package.module:function.",
    ),
]
_DATA = arg(
    help="Images: digits, a folder of class folders, csv:FILE, cifar10:PATH, idx:PATH, hf:NAME, "
    "wds:FILES or imagenet:PATH."
)
Data = Annotated[str, _DATA]
OptionalData = Annotated[str | None, _DATA]
TestData = Annotated[str | None, arg(help="Images; a run's own test images when left out.")]
ClassNames = Annotated[
    tuple[str, ...],
    arg(help="The model's names for classes of the images: puppy=dog kitten=cat."),
]
_RECIPES = (
    "deit, deit_plus, cifar, cifar_weak, imagenet_park, broadcast, broadcast_base, laptop, "
    "finetune, finetune_small or linear"
)
RecipeName = Annotated[str, arg(help=f"{_RECIPES}.")]
TaskRecipe = Annotated[
    str | None,
    arg(
        help=f"{_RECIPES}; segmentation and vqa for those tasks. laptop, or the task's own, when "
        "left out."
    ),
]
Epochs = Annotated[
    Count | None,
    arg(
        help="Epochs on all images; the recipe's when left out. The warm-up stays the same "
        "share of them."
    ),
]
Changes = Annotated[
    tuple[str, ...],
    arg(help="Changes to the recipe, as FIELD=VALUE: lr=3e-4 augmentation.mixup=0.2 ema=0.999."),
]
ImageSize = Annotated[Side | None, arg(help="Resize the images to this side, in pixels.")]
ModelSize = Annotated[
    Side | None, arg(help="Resize the images to this side; the model's own when left out.")
]
ModelArguments = Annotated[
    tuple[str, ...],
    arg(
        help="Arguments of a model given by name, as NAME=VALUE: qkv_bias=false "
        "locality_strength=2."
    ),
]
TimmWeights = Annotated[bool, arg(help="Use timm's pretrained weights for a model given by name.")]
Device = Annotated[str | None, arg(help="cpu, cuda or mps; the best there is when left out.")]
WorkerCount = Annotated[Workers, arg(help="Processes that decode image files.")]
RunsAtATime = Annotated[
    Processes | None, arg(help="Runs at a time; as many as CPU cores when left out.")
]
Threads = Annotated[
    Count | None,
    arg(help="Threads of torch, kept in records; torch's own choice when left out."),
]
Json = Annotated[bool, arg(help="Print JSON instead of text.")]
Quiet = Annotated[bool, arg(help="No progress and no notes.")]
