"""Do other smoothings do what attention does? A blur at stage ends, and sharpness-aware training.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 3a and appendix B: even a fixed 2 x 2 box
blur at the ends of a CNN's stages raises accuracy and robustness, flattens the loss and takes high
frequencies out. Section 2, next to Fig. 4: SAM (Foret et al. 2021) seeks smooth minima and improves
ViTs (Chen et al. 2021). The text gives no numbers of either and no radius for SAM: 0.05 is Foret's.
"""

from vitascope.papers.broadcasting import accuracy_at
from vitascope.papers.plan import Measurement, Plan, TableSpec, drawing, read_claims, study
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS
from vitascope.papers.vit.tables import (
    LATE,
    accuracy,
    corrupted,
    eigenvalues,
    noise_figure,
    noise_table,
    spectra_figure,
    spectrum,
)

RADIUS = 0.05  # of SAM
_SAM = """
[Park & Kim section 2]
SAM leads {network} to a flatter minimum
    ape: {network} > {network}, SAM
SAM makes {network} more accurate
    top1: {network}, SAM > {network}
"""


@study(
    "Does sharpness-aware training flatten the loss of a ViT?",
    claim="SAM seeks out smooth minima and improves ViTs",
    covers=("Park & Kim section 2 (SAM)",),
    data=CIFAR,
)
def sam(scale: Scale) -> Plan:
    """Section 2: a ViT and a ResNet with and without SAM; spectra at the end, and accuracy.

    At a desk micro networks on a tenth of the images.
    """
    both = ("ViT-Ti", "ResNet-50")
    names = scale.pick(paper=both, smoke=both[:1])
    labels = [NETWORKS[name].label(scale, small=True) for name in names]
    share = scale.small if scale.name == "desk" else 1.0
    runs = {}
    for name, label in zip(names, labels, strict=True):
        runs[label] = NETWORKS[name].training(scale, small=True, fraction=share)
        runs[f"{label}, SAM"] = runs[label].but(changes={"sam": RADIUS})
    late = spectrum(scale, LATE, half=True)
    title = "Hessian spectra at the end, with and without SAM"
    return Plan(
        tables=[
            *eigenvalues(runs, {"late": late}, "section 2"),
            accuracy(runs, "Top-1 (section 2)"),
        ],
        claims=[claim for label in labels for claim in read_claims(_SAM, network=label)],
        figures=[drawing(spectra_figure, runs, late, title)],
    )


_BLUR = """
[Park & Kim Fig. 3]
a blur at the ends of stages raises the accuracy
    top1: {blurred} > {sharp} at clean
a ResNet with a blur stands corruptions better
    top1: {blurred} > {sharp} at corrupted
[Park & Kim App. B]
the blur of the released code raises the accuracy
    top1: {released} > {sharp} at clean
a blur at the end of the last stage helps more than one at the end of the first
    places: last stage > first stage
a blur lowers the calibration error
    calibration: {sharp} > {blurred}
a ResNet with a blur stands FGSM better
    fgsm: {blurred} > {sharp}
a blur makes the eigenvalues smaller
    ape: {sharp} > {blurred}
with a blur, noise of high frequencies costs less
    noise: {sharp} > {blurred} at high
"""


@study(
    "Does a fixed blur do what attention does?",
    claim="a 2 x 2 box blur at the ends of stages raises accuracy and robustness and "
    "flattens the loss",
    covers=("Park & Kim Fig. 3", "Park & Kim App. B"),
    data=CIFAR,
)
def blur(scale: Scale) -> Plan:
    """Fig. 3a: a ResNet, and the same with a blur at its stages' ends; micro ones at a desk.

    The blur of the released code stands after all stages but the last, behind a tanh and a ReLU.
    """
    resnet = NETWORKS["ResNet-50"].training(scale, small=True)
    sharp = NETWORKS["ResNet-50"].label(scale, small=True)
    blurred = f"{sharp}, blur"
    released, stages = f"{sharp}, released blur", scale.pick(paper=4, laptop=3)
    own = {"blur_kind": "released", "blur_stages": tuple(range(1, stages))}
    runs = {sharp: resnet, blurred: resnet.but(model_args={"blur": 2})}
    three = {**runs, released: resnet.but(model_args={"blur": 2, **own})}
    places = {
        f"{name} stage": resnet.but(model_args={"blur": 2, "blur_stages": (stage,)})
        for name, stage in (("first", 1), ("last", stages))
    }
    ece = Measurement("ece", "calibration error, %", scale.reading("calibration"))
    attacked = accuracy_at(scale.reading("fgsm"), "epsilons", 1 / 255)
    early, noise = spectrum(scale, half=True), scale.reading("frequency")
    title = "Hessian spectra early in training, with and without a blur"
    return Plan(
        tables=[
            corrupted(scale, three, "Fig. 3a, appendix B"),
            accuracy(places, "A blur at the end of one stage (appendix B)", name="places"),
            TableSpec.of_runs("calibration", "Calibration (appendix B)", runs, {"ECE": ece}),
            TableSpec.of_runs("fgsm", "FGSM (appendix B)", runs, {"1/255": attacked}),
            *eigenvalues(runs, {"early": early}, "appendix B"),
            noise_table(runs, noise, "appendix B"),
        ],
        claims=read_claims(_BLUR, sharp=sharp, blurred=blurred, released=released),
        figures=[
            drawing(spectra_figure, runs, early, title),
            drawing(noise_figure, runs, noise, "both networks", "appendix B"),
        ],
    )
