"""The named recipes have the papers' numbers, and the first step of a run is the one by hand."""

import copy

import pytest
import torch
from torch.nn import functional as F

from model_making import few_digits
from vitascope import data
from vitascope.errors import UserError
from vitascope.loading.opening import build
from vitascope.models.registry import OURS
from vitascope.training import RECIPES, recipe, train
from vitascope.training.trainer.optimizer import build_optimizer, learning_rate
from vitascope.training.trainer.update import reseed

SMALL = sorted(name for name in OURS if "micro" in name)
SEED, BATCH = 3, 16

# DeiT (arXiv 2012.12877, Table 9), whose values ConViT and context broadcasting take over.
DEIT = {
    "optimizer": "adamw",
    "epochs": 300,
    "batch_size": 1024,
    "base_lr": 5e-4 * 1024 / 512,
    "weight_decay": 0.05,
    "schedule": "cosine",
    "schedule_by": "epoch",
    "warmup_epochs": 5,
    "warmup_lr": 1e-6,
    "min_lr": 1e-5,
    "clip_grad": None,
    "drop_path": 0.1,
    "ema": None,
    "sam": None,
    "scale_epochs": True,
    "travel_lr": 1.0,
    "distillation": "none",
    "augmentation.crop": "resized",
    "augmentation.rand_augment": "rand-m9-mstd0.5-inc1",
    "augmentation.mixup": 0.8,
    "augmentation.cutmix": 1.0,
    "augmentation.random_erasing": 0.25,
    "augmentation.label_smoothing": 0.1,
    "augmentation.repeats": 3,
}
# Park and Kim 2022: cifar100_vit.yaml, cifar100_vit_noaug.yaml and imagenet_vit.yaml of
# github.com/xxxnell/how-do-vits-work, commit d2979f2.
PARK = {
    "optimizer": "adamw",
    "epochs": 300,
    "batch_size": 96,
    "base_lr": 1.25e-4,
    "weight_decay": 0.05,
    "schedule": "cosine",
    "schedule_by": "step",
    "warmup_epochs": 5,
    "warmup_lr": 0.0,
    "min_lr": 0.0,
    "clip_grad": 5.0,
    "drop_path": 0.1,
    "ema": None,
    "sam": None,
    "scale_epochs": False,
    "augmentation.crop": "pad",
    "augmentation.hflip": None,  # half of them where a mirror keeps the class
    "augmentation.rand_augment": "rand-m9-n2-mstd1.0",
    "augmentation.color_jitter": 0.0,
    "augmentation.random_erasing": 0.0,
    "augmentation.mixup": 1.0,
    "augmentation.cutmix": 0.8,
    "augmentation.mixup_prob": 1.0,
    "augmentation.label_smoothing": 0.1,
    "augmentation.repeats": 1,
}
NUMBERS = {
    "deit": DEIT,
    # ConViT, section 3: the wide models
    "deit_plus": DEIT | {"batch_size": 512, "base_lr": 4e-4},
    "cifar": PARK,
    "cifar_weak": PARK
    | {"clip_grad": None, "augmentation.rand_augment": None, "augmentation.mixup": 0.0}
    | {"augmentation.cutmix": 0.0, "augmentation.label_smoothing": 0.0},
    "imagenet_park": PARK
    | {"batch_size": 128, "clip_grad": None, "augmentation.crop": "resized"}
    | {"augmentation.rand_augment": "rand-m9-n2-mstd0.5", "augmentation.random_erasing": 0.25},
    # context broadcasting, supplement: repeated augmentation only for ViT-B
    "broadcast": DEIT | {"augmentation.repeats": 1},
    "broadcast_base": DEIT | {"warmup_epochs": 10, "drop_path": 0.2},
    # ours
    "laptop": DEIT
    | {"epochs": 30, "batch_size": 64, "base_lr": 2e-3, "schedule_by": "step"}
    | {"warmup_epochs": 2, "warmup_lr": 1e-5, "clip_grad": 1.0, "drop_path": 0.0}
    | {"travel_lr": 10.0, "augmentation.crop": "pad", "augmentation.rand_augment": None}
    | {"augmentation.mixup": 0.0, "augmentation.cutmix": 0.0, "augmentation.repeats": 1}
    | {"augmentation.random_erasing": 0.0, "augmentation.label_smoothing": 0.0},
    "finetune": DEIT
    | {"epochs": 5, "least_steps": 100, "batch_size": 16, "base_lr": 2e-4, "schedule_by": "step"}
    | {"warmup_epochs": 0.5, "head": "fitted", "freeze": ("batchnorm",), "drop_path": 0.0}
    | {"min_lr": 1e-6, "clip_grad": 1.0, "scale_epochs": False}
    | {"augmentation.mixup": 0.0, "augmentation.cutmix": 0.0, "augmentation.repeats": 1}
    | {"augmentation.rand_augment": None, "augmentation.random_erasing": 0.0, "layer_decay": 0.75}
    | {"augmentation.scale": (0.6, 1.0), "augmentation.label_smoothing": 0.0},
    "linear": DEIT
    | {"epochs": 1, "batch_size": 8, "base_lr": 0.0, "schedule": "constant", "warmup_epochs": 0}
    | {"warmup_lr": 0.0, "min_lr": 0.0, "scale_epochs": False, "drop_path": 0.0}
    | {"head": "fitted", "freeze": ("backbone",), "augmentation.crop": "none"}
    | {"augmentation.mixup": 0.0, "augmentation.cutmix": 0.0, "augmentation.repeats": 1}
    | {"augmentation.rand_augment": None, "augmentation.random_erasing": 0.0}
    | {"augmentation.label_smoothing": 0.0},
}
_TASK = DEIT | {"schedule": "linear", "schedule_by": "step", "weight_decay": 0.01, "min_lr": 0.0}
_TASK |= {"scale_epochs": False, "augmentation.crop": "none", "augmentation.rand_augment": None}
_TASK |= {
    f"augmentation.{name}": 0.0 for name in ("mixup", "cutmix", "random_erasing", "label_smoothing")
} | {"augmentation.repeats": 1}
NUMBERS |= {
    # Swin, A2.3: 160,000 updates of 16 crops of 20,210 images, 1,500 to warm up
    "segmentation": _TASK
    | {"epochs": round(160_000 * 16 / 20_210), "batch_size": 16, "base_lr": 6e-5}
    | {"warmup_epochs": pytest.approx(1_500 * 16 / 20_210, abs=0.01), "warmup_lr": 6e-11},
    # ViLT, section 4.2: a tenth of the steps warms up
    "vqa": _TASK
    | {"epochs": 10, "batch_size": 256, "base_lr": 1e-4, "warmup_epochs": 1.0, "warmup_lr": 0.0},
}


NUMBERS["finetune_small"] = NUMBERS["finetune"] | {
    "augmentation.scale": (0.35, 1.0),
    "augmentation.label_smoothing": 0.1,
    "finish": "best",
}


def test_every_recipe_has_its_numbers_below():
    assert set(RECIPES) == set(NUMBERS)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_a_recipe_has_the_numbers_of_its_paper(name):
    made = recipe(name)
    found = {}
    for field in NUMBERS[name]:
        holder, _, last = field.rpartition(".")
        found[field] = getattr(getattr(made, holder) if holder else made, last)
    assert found == NUMBERS[name]


def test_park_and_kim_shift_by_four_pixels_and_the_lr_goes_from_zero_to_zero():
    made = recipe("cifar")
    assert made.augmentation.padding(32) == 4
    lr = learning_rate(made, 500)
    assert lr(0) == 0
    assert lr(5 * 500) == pytest.approx(1.25e-4, rel=1e-3)
    assert lr(300 * 500) == pytest.approx(0, abs=1e-12)


def below(name, decay):
    """The lr of a parameter of a ViT with four blocks, as a multiple of the head's."""
    if name.startswith("head"):
        return 1.0
    if name.startswith("norm"):
        return decay
    block = int(name.split(".")[1]) if name.startswith("blocks.") else -1
    return decay ** (4 - block)


def by_hand(model, images, plan):
    """The first step of AdamW: m / (1 - b1) = g and v / (1 - b2) = g^2, decay beside it."""
    batches = data.TrainBatches(
        images.train,
        batch_size=plan.batch_size,
        augmentation=plan.augmentation,
        num_classes=10,
        mean=images.mean,
        std=images.std,
        flips=images.flips,
        seed=SEED,
    )
    batch = next(iter(batches.epoch(0)))
    model.train()
    reseed(SEED, 0, 0)
    loss = F.cross_entropy(model(batch.images), batch.targets)
    loss.backward()
    gradients = [p.grad for p in model.parameters()]
    norm = torch.cat([g.flatten() for g in gradients]).norm().item()
    factor = min(1.0, plan.clip_grad / (norm + 1e-6)) if plan.clip_grad else 1.0
    lr = learning_rate(plan, len(batches))(0)
    spared = model.no_weight_decay() if hasattr(model, "no_weight_decay") else ()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            faster = name.endswith(("gating_param", "pos_proj.weight"))
            step = lr * (plan.travel_lr if faster else 1.0) * below(name, plan.layer_decay)
            if weight.ndim > 1 and name not in spared:
                weight.mul_(1 - step * plan.weight_decay)
            g = weight.grad * factor
            weight.sub_(step * g / (g.abs() + 1e-8))
    return loss.item(), lr


def check_one_step(name, model, folder):
    images = few_digits(BATCH, 20)
    plan = recipe(name, epochs=1, batch_size=BATCH, warmup_epochs=0)
    trained = build(model, images, drop_path=plan.drop_path).model
    expected = copy.deepcopy(trained)
    loss, lr = by_hand(expected, images, plan)
    assert lr == plan.base_lr
    run = train(trained, images, plan, folder, seed=SEED, quiet=True, trackers=())
    assert run.final["step"] == 1
    assert run.final["train_loss"] == pytest.approx(loss, rel=1e-4)
    found = dict(trained.named_parameters())
    for key, weight in expected.named_parameters():
        # a step of Adam is g / |g|: where the gradient is all rounding, so is the step
        sure = weight.grad.abs() > 1e-3 * weight.grad.abs().max() + 1e-7
        faster = plan.travel_lr if key.endswith(("gating_param", "pos_proj.weight")) else 1.0
        allowed = 0.01 * lr * faster + 2e-7 * weight.abs().max()
        assert ((found[key] - weight).abs() * sure).max() <= allowed, key


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_first_step_of_a_recipe_is_the_one_by_hand(name, tmp_path):
    check_one_step(name, "convit_micro", tmp_path / "a")


@pytest.mark.parametrize("model", [name for name in SMALL if name != "convit_micro"])
def test_the_first_step_of_a_small_model_is_the_one_by_hand(model, tmp_path):
    check_one_step("laptop", model, tmp_path / "a")


def test_betas_eps_and_momentum_reach_the_optimizer_and_only_those_that_have_them():
    model = torch.nn.Linear(2, 2)
    adam = build_optimizer(model, recipe("deit", betas=(0.8, 0.95), eps=1e-6))
    assert adam.defaults["betas"] == (0.8, 0.95)
    assert adam.defaults["eps"] == 1e-6
    sgd = build_optimizer(model, recipe("deit").override(optimizer="sgd", momentum="0.5"))
    assert sgd.defaults["momentum"] == 0.5
    read = recipe("deit").override(betas="[0.7, 0.9]")
    assert read.betas == (0.7, 0.9)
    assert type(read).from_dict(read.to_dict()) == read
    assert not {"betas", "eps", "momentum"} & set(recipe("deit").to_dict())
    usual = build_optimizer(model, recipe("deit")).defaults
    assert (usual["betas"], usual["eps"]) == ((0.9, 0.999), 1e-8)
    for wrong, says in (
        ({"momentum": 0.9}, "adamw has no momentum"),
        ({"betas": (0.9, 1.5)}, "betas"),
        ({"betas": "0.9"}, "betas"),
    ):
        with pytest.raises(UserError, match=says):
            build_optimizer(model, recipe("deit").override(**wrong))
