"""Do other smoothings do what attention does? A blur at stage ends, and sharpness-aware training.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 3a and appendix B: even a fixed 2 x 2 box
blur at the ends of a CNN's stages raises accuracy and robustness, flattens the loss and takes high
frequencies out. Section 2, beside Fig. 4: SAM (Foret et al. 2021) seeks smooth minima and improves
ViTs (Chen et al. 2021). The text gives no numbers of either and no radius for SAM: 0.05 is Foret's.
"""

from vitascope.figure import Figure
from vitascope.papers.plan import Findings, Plan, Reading, Study, claimed
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS
from vitascope.papers.vit.noise import noise_figure, noise_table
from vitascope.papers.vit.spectra import LATE, eigenvalues, spectra_figure, spectrum
from vitascope.papers.vit.tables import accuracy, corrupted

RADIUS = 0.05  # of SAM


def sam(scale: Scale) -> Plan:
    """Section 2: a ViT and a ResNet with and without SAM; spectra at the end, and accuracy."""
    names = scale.pick(
        paper=("ViT-Ti", "ResNet-50"), laptop=("ViT-Ti", "ResNet-50"), smoke=("ViT-Ti",)
    )
    runs = {}
    for name in names:
        label = NETWORKS[name].label(scale)
        runs[label] = NETWORKS[name].training(scale)
        runs[f"{label}, SAM"] = NETWORKS[name].training(scale, changes={"sam": RADIUS})
    late = spectrum(scale, LATE, half=True)
    nep, ape = eigenvalues(runs, {"late": late}, "section 2")
    top1 = accuracy(runs, "Top-1 (section 2)")
    claims = []
    for plain, smooth in zip(list(runs)[::2], list(runs)[1::2], strict=True):
        claims += claimed(
            "ViT section 2",
            {
                f"SAM leads {plain} to a flatter minimum": ape.above(plain, smooth),
                f"SAM makes {plain} more accurate": top1.above(smooth, plain),
            },
        )

    def figures(findings: Findings) -> list[Figure]:
        title = "Hessian spectra at the end, with and without SAM"
        return [spectra_figure(findings, runs, late, title)]

    return Plan(tables=[nep, ape, top1], claims=claims, figures=figures)


def blur(scale: Scale) -> Plan:
    """Fig. 3a: a ResNet, and the same with a blur at its stages' ends."""
    resnet = NETWORKS["ResNet-50"].training(scale)
    runs = {NETWORKS["ResNet-50"].label(scale): resnet}
    sharp = next(iter(runs))
    blurred = f"{sharp}, blur"
    runs[blurred] = resnet.but(model_args={"blur": 2})
    early = spectrum(scale, half=True)
    noise = Reading(name="frequency", options=scale.look())
    table = corrupted(scale, runs, "Fig. 3a, appendix B")
    nep, ape = eigenvalues(runs, {"early": early}, "appendix B")
    noisy = noise_table(runs, noise, "appendix B")
    claims = claimed(
        "ViT Fig. 3",
        {
            "a blur at the ends of stages raises the accuracy": table.above(blurred, sharp),
            "a ResNet with a blur stands corruptions better": table.above(
                blurred, sharp, "corrupted"
            ),
        },
    )
    claims += claimed(
        "ViT App. B",
        {
            "a blur makes the eigenvalues smaller": ape.above(sharp, blurred),
            "with a blur, noise of high frequencies costs less": noisy.above(
                sharp, blurred, "high"
            ),
        },
    )

    def figures(findings: Findings) -> list[Figure]:
        title = "Hessian spectra early in training, with and without a blur"
        return [
            spectra_figure(findings, runs, early, title),
            noise_figure(findings, runs, noise, "both networks", "appendix B"),
        ]

    return Plan(tables=[table, nep, ape, noisy], claims=claims, figures=figures)


STUDIES = (
    Study(
        name="sam",
        title="Does sharpness-aware training flatten the loss of a ViT?",
        claim="SAM seeks out smooth minima and improves ViTs",
        covers=("ViT section 2 (SAM)",),
        plan=sam,
        data=CIFAR,
    ),
    Study(
        name="blur",
        title="Does a fixed blur do what attention does?",
        claim="a 2 x 2 box blur at the ends of stages raises accuracy and robustness and "
        "flattens the loss",
        covers=("ViT Fig. 3", "ViT App. B"),
        plan=blur,
        data=CIFAR,
    ),
)
