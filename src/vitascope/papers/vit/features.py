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

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vitascope.figure import Figure, Lines, Series
from vitascope.papers.figures import lines, over
from vitascope.papers.plan import (
    Claim,
    Measurement,
    Plan,
    Reading,
    Results,
    TableSpec,
    Training,
    drawing,
    read_claims,
    study,
)
from vitascope.papers.scale import IMAGENET, Scale
from vitascope.papers.vit.networks import looked_into, trainings
from vitascope.papers.vit.tables import Runs, noise_figure, noise_table
from vitascope.record import Record

SIGNS = {"attention": -1, "MLP": 1, "convolution": 1}  # what the paper says of each kind
LONGER = "Frequencies, longer training"  # no figure of the paper: a claim of our own
KINDS = {"attention": ("attention",), "MLP": ("mlp",), "convolution": ("convolution",)}

Key = Callable[[Record], float | None]


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


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def of_kind(*kinds: str, half: str = "") -> Key:
    """The mean change over units of these kinds, or over their ``early`` or ``late`` half."""

    def key(record: Record) -> float | None:
        every = [change for kind, change in changes(record) if kind in kinds]
        middle = len(every) // 2
        return _mean({"early": every[:middle], "late": every[middle:]}.get(half, every))

    return key


def in_stage(stage: int) -> Key:
    """The mean change over the convolutions of one stage, from 0."""

    def key(record: Record) -> float | None:
        kinds, stages, after = record.values["kind"], record.values["stage"], levels(record)
        return _mean(
            [
                after[i] - after[i - 1]
                for i in range(1, len(kinds))
                if stages[i] == stages[i - 1] == stage and kinds[i] == "convolution"
            ]
        )

    return key


def in_all(record: Record) -> float:
    """The sum of all changes: from the first map of each stage to its last."""
    return float(sum(change for _, change in changes(record)))


def signed(kind: str) -> Key:
    """The share of the units of a kind whose change has the sign that the paper gives it."""

    def key(record: Record) -> float | None:
        every = [change for each, change in changes(record) if each in KINDS[kind]]
        return _mean([float(SIGNS[kind] * change > 0) for change in every])

    return key


def in_every_seed(label: str, records: Sequence[Record]) -> str:
    """Unit by unit: how many have the sign that the paper gives their kind, whatever the seed.

    >>> values = {"kind": ["stem", "attention", "mlp"], "stage": [0, 0, 0]}
    >>> levels = [[0.0, -1.0, 1.0], [0.0, -1.0, -2.0]]
    >>> runs = [Record(kind="fourier", values={**values, "high": high}) for high in levels]
    >>> in_every_seed("a ViT", runs)
    'a ViT 1 of 1 attention, 0 of 1 MLP'
    """
    seeds = [changes(record) for record in records]
    counts = []
    for kind, names in KINDS.items():
        at = [i for i, (name, _) in enumerate(seeds[0]) if name in names]
        same = [i for i in at if all(SIGNS[kind] * run[i][1] > 0 for run in seeds)]
        counts += [f"{len(same)} of {len(at)} {kind}"] if at else []
    return f"{label} {', '.join(counts)}"


def _networks(scale: Scale) -> dict[str, Training]:
    """The ViT, the post-activation ResNet of the authors, and those of other studies."""
    usual = looked_into(scale, imagenet=True)
    small = scale.name == "desk"
    authors = trainings(scale, ["ResNet-50, post-activation"], imagenet=True, small=small)
    (vit, run), *others = usual.items()
    return {vit: run, **authors, **dict(others)}


def _tables(scale: Scale, runs: Runs, instrument: str, where: str) -> list[TableSpec]:
    """The authors' units by kind and by stage, and our finer units."""
    name, quantity = {
        "fourier": ("high", "log amplitude at 1.0 pi"),
        "variance": ("variance", "log variance"),
    }[instrument]
    authors, ours = _authors(scale, instrument), scale.reading(instrument)
    resnets = {label: run for label, run in runs.items() if run.model.startswith("resnet")}
    keys: dict[str, Key] = {kind: of_kind(*kinds) for kind, kinds in KINDS.items()}
    keys |= {f"{half} attention": of_kind("attention", half=half) for half in ("early", "late")}
    keys["all"] = in_all
    stages = {f"stage {n + 1}": in_stage(n) for n in range(scale.pick(paper=4, laptop=3))}
    each = f"Change of the {quantity} after each block"
    fine = f"Our units: change of the {quantity} after each 3 x 3 convolution"
    together = {"convolution": keys["convolution"], "all": in_all}
    return [
        _changes(name, f"{each} ({where})", runs, authors, keys),
        _changes(f"{name}-stages", f"{each}, stage by stage", resnets, authors, stages),
        _changes(f"{name}-units", fine, resnets, ours, together),
    ]


def _authors(scale: Scale, instrument: str) -> Reading:
    """Maps after each block, the units of the authors."""
    return scale.reading(instrument, level="block")


def _changes(
    name: str, title: str, runs: Runs, reading: Reading, keys: Mapping[str, Key]
) -> TableSpec:
    columns = {
        column: Measurement(key, "change, nats", reading, digits=3) for column, key in keys.items()
    }
    return TableSpec.of_runs(name, title, runs, columns, corner="change at")


def _signs(runs: Runs, reading: Reading, where: str) -> TableSpec:
    """Unit by unit: how many lower it (attention) or raise it (MLPs, convolutions)."""
    title = f"Units that change it as the paper says ({where})"
    columns = {
        kind: Measurement(signed(kind), "of the units, %", reading, digits=0) for kind in KINDS
    }
    return TableSpec.of_runs("signs", title, runs, columns, corner="units of")


def _in_stages(source: str, table: str, quantity: str, runs: Runs) -> list[Claim]:
    """Attention lowers, MLPs and convolutions raise it in networks with stages, too.

    AlterNet has convolutions where others have MLPs.
    """
    claims = []
    for label, training in list(runs.items())[3:]:
        alternet = training.model.startswith("alternet")
        names = {"source": source, "table": table, "quantity": quantity, "label": label}
        claims += read_claims(_STAGED, **names, kind="convolution" if alternet else "MLP")
    return claims


_STAGED = """
[{source}]
attention lowers {quantity} in {label}
    {table}: {label} at attention < 0
{kind}s raise {quantity} in {label}
    {table}: {label} at {kind} > 0
"""
_FREQUENCIES = """
[Park & Kim Fig. 2]
the ViT as a whole lowers high frequencies
    high: {vit} at all < 0
the ResNet as a whole raises high frequencies
    high: {resnet} at all > 0
noise of high frequencies costs the ResNet more
    noise: {resnet} > {vit} at high
noise of low frequencies costs the ViT more
    noise: {vit} > {resnet} at low
[Park & Kim Fig. 8]
attention lowers high frequencies in the ViT
    high: {vit} at attention < 0
MLPs raise high frequencies in the ViT
    high: {vit} at MLP > 0
convolutions raise high frequencies in the ResNet
    high: {resnet} at convolution > 0
in the ViT, early attention lowers high frequencies less than late attention
    high: {vit} at early attention > {vit} at late attention
"""


@study(
    "Is attention a low-pass filter?",
    claim="attention lowers high frequencies, MLPs and convolutions raise them; noise of "
    "high frequencies harms a ResNet more than a ViT",
    covers=("Park & Kim Fig. 2", "Park & Kim Fig. 8", "Park & Kim Fig. D.2"),
    data=IMAGENET,
)
def frequencies(scale: Scale) -> Plan:
    """Fig. 2, 8, D.2: high frequencies after each block, and noise of one frequency."""
    runs = _networks(scale)
    vit, resnet, *_ = runs
    fourier, noise = _authors(scale, "fourier"), scale.reading("frequency")
    return Plan(
        tables=[
            *_tables(scale, runs, "fourier", "Fig. 2a, 8, D.2"),
            _signs(runs, fourier, "Fig. 8, D.2"),
            noise_table(runs, noise, "Fig. 2b"),
        ],
        claims=[
            *read_claims(_FREQUENCIES, vit=vit, resnet=resnet),
            *_in_stages("Park & Kim Fig. D.2", "high", "high frequencies", runs),
        ],
        figures=[
            drawing(_spectra, runs, fourier),
            drawing(
                _after_units,
                runs,
                fourier,
                "high",
                "High frequencies after each block (Fig. 8, D.2 right)",
                "Where attention lies below its neighbours, it damps high frequencies.",
                "log amplitude at 1.0 pi",
            ),
            drawing(noise_figure, runs, noise, "all networks", "Fig. 2b"),
        ],
    )


def _spectra(results: Results, runs: Runs, reading: Reading) -> Figure:
    """Spectra along the diagonal after a few units of each network, first seed."""
    panels, most = [], 6
    for label, training in runs.items():
        record = results.of(training, reading)[0]
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
    return Figure(
        name="spectra",
        title="Feature maps' spectra (Fig. 2a, D.2 left)",
        reading="From 0 to 1.0 pi; a lower line is a smoother map.",
        panels=tuple(panels),
    )


def _after_units(
    results: Results, runs: Runs, reading: Reading, name: str, title: str, text: str, y: str
) -> Figure:
    """The level after each unit, one panel per network and one line per kind of unit."""
    panels: list[Lines] = []
    for label, training in runs.items():
        records = results.of(training, reading)
        after = np.array([levels(record) for record in records])  # (seeds, units)
        kinds = records[0].values["kind"]
        series = [over(range(1, len(kinds) + 1), list(map(list, after.T)), "all units")]
        for kind in dict.fromkeys(kinds):
            at = [i for i, k in enumerate(kinds) if k == kind]
            groups = [after[:, i].tolist() for i in at]
            series.append(over([i + 1 for i in at], groups, kind, model=False))
        panels.append(lines(label, series, x="block", y=y))
    counts = "; ".join(
        in_every_seed(label, results.of(run, reading)) for label, run in runs.items()
    )
    text += f" Attention lowers it and the others raise it, in every seed: {counts}."
    return Figure(name=name, title=title, reading=text, panels=tuple(panels))


_ENSEMBLING = """
[Park & Kim Fig. 9]
attention lowers the variance in the ViT
    variance: {vit} at attention < 0
MLPs raise the variance in the ViT
    variance: {vit} at MLP > 0
in the ViT, MLPs raise the variance more than attention does
    variance: {vit} at MLP > {vit} at attention
convolutions raise the variance in the ResNet
    variance: {resnet} at convolution > 0
the variance grows from start to end of the ResNet's stages
    variance: {resnet} at all > 0
"""


@study(
    "Does attention average feature maps?",
    claim="attention lowers the variance of feature maps, MLPs and convolutions raise it",
    covers=("Park & Kim Fig. 9", "Park & Kim Fig. D.1"),
    data=IMAGENET,
)
def ensembling(scale: Scale) -> Plan:
    """Fig. 9, D.1: the variance of feature maps after each block."""
    runs = _networks(scale)
    vit, resnet, *_ = runs
    variance = _authors(scale, "variance")
    return Plan(
        tables=[
            *_tables(scale, runs, "variance", "Fig. 9, D.1"),
            _signs(runs, variance, "Fig. 9, D.1"),
        ],
        claims=[
            *read_claims(_ENSEMBLING, vit=vit, resnet=resnet),
            *_in_stages("Park & Kim Fig. D.1", "variance", "the variance", runs),
        ],
        figures=[
            drawing(
                _after_units,
                runs,
                variance,
                "variance",
                "Variance after each block (Fig. 9, D.1)",
                "Where attention lies below its neighbours, it averages.",
                "log of the variance",
            )
        ],
    )


_AFTER_LONGER = """
[Frequencies, longer training]
after longer training attention lowers {quantity} in the ViT
    {table}: {vit} at attention < 0
after longer training MLPs raise {quantity} in the ViT
    {table}: {vit} at MLP > 0
after longer training convolutions raise {quantity} in the ResNet
    {table}: {resnet} at convolution > 0
"""


@study(
    "Does longer training change what attention, MLPs and convolutions filter?",
    claim="also after three times the training attention lowers high frequencies and the "
    "variance of feature maps, MLPs and convolutions raise both",
    covers=(LONGER,),
    data=IMAGENET,
    seeds={"desk": 3},
)
def frequencies_longer(scale: Scale) -> Plan:
    """Fig. 8 and 9 of the ViT and the ResNet after three times the training."""
    usual = list(_networks(scale).items())[:2]
    runs = {label: run.but(epochs=3 * run.full_recipe.epochs) for label, run in usual}
    vit, resnet = runs
    high = {"table": "high", "quantity": "high frequencies"}
    variance = {"table": "variance", "quantity": "the variance"}
    return Plan(
        tables=[
            *_tables(scale, runs, "fourier", "Fig. 8, trained three times as long"),
            *_tables(scale, runs, "variance", "Fig. 9, trained three times as long"),
        ],
        claims=[
            *read_claims(_AFTER_LONGER, vit=vit, resnet=resnet, **high),
            *read_claims(_AFTER_LONGER, vit=vit, resnet=resnet, **variance),
        ],
    )
