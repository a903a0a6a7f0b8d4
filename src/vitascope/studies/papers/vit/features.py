"""What do attention, MLPs and convolutions do to feature maps? Frequencies and variance.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 2a, 8 and D.2 (high frequencies), 2b
(noise of one frequency), 9 and D.1 (variance), all on ImageNet. The text gives no numbers.

What a unit does is the difference between the map after it and the map after the unit before, where
both have one grid: of Delta log amplitude at 1.0 pi, or of the log of the spatial variance (the
paper draws the variance itself, which late layers dominate). The maps are what the network carries
on: inside a residual branch of two convolutions, the map between them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.figure import Figure, Lines, Series
from vitascope.record import Record
from vitascope.studies.papers.figures import lines, over
from vitascope.studies.papers.plan import (
    Ask,
    Claim,
    Findings,
    Plan,
    Reading,
    Row,
    Sample,
    Sheet,
    Study,
    Training,
)
from vitascope.studies.papers.scale import Scale
from vitascope.studies.papers.vit.networks import IMAGENET, NETWORKS

__all__ = ["STUDIES", "changes", "lost", "of_kind"]

Runs = Mapping[str, Training]
KINDS = {"attention": ("attention",), "MLP": ("mlp",), "convolution": ("convolution",)}


def networks(scale: Scale) -> dict[str, Training]:
    """ViT, ResNet, PiT and Swin, in their ImageNet form at the paper's scale."""
    four = ("ViT-Ti", "ResNet-50", "PiT-Ti", "Swin-Ti")
    names = scale.pick(paper=four, laptop=four, smoke=four[:2])
    return {NETWORKS[n].label(scale): NETWORKS[n].training(scale, imagenet=True) for n in names}


def levels(record: Record) -> list[float]:
    """After each unit: Delta log amplitude at 1.0 pi, or the log of the variance."""
    if record.kind == "fourier":
        return [float(value) for value in record.values["high"]]
    return [float(value) for value in np.log(record.values["variance"])]


def changes(record: Record) -> list[tuple[str, float]]:
    """(kind, change) of each unit that follows another of its stage, in order of execution."""
    kinds, stages, after = record.values["kind"], record.values["stage"], levels(record)
    return [
        (kinds[i], after[i] - after[i - 1])
        for i in range(1, len(kinds))
        if stages[i] == stages[i - 1] and kinds[i] not in ("head", "subsampling")
    ]


def of_kind(*kinds: str, half: str = "") -> Any:
    """The mean change over units of these kinds, or over their ``early`` or ``late`` half."""

    def key(record: Record) -> float | None:
        found = [change for kind, change in changes(record) if kind in kinds]
        middle = len(found) // 2
        found = {"early": found[:middle], "late": found[middle:]}.get(half, found)
        return float(np.mean(found)) if found else None

    return key


def in_all(record: Record) -> float:
    """The sum of all changes: from the first map of each stage to its last."""
    return float(sum(change for _, change in changes(record)))


def lost(low: float, high: float) -> dict[str, Any]:
    """Accuracy lost to noise of the frequencies between these, in pi: how to ask for it."""

    def band(record: Record) -> list[int]:
        return [i for i, f in enumerate(record.values["frequencies"]) if low <= f <= high]

    def key(record: Record) -> float | None:
        found = [record.values["accuracy"][i] for i in band(record)]
        return record.values["clean"] - float(np.mean(found)) if found else None

    def by_image(record: Record) -> np.ndarray | None:
        right, inside = record.arrays.get("images/correct"), band(record)  # the clean ones first
        if right is None or not inside:
            return None
        return right[0] - right[[1 + i for i in inside]].mean(0)  # type: ignore[no-any-return]

    return {"key": key, "sample": Sample(kind="images", of=by_image)}


def _acts(scale: Scale, runs: Runs, reading: Reading, title: str, unit: str, name: str) -> Sheet:
    """What attention, MLPs and convolutions change, and all together."""
    columns = {kind: of_kind(*kinds) for kind, kinds in KINDS.items()}
    columns |= {f"{half} attention": of_kind("attention", half=half) for half in ("early", "late")}
    columns["all"] = in_all
    rows = [
        Row(
            label=label,
            cells=[Ask(training=t, reading=reading, key=key, factor=1) for key in columns.values()],
        )
        for label, t in runs.items()
    ]
    return Sheet(
        name=name,
        title=title,
        corner="change at",
        columns=list(columns),
        rows=rows,
        unit=unit,
        digits=3,
        accuracy=False,
    )


def _sign(source: str, text: str, table: str, row: str, column: str, sign: int) -> Claim:
    return Claim(source=source, text=text, table=table, cells={(row, column): sign})


def _after_units(findings: Findings, runs: Runs, reading: Reading, y: str) -> tuple[Lines, ...]:
    """The level after each unit, one panel per network and one line per kind of unit."""
    panels = []
    for label, training in runs.items():
        records = findings.of(training, reading)
        after = np.array([levels(record) for record in records])  # (seeds, units)
        kinds = records[0].values["kind"]
        series = [over(range(1, len(kinds) + 1), list(map(list, after.T)), "all units")]
        for kind in dict.fromkeys(kinds):
            at = [i for i, k in enumerate(kinds) if k == kind]
            groups = [after[:, i].tolist() for i in at]
            series.append(over([i + 1 for i in at], groups, kind, model=False))
        panels.append(lines(label, series, x="unit", y=y))
    return tuple(panels)


def frequencies(scale: Scale) -> Plan:
    """Fig. 2, 8, D.2: high frequencies after each unit, and noise of one frequency."""
    runs = networks(scale)
    vit, resnet, *staged = runs
    fourier = Reading(name="fourier", options=scale.look())
    noise = Reading(name="frequency", options=scale.look())
    high = _acts(
        scale,
        runs,
        fourier,
        "Change of the log amplitude at 1.0 pi (Fig. 2a, 8, D.2)",
        "change, nats",
        "high",
    )
    bands = {"low": lost(0.0, 0.4), "high": lost(0.6, 1.0)}
    noisy = Sheet(
        name="noise",
        title="Accuracy lost to noise up to 0.4 pi and from 0.6 pi on (Fig. 2b)",
        corner="network",
        columns=list(bands),
        unit="lost, %",
        accuracy=False,
        rows=[
            Row(
                label=label, cells=[Ask(training=t, reading=noise, **how) for how in bands.values()]
            )
            for label, t in runs.items()
        ],
    )
    claims = [
        _sign("ViT Fig. 2", "the ViT as a whole lowers high frequencies", "high", vit, "all", -1),
        _sign(
            "ViT Fig. 2", "the ResNet as a whole raises high frequencies", "high", resnet, "all", 1
        ),
        Claim(
            source="ViT Fig. 2",
            text="noise of high frequencies costs the ResNet more",
            table="noise",
            cells={(resnet, "high"): 1, (vit, "high"): -1},
        ),
        Claim(
            source="ViT Fig. 2",
            text="noise of low frequencies costs the ViT more",
            table="noise",
            cells={(vit, "low"): 1, (resnet, "low"): -1},
        ),
        _sign(
            "ViT Fig. 8",
            "attention lowers high frequencies in the ViT",
            "high",
            vit,
            "attention",
            -1,
        ),
        _sign("ViT Fig. 8", "MLPs raise high frequencies in the ViT", "high", vit, "MLP", 1),
        Claim(
            source="ViT Fig. 8",
            table="high",
            text="in the ViT, early attention lowers high frequencies less than late attention",
            cells={(vit, "early attention"): 1, (vit, "late attention"): -1},
        ),
        *(
            _sign(
                "ViT Fig. D.2",
                f"attention lowers high frequencies in {label}",
                "high",
                label,
                "attention",
                -1,
            )
            for label in staged
        ),
        *(
            _sign(
                "ViT Fig. D.2", f"MLPs raise high frequencies in {label}", "high", label, "MLP", 1
            )
            for label in staged
        ),
    ]

    def figures(findings: Findings) -> list[Figure]:
        series = []
        for label, training in runs.items():
            records = [record.values for record in findings.of(training, noise)]
            at = records[0]["frequencies"]
            drops = [
                [100 * (v["clean"] - v["accuracy"][i]) for v in records] for i in range(len(at))
            ]
            series.append(over(at, drops, label))
        hurt = lines("all networks", series, x="frequency of the noise, pi", y="accuracy lost, %")
        return [
            Figure(
                name="spectra",
                title="Feature maps' spectra (Fig. 2a, D.2 left)",
                reading="From 0 to 1.0 pi; a lower line is a smoother map.",
                panels=_curves(findings, runs, fourier),
            ),
            Figure(
                name="high",
                title="High frequencies after each unit (Fig. 8, D.2 right)",
                reading="Where attention stands below its neighbours, it filters.",
                panels=_after_units(findings, runs, fourier, "log amplitude at 1.0 pi"),
            ),
            Figure(
                name="noise",
                title="Noise of one frequency (Fig. 2b)",
                reading="The higher line suffers more.",
                panels=(hurt,),
            ),
        ]

    return Plan(tables=[high, noisy], claims=claims, figures=figures)


def _curves(findings: Findings, runs: Runs, reading: Reading, most: int = 6) -> tuple[Lines, ...]:
    """Spectra along the diagonal after a few units of each network, first seed."""
    panels = []
    for label, training in runs.items():
        record = findings.of(training, reading)[0]
        names: Sequence[str] = record.values["units"]
        at = np.unique(np.linspace(0, len(names) - 1, min(most, len(names))).round().astype(int))
        series = [
            Series(
                label=names[i],
                x=record.arrays[f"frequency/{names[i]}"].tolist(),
                y=record.arrays[f"amplitude/{names[i]}"].tolist(),
            )
            for i in at
        ]
        panels.append(lines(label, series, x="frequency, pi", y="log amplitude, relative"))
    return tuple(panels)


def ensembling(scale: Scale) -> Plan:
    """Fig. 9, D.1: the variance of feature maps after each unit."""
    runs = networks(scale)
    vit, resnet, *staged = runs
    variance = Reading(name="variance", options=scale.look())
    table = _acts(
        scale,
        runs,
        variance,
        "Change of the log variance (Fig. 9, D.1)",
        "change, nats",
        "variance",
    )
    claims = [
        _sign(
            "ViT Fig. 9",
            "attention lowers the variance in the ViT",
            "variance",
            vit,
            "attention",
            -1,
        ),
        _sign("ViT Fig. 9", "MLPs raise the variance in the ViT", "variance", vit, "MLP", 1),
        Claim(
            source="ViT Fig. 9",
            table="variance",
            text="in the ViT, MLPs raise the variance more than attention does",
            cells={(vit, "MLP"): 1, (vit, "attention"): -1},
        ),
        _sign(
            "ViT Fig. 9",
            "convolutions raise the variance in the ResNet",
            "variance",
            resnet,
            "convolution",
            1,
        ),
        _sign(
            "ViT Fig. 9",
            "the variance grows from start to end of the ResNet's stages",
            "variance",
            resnet,
            "all",
            1,
        ),
        *(
            _sign(
                "ViT Fig. D.1",
                f"attention lowers the variance in {label}",
                "variance",
                label,
                "attention",
                -1,
            )
            for label in staged
        ),
        *(
            _sign(
                "ViT Fig. D.1", f"MLPs raise the variance in {label}", "variance", label, "MLP", 1
            )
            for label in staged
        ),
    ]

    def figures(findings: Findings) -> list[Figure]:
        panels = _after_units(findings, runs, variance, "log of the variance")
        said = "Where attention stands below its neighbours, it averages."
        title = "Variance after each unit (Fig. 9, D.1)"
        return [Figure(name="variance", title=title, reading=said, panels=panels)]

    return Plan(tables=[table], claims=claims, figures=figures)


STUDIES = (
    Study(
        name="frequencies",
        title="Is attention a low-pass filter?",
        claim="attention lowers high frequencies, MLPs and convolutions raise them; noise of "
        "high frequencies harms a ResNet more than a ViT",
        covers=("ViT Fig. 2", "ViT Fig. 8", "ViT Fig. D.2"),
        plan=frequencies,
        data=IMAGENET,
    ),
    Study(
        name="ensembling",
        title="Does attention average feature maps?",
        claim="attention lowers the variance of feature maps, MLPs and convolutions raise it",
        covers=("ViT Fig. 9", "ViT Fig. D.1"),
        plan=ensembling,
        data=IMAGENET,
    ),
)
