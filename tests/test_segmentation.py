"""Dense prediction: pyramids, heads, masks from disk, and mIoU."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchmetrics.classification import MulticlassJaccardIndex

import vitascope
from vitascope.data import SegmentationFolder
from vitascope.errors import UserError
from vitascope.measure.mean_iou import class_iou, confusion, miou, windowed_logits
from vitascope.models.segmentation.pyramid import SimplePyramid, feature_pyramid
from vitascope.models.segmentation.segmenter import segmenter
from vitascope.training.trainer.segmentation import pixel_loss

CLASSES = 3


def ade20k(root, sizes=((40, 30), (30, 44), (36, 36)), part="training"):
    """Scenes of two halves: the colour of a half is its class, and a column has no label."""
    rng = np.random.default_rng(0)
    for folder in ("images", "annotations"):
        (root / folder / part).mkdir(parents=True)
    for number, (width, height) in enumerate(sizes):
        mask = np.full((height, width), 1 + number % CLASSES, np.uint8)
        mask[:, width // 2 :] = 1 + (number + 1) % CLASSES
        mask[:, 0] = 0
        pixels = 60 * mask[..., None] + rng.integers(0, 20, (height, width, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(root / "images" / part / f"s{number}.jpg")
        Image.fromarray(mask).save(root / "annotations" / part / f"s{number}.png")
    return root


def step(model, images, masks, optimizer):
    """One update; the loss before it."""
    model.train()
    optimizer.zero_grad()
    loss = pixel_loss(model(images), masks)
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.fixture
def root(tmp_path):
    return ade20k(tmp_path / "ade")


# Pyramids


@pytest.mark.parametrize("name", ["vit_micro", "convit_micro", "convit_micro_distilled"])
def test_a_plain_backbone_gets_four_maps_each_half_of_the_one_before(name):
    pyramid = feature_pyramid(name, out_channels=12)
    maps = pyramid(torch.randn(2, 3, 32, 32))
    assert [tuple(m.shape) for m in maps] == [(2, 12, s, s) for s in (32, 16, 8, 4)]
    assert pyramid.strides == [1, 2, 4, 8]


def test_patches_of_16_give_the_strides_of_vitdet():
    pyramid = feature_pyramid("convit_tiny", depth=3, num_gpsa_blocks=1, img_size=64)
    assert pyramid.strides == [4, 8, 16, 32]
    assert pyramid.channels == [256] * 4


@pytest.mark.parametrize(
    ("name", "strides"),
    [
        ("resnet_micro", [1, 2, 4]),
        ("resnet10t", [4, 8, 16, 32]),
        ("test_convnext", [4, 8, 16, 32]),
        ("swin_tiny_patch4_window7_224", [4, 8, 16, 32]),
    ],
)
def test_a_backbone_in_stages_gives_its_own_maps(name, strides):
    kwargs = {"img_size": 64, "embed_dim": 12, "depths": (1,) * 4} if "swin" in name else {}
    pyramid = feature_pyramid(name, **kwargs)
    assert pyramid.strides == strides
    maps = pyramid(torch.randn(1, 3, 64, 64))
    expected = [(1, c, 64 // s, 64 // s) for c, s in zip(pyramid.channels, strides, strict=True)]
    assert [tuple(m.shape) for m in maps] == expected
    assert pyramid.neck is None


def test_the_middle_of_the_simple_pyramid_sees_the_backbones_last_map():
    model = vitascope.create_model("convit_micro", num_classes=5).eval()
    images = torch.randn(1, 3, 32, 32)
    logits = model(images)
    pyramid = feature_pyramid(model, out_channels=8).eval()
    last = model.forward_intermediates(images, indices=[3], intermediates_only=True)[0]
    torch.testing.assert_close(pyramid(images)[2], pyramid.neck.levels[2](last))
    torch.testing.assert_close(model(images), logits)  # the model was copied


def test_a_scale_that_no_doubling_reaches_and_a_backbone_without_maps_are_refused():
    with pytest.raises(UserError, match="scales"):
        SimplePyramid(8, scales=(3.0,))
    with pytest.raises(UserError, match="no feature maps"):
        feature_pyramid("timm:convit_tiny")
    with pytest.raises(UserError, match="forward_intermediates"):
        feature_pyramid(nn.Conv2d(3, 3, 1))


# The model and a step


@pytest.mark.parametrize("name", ["convit_micro", "vit_micro", "resnet_micro"])
@pytest.mark.parametrize("head", ["upernet", "fpn"])
def test_a_step_on_images_from_disk_trains_head_and_backbone(root, name, head):
    if (name, head) == ("resnet_micro", "fpn"):
        with pytest.raises(UserError, match="needs 4 maps"):
            segmenter(name, CLASSES, head=head)
        return
    data = SegmentationFolder(root, side=32, num_classes=CLASSES)
    (images, masks), *_ = data.batches(2)
    model = segmenter(name, CLASSES, head=head, width=32)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    loss = step(model, images, masks, torch.optim.SGD(model.parameters(), lr=0.1))
    assert 0.1 < loss < 10
    assert not [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not [n for n, p in model.named_parameters() if torch.equal(p, before[n])]


def test_training_lowers_the_loss_and_miou_sees_it(root):
    data = SegmentationFolder(root, side=32, num_classes=CLASSES)
    held = SegmentationFolder(root, side=32, num_classes=CLASSES, augment=False)
    model = segmenter("resnet_micro", CLASSES, width=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batches = [data.batches(3, epoch=epoch) for epoch in range(12)]
    losses = [step(model, *next(b), optimizer) for b in batches]
    assert losses[-1] < 0.5 * losses[0]
    assert miou(model, held.batches(1), window=32).mean > 0.5


def test_a_converted_resnet_and_images_of_any_size_can_be_segmented():
    backbone = vitascope.convit_from_resnet(vitascope.create_model("resnet_micro"))
    model = segmenter(backbone, CLASSES, width=16).eval()
    assert model(torch.randn(1, 3, 22, 34)).shape == (1, CLASSES, 22, 34)


def test_an_unknown_head_a_single_image_and_maps_that_do_not_halve_are_refused():
    with pytest.raises(UserError, match="unknown segmentation head 'unet'"):
        segmenter("resnet_micro", CLASSES, head="unet")
    with pytest.raises(UserError, match="two images"):
        segmenter("resnet_micro", CLASSES, width=16).train()(torch.randn(1, 3, 16, 16))
    model = segmenter("vit_micro", CLASSES, head="fpn", width=32, dynamic_img_size=True).eval()
    with pytest.raises(UserError, match="halve exactly"):
        model(torch.randn(1, 3, 36, 32))


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("segmentation_models_pytorch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "segmentation_models_pytorch", None)
    with pytest.raises(UserError, match=r"vitascope\[dense\]"):
        segmenter("resnet_micro", CLASSES)


def test_the_loss_is_the_mean_over_labelled_pixels_alone():
    logits = torch.randn(2, CLASSES, 4, 5, dtype=torch.float64)
    masks = torch.randint(0, CLASSES, (2, 4, 5))
    masks[0] = 255
    each = -logits[1].log_softmax(0).gather(0, masks[1][None])
    torch.testing.assert_close(pixel_loss(logits, masks), each.mean())
    with pytest.raises(UserError, match="differ in size"):
        pixel_loss(logits, masks[:, 1:])


# Images and masks


def test_labels_start_at_zero_and_what_has_none_is_ignored(root):
    _, labels = SegmentationFolder(root, num_classes=CLASSES).read(0)
    assert labels.shape == (30, 40)
    assert (labels[:, 0] == 255).all()
    assert (labels[:, 1:20] == 0).all()
    assert (labels[:, 20:] == 1).all()


def test_image_and_mask_are_varied_together(root):
    data = SegmentationFolder(root, side=24, num_classes=CLASSES, mean=(0,) * 3, std=(1,) * 3)
    for epoch in range(6):
        data.epoch = epoch
        for image, mask in (data[i] for i in range(len(data))):
            assert image.shape == (3, 24, 24)
            assert mask.shape == (24, 24)
            for label in range(CLASSES):
                inside = mask == label
                if inside.sum() > 60:  # its colour is 60 (label + 1) + 0 ... 19
                    colour = image.mean(0)[inside].median().item() * 255
                    assert abs(colour - 60 * (label + 1) - 10) < 12


def test_small_scenes_are_padded_with_pixels_that_do_not_count(tmp_path):
    data = SegmentationFolder(ade20k(tmp_path, sizes=((16, 64),)), side=32, num_classes=CLASSES)
    seen = []
    for epoch in range(8):
        data.epoch = epoch
        image, mask = data[0]
        outside = (mask == 255) & (image.abs().amax(0) < 0.02)  # the mean colour
        seen.append(int(outside.sum()))
    assert max(seen) > 100


def test_what_happens_to_an_image_depends_on_seed_and_epoch_alone(root):
    data = SegmentationFolder(root, side=24, num_classes=CLASSES)
    first = [x.clone() for x in next(data.batches(3, epoch=1))]
    torch.rand(7)
    again = next(data.batches(3, epoch=1))
    other = next(data.batches(3, epoch=2))
    seeded = next(SegmentationFolder(root, side=24, num_classes=CLASSES, seed=1).batches(3))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], seeded[0])


def test_evaluation_keeps_whole_images_and_masks_at_their_own_size(root):
    data = SegmentationFolder(root, side=16, num_classes=CLASSES, augment=False)
    shapes = [(tuple(x.shape), tuple(m.shape)) for x, m in data.batches(8)]
    assert shapes[0] == ((1, 3, 16, 21), (1, 30, 40))
    assert len(shapes) == 3


def test_what_is_wrong_on_disk_is_named(root):
    def load(**kwargs):
        return SegmentationFolder(root, **{"num_classes": CLASSES, **kwargs})

    with pytest.raises(UserError, match="no folder at .*validation"):
        load(part="validation")
    with pytest.raises(UserError, match="s1.png has class 3; with 2 classes"):
        load(num_classes=2)[1]
    with pytest.raises(UserError, match="num_classes=300"):
        load(num_classes=300)
    with pytest.raises(UserError, match="a batch of 9 from 3 images"):
        next(load().batches(9))
    masks = root / "annotations" / "training"
    Image.new("L", (4, 5)).save(masks / "s0.png")
    with pytest.raises(UserError, match="s0.png is 4 x 5 pixels and its image 40 x 30"):
        load()[0]
    Image.new("RGB", (40, 30)).save(masks / "s0.png")
    with pytest.raises(UserError, match="colour image"):
        load()[0]
    (masks / "s0.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be read"):
        load()[0]
    (masks / "s0.png").unlink()
    with pytest.raises(UserError, match="1 of 3 images have no mask .*: s0.jpg"):
        load()
    for path in (root / "images" / "training").iterdir():
        path.unlink()
    with pytest.raises(UserError, match="no images in"):
        load()


# mIoU


class Fixed(nn.Module):
    """Predicts the class that the first channel of each pixel names."""

    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes

    def forward(self, x):
        return nn.functional.one_hot(x[:, 0].long(), self.num_classes).permute(0, 3, 1, 2).float()


def images_of(prediction):
    return prediction[:, None].expand(-1, 3, -1, -1).float()


def test_miou_of_an_example_done_by_hand():
    labels = torch.tensor([[[0, 0, 1], [1, 255, 255]]])
    predicted = torch.tensor([[[0, 1, 1], [1, 0, 2]]])  # class 0: 1 of 2, class 1: 2 of 3
    result = miou(Fixed(4), [(images_of(predicted), labels)])
    np.testing.assert_allclose(result.per_class, [1 / 2, 2 / 3, np.nan, np.nan])
    assert result.mean == pytest.approx(7 / 12)
    assert result.pixel_accuracy == pytest.approx(3 / 4)
    assert result.to_record().values["miou"] == pytest.approx(7 / 12)


def test_a_class_that_is_only_predicted_counts_as_zero():
    assert class_iou(confusion(torch.tensor([1, 0]), torch.tensor([0, 0]), 2).numpy()).tolist() == [
        0.5,
        0.0,
    ]


def test_miou_over_batches_equals_torchmetrics_over_everything():
    labels, predicted = torch.randint(0, 6, (2, 8, 9, 7))
    labels[torch.rand(8, 9, 7) < 0.2] = 255
    batches = [(images_of(predicted[i : i + 3]), labels[i : i + 3]) for i in range(0, 8, 3)]
    result = miou(Fixed(6), batches)
    theirs = MulticlassJaccardIndex(6, average=None, ignore_index=255)(predicted, labels)
    np.testing.assert_allclose(result.per_class, theirs.numpy(), rtol=1e-6)
    assert result.num_images == 8


def test_windows_cover_the_image_and_agree_with_the_whole_for_a_pointwise_model():
    images, model = torch.randn(1, 3, 17, 29), nn.Conv2d(3, 4, 1)
    torch.testing.assert_close(windowed_logits(model, images, 8), model(images))
    with pytest.raises(UserError, match="smaller than the window"):
        windowed_logits(model, images, 18)


def test_masks_may_be_larger_than_the_images():
    predicted = torch.tensor([[[0, 1], [1, 0]]])
    labels = predicted.repeat_interleave(4, 1).repeat_interleave(4, 2)
    assert miou(Fixed(2), [(images_of(predicted), labels)]).mean > 0.7


def test_miou_refuses_what_it_cannot_count():
    images = torch.zeros(1, 3, 2, 2)
    for batches, reason in [
        ([], "no labelled pixels"),
        ([(images, torch.full((1, 2, 2), 255))], "no labelled pixels"),
        ([(images, torch.full((1, 2, 2), 7))], "label 7 is out of range"),
        ([images], "batches of \\(images, masks\\)"),
    ]:
        with pytest.raises(UserError, match=reason):
            miou(Fixed(2), batches)
