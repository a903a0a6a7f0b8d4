"""What a study costs at the paper's scale: GPU-hours and memory, before anything is started.

Training takes three forward passes' work per image (forward, and twice that backward), two
operations per multiply-add:

    seconds = 6 x multiply-adds x images x epochs / (peak x utilisation)

for a GPU of 312 Tflop/s (A100, bf16) used at 35 %, which is what well-fed ViTs reach; data loading
and evaluation come on top. Memory per GPU: weights, gradients and Adam's two moments in fp32 (16
bytes per parameter) and activations, 34 bytes per token, channel and block without recomputation
(Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198, eq. 1, with fused attention). Both are
expectations, not measurements: no GPU was at hand to check them. Small networks on images of 32
pixels use far less of a GPU, so their hours are a lower bound; readings (spectra of a thousand
mini-batches) and a teacher's passes are not counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vitascope.papers.plan import Plan, Training
from vitascope.training import recipe

PEAK, USED = 312e12, 0.35
IMAGES = {"imagenet": 1_281_167, "cifar10": 50_000, "cifar100": 50_000}

# (million parameters, 10^9 multiply-adds per image), counted by studies.session.model_sizes at
# 224 x 224, on CIFAR at 32 x 32. Arguments stand behind a model's name where they change its size.
FLOPS: dict[str, tuple[float, float]] = {
    "deit_small": (22.1, 4.6),
    "convit_small": (27.8, 5.76),
    "deit_tiny": (5.72, 1.25),
    "deit_base": (86.6, 17.6),
    "deit_tiny_plus": (9.98, 2.14),
    "deit_small_plus": (49, 10),
    "deit_base_plus": (153, 30.9),
    "convit_tiny": (5.71, 1.26),
    "convit_base": (86.5, 17.5),
    "convit_tiny_plus": (9.97, 2.14),
    "convit_small_plus": (49, 10),
    "convit_base_plus": (153, 30.8),
    "deit_small_distilled": (22.4, 4.62),
    "deit_base_distilled": (87.3, 17.7),
    "convit_small_plus_distilled": (49.6, 10),
    "vit_tiny_cifar": (5.58, 1.67),
    "resnet_preact_50": (25.5, 4.09),
    "resnet_postact_50": (25.6, 4.09),
    "resnet_preact_50 stem=cifar": (25.5, 1.3),
    "pit_tiny_cifar": (4.77, 0.18),
    "pit_tiny_cifar stride=1": (4.81, 0.95),
    "swin_tiny_cifar": (28.3, 1.43),
    "vit_small_cifar": (21.8, 6.07),
    "resnet_preact_50 blur=2 stem=cifar": (25.5, 1.3),
    "resnet_preact_101": (44.5, 7.8),
    "resnet_preact_101 stem=cifar": (44.5, 2.51),
    "vit_tiny_cifar class_token=False global_pool=avg": (5.58, 1.66),
    "convolutional_vit_tiny": (5.72, 1.25),
    "convolutional_vit_tiny img_size=32 kernel_size=3 patch_size=4": (5.55, 0.365),
    "convolutional_vit_tiny img_size=32 kernel_size=5 patch_size=4": (5.55, 0.365),
    "vit_tiny_cifar patch_size=4": (5.55, 0.365),
    "vit_tiny_cifar patch_size=8": (5.57, 0.0924),
    "vit_tiny_cifar depth=6 embed_dim=64 num_heads=1": (0.382, 0.127),
    "vit_tiny_cifar depth=6 embed_dim=192 num_heads=3": (2.91, 0.835),
    "vit_tiny_cifar depth=6 embed_dim=384 num_heads=6": (11.1, 3.03),
    "vit_tiny_cifar depth=6 embed_dim=768 num_heads=12": (43.5, 11.5),
    "vit_tiny_cifar depth=6 embed_dim=48 num_heads=3": (0.232, 0.0809),
    "vit_tiny_cifar depth=6 embed_dim=96 num_heads=3": (0.794, 0.247),
    "vit_tiny_cifar depth=6 embed_dim=384 num_heads=3": (11.1, 3.03),
    "vit_tiny_cifar depth=6 head_dim=64 num_heads=1": (2.32, 0.582),
    "vit_tiny_cifar depth=6 head_dim=64 num_heads=3": (2.91, 0.835),
    "vit_tiny_cifar depth=6 head_dim=64 num_heads=6": (3.8, 1.21),
    "vit_tiny_cifar depth=6 head_dim=64 num_heads=12": (5.57, 1.97),
    "vit_tiny_cifar depth=6 head_dim=16 num_heads=3": (2.25, 0.55),
    "vit_tiny_cifar depth=6 head_dim=32 num_heads=3": (2.47, 0.645),
    "vit_tiny_cifar depth=6 head_dim=128 num_heads=3": (3.8, 1.21),
    "twins_small_cifar": (24.1, 0.927),
    "mixer_tiny_cifar": (4.35, 1.02),
    "resnet_preact_18": (11.7, 1.81),
    "resnet_preact_18 stem=cifar": (11.7, 0.556),
    "resnext50_cifar": (25, 1.35),
    "pit_ti_224": (4.85, 0.699),
    "swin_tiny_patch4_window7_224": (28.3, 4.49),
    "alternet_50": (35.9, 5.01),
    "alternet_50 kinds=ccc,ccca,ccccca,caca stem=cifar": (34.9, 1.51),
    "resnet_preact_50 depths=3,4,6,4 kinds=ccc,cccc,cccccc,cccc stem=cifar": (30, 1.37),
    "resnet_preact_50 depths=3,4,6,4 kinds=ccc,cccc,cccccc,ccca stem=cifar": (32.1, 1.41),
    "resnet_preact_50 depths=3,4,6,4 kinds=ccc,cccc,cccccc,caca stem=cifar": (34.2, 1.44),
    "resnet_preact_50 depths=3,4,6,4 kinds=ccc,cccc,ccccca,caca stem=cifar": (34.7, 1.47),
    "resnet_preact_50 depths=3,4,6,4 kinds=ccc,cccc,cccaca,caca stem=cifar": (35.3, 1.51),
    "resnet_preact_50 depths=3,4,6,4 kinds=ccc,cccc,cacaca,caca stem=cifar": (35.8, 1.55),
    "twins_svt_small": (24.1, 2.93),
    "levit_128s": (7.78, 0.305),
    "coat_lite_tiny": (5.72, 1.59),
    "mixer_b16_224": (59.9, 12.6),
    "resnext50_32x4d": (25, 4.23),
    "deit_tiny_distilled": (5.91, 1.26),
    "pvt_small": (24.5, 3.82),
    "localvit_tiny": (5.91, 1.27),
    "pvt_v2_b1": (14, 2.11),
}


# seconds of one slow core on digits, by reading; the final line stands for the training itself
LAPTOP = {"final": 25.0, "hessian": 8.0, "corruption": 5.0, "landscape": 4.0}
_OTHER = 0.5


# (10^9 multiply-adds of a sample, samples of an epoch): DeiT-S under UPerNet on ADE20K's crops of
# 512 pixels; ViLT-B on questions of 40 words and images of 384 pixels
TASKS = {"segmentation": (100.4, 20_210), "vqa": (16.69, 443_757)}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a plan is expected to take."""

    num_runs: int
    gpu_hours: float
    largest_gb: float  # of the run that needs most, a GPU
    unknown: tuple[str, ...]  # models that are not in the table above


def named(training: Training) -> str:
    """The model with its arguments, and without what costs next to nothing: broadcasting, biases.

    >>> named(Training(model="a+cb", model_args={"n": 2, "k": (1, 2)}, data="", recipe=""))
    'a k=1,2 n=2'
    """
    parts = [training.model.split("+")[0]]
    for key, value in sorted(training.model_args.items()):
        if key == "qkv_bias":
            continue
        items = value if isinstance(value, (list, tuple)) else [value]
        parts.append(f"{key}={','.join(map(str, items))}")
    return " ".join(parts)


def size_of(training: Training) -> tuple[float, float] | None:
    """Million parameters and 10^9 multiply-adds, if the model was counted."""
    return FLOPS.get(named(training)) or FLOPS.get(training.model.split("+")[0])


def hours(training: Training) -> float | None:
    """GPU-hours of one run; None for a model that was not counted.

    >>> FLOPS["half"] = (1.0, 0.5)
    >>> made = Training(model="half", data="imagenet", recipe="deit")
    >>> round(hours(made), 2), FLOPS.pop("half")
    (2.93, (1.0, 0.5))
    """
    size = size_of(training)
    if size is None:
        return None
    plan = training.full_recipe
    source, given, _ = training.data.partition(":")
    if not given and plan.name in ("cifar", "cifar_weak"):
        source = "cifar100"  # it is not said yet where they are
    images = float(IMAGES.get(source, IMAGES["imagenet"]))
    classes = plan.subset.first_classes
    images *= (classes / 1000) if classes else 1
    images *= plan.subset.fraction * plan.epoch_factor
    passes = 1 if plan.sam is None else 2  # SAM takes a second gradient at each step
    return _gpu_hours(size[1], passes * images * plan.epochs)


def _gpu_hours(giga: float, samples: float) -> float:
    return 6 * giga * 1e9 * samples / (PEAK * USED) / 3600


def task_hours(task: str) -> float:
    """GPU-hours of ``train --task`` at full size, with the task's recipe.

    >>> round(task_hours("segmentation"), 1), round(task_hours("vqa"), 1)
    (3.9, 1.1)
    """
    giga, samples = TASKS[task]
    return _gpu_hours(giga, samples * recipe(task).epochs)


def gigabytes(training: Training) -> float | None:
    """Memory of one GPU with 128 images on it, from parameters and multiply-adds alone.

    A block of width D takes 12 D^2 multiply-adds per token, so activations of 34 D bytes per token
    and block are 34 x multiply-adds / (12 D), with D from the parameters of 12 blocks.
    """
    size = size_of(training)
    if size is None:
        return None
    width = (size[0] * 1e6 / (12 * 12)) ** 0.5
    activations = 34 * size[1] * 1e9 / (12 * width) * 128
    return (16 * size[0] * 1e6 + activations) / 1e9


def budget(plans: Iterable[Plan], num_seeds: int) -> Budget:
    """Cost of several plans together: a training that they share is counted once."""
    trainings = {key: pair[0] for plan in plans for key, pair in plan.wanted().items()}
    counted = [t for t in trainings.values() if hours(t) is not None]
    unknown = sorted({t.model for t in trainings.values()} - {t.model for t in counted})
    return Budget(
        num_runs=len(trainings) * num_seeds,
        gpu_hours=num_seeds * sum(hours(t) or 0.0 for t in counted),
        largest_gb=max((gigabytes(t) or 0.0 for t in counted), default=0.0),
        unknown=tuple(unknown),
    )


def laptop_minutes(plan: Plan, num_seeds: int, cores: int = 2) -> float:
    """What a plan takes on a laptop when nothing is there yet, from seconds seen on digits."""
    names = [
        reading.name for _, readings in plan.wanted().values() for reading in readings.values()
    ]
    return num_seeds * sum(LAPTOP.get(name, _OTHER) for name in names) / cores / 60
