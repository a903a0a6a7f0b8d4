"""The named recipes, each a function that returns a complete one and says where it comes from.

DeiT is Touvron et al. 2020 (https://arxiv.org/abs/2012.12877), which ConViT and context
broadcasting follow. A paper that leaves a value open takes DeiT's; ours are marked as ours.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from vitascope.data import Subset, augment
from vitascope.errors import unknown
from vitascope.training.recipes.config import Recipe

__all__ = [
    "RECIPES",
    "broadcast",
    "cifar",
    "cifar_weak",
    "deit",
    "finetune",
    "finetune_small",
    "imagenet_park",
    "laptop",
    "linear",
    "recipe",
    "segmentation",
    "vqa",
]


def deit(plus: bool = False) -> Recipe:
    """ConViT's training on ImageNet (section 3), which is DeiT's; ``plus``: its wide models.

    The "+" models use lr 4e-4 and batch 512, which is 4e-4 x 512/512 in DeiT's rule.
    """
    return Recipe(
        name="deit_plus" if plus else "deit",
        epochs=300,
        batch_size=512 if plus else 1024,
        optimizer="adamw",
        lr=4e-4 if plus else 5e-4,
        lr_batch=512,  # lr x batch/512
        weight_decay=0.05,
        schedule="cosine",
        schedule_by="epoch",
        warmup_epochs=5,
        warmup_lr=1e-6,
        min_lr=1e-5,
        clip_grad=None,
        augmentation=augment.deit(),
        subset=Subset(),
        scale_epochs=True,  # ConViT Table 2: epochs x 1/f; does nothing at f = 1
        drop_path=0.1,
        ema=None,
        sam=None,
    )


def cifar() -> Recipe:
    """ "How do vision transformers work?" on CIFAR-100, for convolutions and transformers alike.

    Park and Kim 2022, appendix A, which refers to the source code for all else:
    ``configs/cifar100_vit.yaml`` of https://github.com/xxxnell/how-do-vits-work. The lr rises by
    steps from 0. Drop path is DeiT's 0.1, which is theirs, too.
    """
    return replace(
        deit(),
        name="cifar",
        batch_size=96,
        lr=1.25e-4,
        lr_batch=None,  # given for this batch
        schedule_by="step",
        warmup_lr=0.0,
        min_lr=0.0,
        clip_grad=5.0,
        augmentation=augment.cifar(),
        scale_epochs=False,
    )


def cifar_weak() -> Recipe:
    """Return ``cifar`` with weak augmentation, crops and mirrors: ``cifar100_vit_noaug.yaml``."""
    return replace(cifar(), name="cifar_weak", clip_grad=None, augmentation=augment.laptop())


def imagenet_park() -> Recipe:
    """Return Park and Kim's recipe for ImageNet: ``imagenet_vit.yaml``."""
    return replace(
        cifar(),
        name="imagenet_park",
        batch_size=128,
        clip_grad=None,
        augmentation=augment.imagenet_park(),
    )


def broadcast(base: bool = False, distilled: bool = False) -> Recipe:
    """Context broadcasting (supplement): DeiT's, without repeated augmentation for Ti and S.

    ``base`` (ViT-B): warm-up 10 and drop path 0.2, the value given for distillation; for plain
    training the supplement says only that it is raised. Its repeated augmentation stays.
    """
    start = deit()
    augmentation = start.augmentation if base else replace(start.augmentation, repeats=1)
    return replace(
        start,
        name="broadcast_base" if base else "broadcast",
        augmentation=augmentation,
        warmup_epochs=10 if base else 5,
        drop_path=0.2 if base else 0.1,
        distillation="hard" if distilled else "none",
    )


def laptop() -> Recipe:
    """Small images, two cores, minutes. Ours: chosen so that every micro model trains on digits.

    Gates and positional vectors get ten times the lr: under Adam a gate moves at most lr a step,
    and a run here has about a thousandth of the paper's steps.
    """
    return Recipe(
        name="laptop",
        epochs=30,
        batch_size=64,  # more steps: a ViT needs them
        optimizer="adamw",
        lr=2e-3,
        lr_batch=None,
        weight_decay=0.05,
        schedule="cosine",
        schedule_by="step",
        warmup_epochs=2,
        warmup_lr=1e-5,
        min_lr=1e-5,
        clip_grad=1.0,
        augmentation=augment.laptop(),
        subset=Subset(),
        scale_epochs=True,
        drop_path=0.0,
        ema=None,
        sam=None,
        travel_lr=10.0,
    )


def segmentation() -> Recipe:
    """ADE20K under UPerNet, for ``train --task segmentation``: Swin's published recipe.

    160,000 updates of 16 crops are 127 epochs of 20,210 images; 1,500 of them warm up. Liu et al.
    2021 (https://arxiv.org/abs/2103.14030, A2.3); the documents on context broadcasting that we
    have give none. Crops and mirrors are the task's own.
    """
    return replace(
        deit(),
        name="segmentation",
        epochs=127,
        batch_size=16,
        lr=6e-5,
        lr_batch=None,
        weight_decay=0.01,
        schedule="linear",
        schedule_by="step",
        warmup_epochs=1.19,
        warmup_lr=6e-11,
        min_lr=0.0,
        augmentation=augment.none(),
        scale_epochs=False,
        eval_every=8,
    )


def vqa() -> Recipe:
    """VQAv2, for ``train --task vqa``: ViLT's fine-tuning.

    Kim et al. 2021 (https://arxiv.org/abs/2102.03334, section 4.2): AdamW, lr 1e-4, weight decay
    0.01, warm-up over a tenth of the steps and a linear fall to 0, 10 epochs of batches of 256.
    """
    return replace(
        segmentation(),
        name="vqa",
        epochs=10,
        batch_size=256,
        lr=1e-4,
        warmup_epochs=1.0,
        warmup_lr=0.0,
        eval_every=1,
    )


def finetune() -> Recipe:
    """Pretrained weights on other images. Ours: few steps, light augmentation, and layer-wise lr.

    The new head is fitted to the frozen features first (linear probing, then fine-tuning; Kumar et
    al. 2022, https://arxiv.org/abs/2202.10054), and batch norms keep their statistics: those of
    few images are worse. There are five epochs, or as many as make 100 updates. Augmentation is a
    crop of at least 60 % of the image and a mirror, nothing else. The head learns at the lr, each
    layer before it at 0.75 times that of the next (BEiT, https://arxiv.org/abs/2106.08254), so that
    the first layers, which serve any image, hardly move. ``vitascope train --pretrained`` builds
    the model with its weights and a new head.
    """
    return replace(
        deit(),
        name="finetune",
        epochs=5,
        least_steps=100,
        batch_size=16,
        lr=2e-4,
        lr_batch=None,
        layer_decay=0.75,
        schedule_by="step",
        warmup_epochs=0.5,
        min_lr=1e-6,
        clip_grad=1.0,
        augmentation=augment.light(),
        scale_epochs=False,
        drop_path=0.0,
        head="fitted",
        freeze=("batchnorm",),
    )


def finetune_small() -> Recipe:
    """Return ``finetune`` for small sets: label smoothing, stronger crops, the best epoch is kept.

    Crops are of at least 35 % of the image, labels are smoothed by 0.1, and the result is the epoch
    with the lowest loss on the images the run is measured on, which should not be the test images.
    """
    return replace(
        finetune(),
        name="finetune_small",
        augmentation=replace(augment.light(), scale=(0.35, 1.0), label_smoothing=0.1),
        finish="best",
    )


def linear() -> Recipe:
    """Pretrained weights as they are, under a head fitted to their features (logistic regression).

    One epoch at lr 0 goes through the images and changes nothing; it measures the run. The head's
    penalty is chosen by cross-validation of the training images.
    """
    return replace(
        deit(),
        name="linear",
        epochs=1,
        batch_size=8,  # changes nothing
        lr=0.0,
        lr_batch=None,
        schedule="constant",
        warmup_epochs=0,
        warmup_lr=0.0,
        min_lr=0.0,
        augmentation=augment.none(),
        scale_epochs=False,
        drop_path=0.0,
        head="fitted",
        freeze=("backbone",),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    "deit": deit,
    "deit_plus": lambda: deit(plus=True),
    "cifar": cifar,
    "cifar_weak": cifar_weak,
    "imagenet_park": imagenet_park,
    "broadcast": broadcast,
    "broadcast_base": lambda: broadcast(base=True),
    "laptop": laptop,
    "finetune": finetune,
    "finetune_small": finetune_small,
    "linear": linear,
    "segmentation": segmentation,
    "vqa": vqa,
}


def recipe(name: str, /, **overrides: Any) -> Recipe:
    """The recipe called ``name``, with fields changed; dotted names reach inside.

    >>> recipe("deit").base_lr, recipe("deit_plus").base_lr
    (0.001, 0.0004)
    """
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]().override(**overrides)
