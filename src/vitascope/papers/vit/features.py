"""What do attention, MLPs and convolutions do to feature maps? Frequencies and variance.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 2a, 8 and D.2 (high frequencies), 2b
(noise of one frequency), 9 and D.1 (variance), all on ImageNet. The text gives no numbers.

What a unit does is the difference between the map after it and the map after the unit before, where
both have one grid: of Delta log amplitude at 1.0 pi, or of the log of the spatial variance (the
paper draws the variance itself, which late layers dominate).

Claims are judged on the authors' units and on the ResNet they use: the map after each residual
block of a post-activation ResNet, after each attention and each MLP of a transformer
(``level="block"`` of :func:`vitascope.capture.units`). What a block does depends on its stage, so
a table has the stages one by one. Further tables have our finer units, the map after each 3 x 3
convolution, and all tables the pre-activation ResNet, too: with them the sign may be another.

A desk sees all images once; `frequencies-longer` asks what the ViT and the ResNet do after three
times the training.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.figure import Figure, Lines, Series
from vitascope.papers.figures import lines, over
from vitascope.papers.plan import (
    Claim,
    Findings,
    Plan,
    Reading,
    Sheet,
    Study,
    Training,
    claimed,
)
from vitascope.papers.scale import IMAGENET, Scale
from vitascope.papers.vit.networks import looked_into, trainings
from vitascope.papers.vit.noise import noise_figure, noise_table
from vitascope.papers.vit.tables import Runs
from vitascope.record import Record

SIGNS = {"attention": -1, "MLP": 1, "convolution": 1}  # what the paper says of each kind
LONGER = "Frequencies, longer training"  # no figure of the paper: a claim of our own
KINDS = {"attention": ("attention",), "MLP": ("mlp",), "convolution": ("convolution",)}


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


def signed(kind: str) -> Any:
    """The share of the units of a kind whose change has the sign that the paper gives it."""

    def key(record: Record) -> float | None:
        found = [change for each, change in changes(record) if each in KINDS[kind]]
        return float(np.mean(SIGNS[kind] * np.array(found) > 0)) if found else None

    return key


def in_all(record: Record) -> float:
    """The sum of all changes: from the first map of each stage to its last."""
    return float(sum(change for _, change in changes(record)))


def _acts(runs: Runs, reading: Reading, title: str, name: str) -> Sheet:
    """What attention, MLPs and convolutions change, and all together."""
    keys = {kind: of_kind(*kinds) for kind, kinds in KINDS.items()}
    keys |= {f"{half} attention": of_kind("attention", half=half) for half in ("early", "late")}
    return _changes(runs, reading, title, name, {**keys, "all": in_all})


def _changes(runs: Runs, reading: Reading, title: str, name: str, keys: Mapping[str, Any]) -> Sheet:
    asked = {column: {"reading": reading, "key": key, "factor": 1} for column, key in keys.items()}
    how = {"unit": "change, nats", "digits": 3, "accuracy": False}
    return Sheet.of_runs(name, title, runs, asked, corner="change at", **how)


def in_stage(stage: int) -> Any:
    """The mean change over the convolutions of one stage, from 0."""

    def key(record: Record) -> float | None:
        kinds, stages, after = record.values["kind"], record.values["stage"], levels(record)
        found = [
            after[i] - after[i - 1]
            for i in range(1, len(kinds))
            if stages[i] == stages[i - 1] == stage and kinds[i] == "convolution"
        ]
        return float(np.mean(found)) if found else None

    return key


def _networks(scale: Scale) -> dict[str, Training]:
    """The ViT, the post-activation ResNet of the authors, and those of other studies."""
    usual = looked_into(scale, imagenet=True)
    small = scale.name == "desk"
    authors = trainings(scale, ["ResNet-50, post-activation"], imagenet=True, small=small)
    (vit, run), *others = usual.items()
    return {vit: run, **authors, **dict(others)}


def _signs(runs: Runs, reading: Reading, where: str) -> Sheet:
    """Unit by unit: how many lower it (attention) or raise it (MLPs, convolutions)."""
    asked = {kind: {"reading": reading, "key": signed(kind)} for kind in KINDS}
    title = f"Units that change it as the paper says ({where})"
    how = {"unit": "of the units, %", "digits": 0, "accuracy": False}
    return Sheet.of_runs("signs", title, runs, asked, corner="units of", **how)


def _kinds(training: Training) -> tuple[str, str]:
    """Kinds of units of a network with stages: AlterNet has convolutions where others have MLPs."""
    return ("attention", "convolution" if training.model.startswith("alternet") else "MLP")


def _in_stages(source: str, table: Sheet, what: str, runs: Runs) -> list[Claim]:
    """Attention lowers, MLPs and convolutions raise it in networks with stages, too."""
    found = {}
    for label, training in list(runs.items())[3:]:
        for kind in _kinds(training):
            said = "attention lowers" if kind == "attention" else f"{kind}s raise"
            found[f"{said} {what} in {label}"] = table.sign(label, kind, SIGNS[kind])
    return claimed(source, found)


def in_every_seed(label: str, records: Sequence[Record]) -> str:
    """Unit by unit: how many have the sign that the paper gives their kind, whatever the seed.

    >>> values = {"kind": ["stem", "attention", "mlp"], "stage": [0, 0, 0]}
    >>> levels = [[0.0, -1.0, 1.0], [0.0, -1.0, -2.0]]
    >>> runs = [Record(kind="fourier", values={**values, "high": high}) for high in levels]
    >>> in_every_seed("a ViT", runs)
    'a ViT 1 of 1 attention, 0 of 1 MLP'
    """
    found = [changes(record) for record in records]
    words = []
    for kind, names in KINDS.items():
        at = [i for i, (name, _) in enumerate(found[0]) if name in names]
        same = [i for i in at if all(SIGNS[kind] * run[i][1] > 0 for run in found)]
        words += [f"{len(same)} of {len(at)} {kind}"] if at else []
    return f"{label} {', '.join(words)}"


def _told(findings: Findings, runs: Runs, reading: Reading) -> str:
    told = [in_every_seed(label, findings.of(run, reading)) for label, run in runs.items()]
    return "Attention lowers it and the others raise it, in every seed: " + "; ".join(told) + "."


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
        panels.append(lines(label, series, x="block", y=y))
    return tuple(panels)


def _tables(
    scale: Scale, runs: Runs, name: str, instrument: str, what: str, where: str
) -> tuple[Reading, list[Sheet]]:
    """The authors' reading, and tables: by kind of unit, by stage, and of our finer units."""
    authors = Reading(name=instrument, options=scale.look(level="block"))
    ours = Reading(name=instrument, options=scale.look())
    resnets = {label: run for label, run in runs.items() if run.model.startswith("resnet")}
    stages = {f"stage {n + 1}": in_stage(n) for n in range(scale.pick(paper=4, laptop=3))}
    together = {"convolution": of_kind("convolution"), "all": in_all}
    return authors, [
        _acts(runs, authors, f"Change of the {what} after each block ({where})", name),
        _changes(
            resnets,
            authors,
            f"Change of the {what} after each block, stage by stage",
            f"{name}-stages",
            stages,
        ),
        _changes(
            resnets,
            ours,
            f"Our units: change of the {what} after each 3 x 3 convolution",
            f"{name}-units",
            together,
        ),
    ]


def frequencies(scale: Scale) -> Plan:
    """Fig. 2, 8, D.2: high frequencies after each block, and noise of one frequency."""
    runs = _networks(scale)
    vit, resnet, *_ = runs
    noise = Reading(name="frequency", options=scale.look())
    what, where = "log amplitude at 1.0 pi", "Fig. 2a, 8, D.2"
    fourier, tables = _tables(scale, runs, "high", "fourier", what, where)
    high = tables[0]
    noisy = noise_table(runs, noise, "Fig. 2b")
    claims = claimed(
        "ViT Fig. 2",
        {
            "the ViT as a whole lowers high frequencies": high.sign(vit, "all", -1),
            "the ResNet as a whole raises high frequencies": high.sign(resnet, "all", 1),
            "noise of high frequencies costs the ResNet more": noisy.above(resnet, vit, "high"),
            "noise of low frequencies costs the ViT more": noisy.above(vit, resnet, "low"),
        },
    )
    claims += claimed(
        "ViT Fig. 8",
        {
            "attention lowers high frequencies in the ViT": high.sign(vit, "attention", -1),
            "MLPs raise high frequencies in the ViT": high.sign(vit, "MLP", 1),
            "convolutions raise high frequencies in the ResNet": high.sign(
                resnet, "convolution", 1
            ),
            "in the ViT, early attention lowers high frequencies less than late attention": (
                high.above(vit, vit, "early attention", "late attention")
            ),
        },
    )
    claims += _in_stages("ViT Fig. D.2", high, "high frequencies", runs)

    def figures(findings: Findings) -> list[Figure]:
        return [
            Figure(
                name="spectra",
                title="Feature maps' spectra (Fig. 2a, D.2 left)",
                reading="From 0 to 1.0 pi; a lower line is a smoother map.",
                panels=_curves(findings, runs, fourier),
            ),
            Figure(
                name="high",
                title="High frequencies after each block (Fig. 8, D.2 right)",
                reading="Where attention lies below its neighbours, it damps high frequencies. "
                + _told(findings, runs, fourier),
                panels=_after_units(findings, runs, fourier, "log amplitude at 1.0 pi"),
            ),
            noise_figure(findings, runs, noise, "all networks", "Fig. 2b"),
        ]

    signs = _signs(runs, fourier, "Fig. 8, D.2")
    return Plan(tables=[*tables, signs, noisy], claims=claims, figures=figures)


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
    """Fig. 9, D.1: the variance of feature maps after each block."""
    runs = _networks(scale)
    vit, resnet, *_ = runs
    variance, tables = _tables(scale, runs, "variance", "variance", "log variance", "Fig. 9, D.1")
    table = tables[0]
    claims = claimed(
        "ViT Fig. 9",
        {
            "attention lowers the variance in the ViT": table.sign(vit, "attention", -1),
            "MLPs raise the variance in the ViT": table.sign(vit, "MLP", 1),
            "in the ViT, MLPs raise the variance more than attention does": table.above(
                vit, vit, "MLP", "attention"
            ),
            "convolutions raise the variance in the ResNet": table.sign(resnet, "convolution", 1),
            "the variance grows from start to end of the ResNet's stages": table.sign(
                resnet, "all", 1
            ),
        },
    )
    claims += _in_stages("ViT Fig. D.1", table, "the variance", runs)

    def figures(findings: Findings) -> list[Figure]:
        panels = _after_units(findings, runs, variance, "log of the variance")
        said = "Where attention lies below its neighbours, it averages. "
        said += _told(findings, runs, variance)
        title = "Variance after each block (Fig. 9, D.1)"
        return [Figure(name="variance", title=title, reading=said, panels=panels)]

    signs = _signs(runs, variance, "Fig. 9, D.1")
    return Plan(tables=[*tables, signs], claims=claims, figures=figures)


def longer(scale: Scale) -> Plan:
    """Fig. 8 and 9 of the ViT and the ResNet after three times the training."""
    usual = list(_networks(scale).items())[:2]
    runs = {label: run.but(epochs=3 * run.full_recipe.epochs) for label, run in usual}
    vit, resnet = runs
    asked = {
        "high": ("fourier", "high frequencies", "log amplitude at 1.0 pi", "Fig. 8"),
        "variance": ("variance", "the variance", "log variance", "Fig. 9"),
    }
    tables, claims = [], []
    for name, (instrument, what, level, figure) in asked.items():
        where = f"{figure}, trained three times as long"
        _, found = _tables(scale, runs, name, instrument, level, where)
        tables += found
        table = found[0]
        said = {
            f"attention lowers {what} in the ViT": table.sign(vit, "attention", -1),
            f"MLPs raise {what} in the ViT": table.sign(vit, "MLP", 1),
            f"convolutions raise {what} in the ResNet": table.sign(resnet, "convolution", 1),
        }
        claims += claimed(LONGER, {f"after longer training {t}": c for t, c in said.items()})
    return Plan(tables=tables, claims=claims)


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
    Study(
        name="frequencies-longer",
        title="Does longer training change what attention, MLPs and convolutions filter?",
        claim="also after three times the training attention lowers high frequencies and the "
        "variance of feature maps, MLPs and convolutions raise both",
        covers=(LONGER,),
        plan=longer,
        data=IMAGENET,
        seeds={"desk": 3},
    ),
)
