"""The section of inspections: one figure per instrument, with all models that it measured."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitascope.figure import Figure
from vitascope.formatting import count, duration, plural
from vitascope.measure.instrument import ModelRecord
from vitascope.measure.registry import INSTRUMENTS
from vitascope.record import Record
from vitascope.report.figures.page_renderer import room
from vitascope.report.figures.style import Styles, apart
from vitascope.report.records import Source
from vitascope.report.sections.section import Again, Section, again, made_by, pinned
from vitascope.settings import command_line
from vitascope.table import Table, as_text, row

Session = dict[str, Source]  # the records of one model, by instrument


def model_name(source: Source) -> str:
    """The name of the inspected model."""
    config = source.record.config
    inner = config.get("model")
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return str(name or config.get("name") or config.get("subject") or source.folder.resolve().name)


def _inspections(sources: Sequence[Source]) -> list[Session]:
    """Group records by model, epoch and folder; folders of one run are joined."""
    inspections: dict[tuple[Any, ...], list[Session]] = {}
    for source in sources:
        config = source.record.config
        key = (source.folder.resolve(), config.get("subject"), config.get("epoch"))
        turns = inspections.setdefault(key, [{}])
        free = next((turn for turn in turns if source.record.kind not in turn), None)
        if free is None:
            turns.append(free := {})
        free[source.record.kind] = source
    together: list[Session] = []
    for session in (turn for turns in inspections.values() for turn in turns):
        home = next((one for one in together if _one_run(one, session)), None)
        if home is None:
            together.append(session)
        else:
            home.update(session)
    return together


def _one_run(first: Session, second: Session) -> bool:
    """Return whether two inspections ran different instruments on the same weights of a run."""
    one, two = (_any(session).record.config for session in (first, second))
    same = all(one.get(key) == two.get(key) for key in ("run", "epoch", "model"))
    return bool(one.get("run")) and same and not first.keys() & second.keys()


def _any(session: Session) -> Source:
    return next(iter(session.values()))


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind): gates make a model's kind known, and attention without them does."""
    names = []
    for session in _inspections(sources):
        gated = "gates" in session
        kind = "convit" if gated else "vit" if "nonlocality" in session else "other"
        names.append((model_name(_any(session)), kind))
    return names


def labels_of(inspections: Sequence[Session]) -> list[str]:
    """Names of the models, told apart by epoch, subject or folder."""
    firsts = [_any(session) for session in inspections]
    names = [model_name(source) for source in firsts]
    tries = [
        lambda s: (
            "last" if s.record.config.get("epoch") is None else f"epoch {s.record.config['epoch']}"
        ),
        lambda s: Path(str(s.record.config.get("subject"))).name,
        lambda s: s.folder.resolve().name,
        lambda s: s.path.stem,
    ]
    for more in tries:
        if len(set(names)) == len(names):
            break
        twice = {name for name in names if names.count(name) > 1}
        longer = [
            f"{n}, {more(s)}" if n in twice else n for n, s in zip(names, firsts, strict=True)
        ]
        names = longer if len(set(longer)) > len(set(names)) else names
    return [name if names.index(name) == i else f"{name} ({i + 1})" for i, name in enumerate(names)]


def section(sources: Sequence[Source], styles: Styles) -> Section:
    """All inspections in one section, a figure per instrument."""
    inspections = _inspections(sources)
    names = labels_of(inspections)
    chosen = apart([styles.of(model_name(_any(session))) for session in inspections])
    drawn = list(_figures(inspections, names, chosen))
    figures = tuple(sorted(drawn, key=lambda figure: room(figure, len(drawn)) != "half"))
    several, shown = len(inspections) > 1, drawn[0 if drawn[0].headline else 1 : 2]
    title = names[0] if not several else f"{len(names)} models"
    records = [source.record for session in inspections for source in session.values()]
    images = sorted({int(record.values.get("num_images") or 0) for record in records} - {0})
    data = {str(record.config.get("data")) for record in records if record.config.get("data")}
    kinds = len({record.kind for record in records})
    facts = [
        ("models", str(len(names))) if several else ("model", names[0]),
        ("instruments" if kinds > 1 else "instrument", str(kinds)),
        ("images", " and ".join(sorted(data)[:3])),
        ("images looked at", " to ".join(map(count, dict.fromkeys(images[:1] + images[-1:])))),
    ]
    return Section(
        kind="inspection",
        label="Inspection",
        num_models=len(inspections),
        title=f"Inside {title}",
        question=f"What do the instruments measure in {title}?",
        answer=drawn[0].headline or drawn[0].reading,
        leads=tuple(figure.reading for figure in shown) if len(names) < 4 else (),
        cautions=tuple(cautions(records)),
        steps=() if several else next_steps(_any(inspections[0])),
        facts=tuple((key, value) for key, value in facts if value),
        figures=figures,
        tables=tuple(_tables(inspections, names)),
        terms=tuple((figure.title, figure.definition) for figure in figures if figure.definition),
        agains=tuple(
            again
            for s, n in zip(inspections, names, strict=True)
            for again in _agains(s, n if several else "")
        ),
    )


def inspected(records: Mapping[str, Record]) -> str:
    """The answer of one model's records, for a terminal."""
    sources = [Source(path=Path(f"{name}.json"), record=each) for name, each in records.items()]
    return section(sources, Styles()).answer


def cautions(records: Sequence[Record]) -> list[str]:
    """Return reasons not to trust the numbers: random weights, a run at chance."""
    notes = [str(note) for record in records for note in record.config.get("notes") or ()]
    return [
        note[:1].upper() + note[1:]
        for note in dict.fromkeys(notes)
        if note.startswith(("random weights", "at chance"))
    ]


def next_steps(source: Source, *, evaluated: bool = False) -> tuple[tuple[str, str], ...]:
    """Return what to do next with a run: use it, and measure it or look inside."""
    config = source.record.config
    subject, data = str(config.get("subject") or ""), config.get("data")
    options = [("--data", data), ("--pretrained", config.get("pretrained"))]
    if not config.get("run"):  # other subjects may be objects in memory
        return ()
    inside = [*options, ("--out", "inside")]
    use = command_line(["vitascope", "predict", subject, "IMAGES"], [("--out", "answers.csv")])
    look = command_line(["vitascope", "inspect", subject], inside)
    measure = command_line(["vitascope", "evaluate", subject], options)
    other = ("Look inside it", look) if evaluated else ("See how often it is right", measure)
    return (("Classify images with it", use), other)


def _figures(
    inspections: Sequence[Session], names: Sequence[str], chosen: Sequence[Any]
) -> Iterator[Figure]:
    for kind, instrument in INSTRUMENTS.items():
        measured = [
            ModelRecord(label=name, style=style, record=session[kind].record)
            for session, name, style in zip(inspections, names, chosen, strict=True)
            if kind in session
        ]
        if measured:
            yield instrument.figure(measured)


def _tables(inspections: Sequence[Session], names: Sequence[str]) -> Iterator[Table]:
    """One table per model: what each instrument found."""
    for session, name in zip(inspections, names, strict=True):
        records = {kind: session[kind].record for kind in INSTRUMENTS if kind in session}
        table = summary_table(records, f"inside {name}", f"What the instruments found in {name}")
        if table.rows:
            yield table


def _agains(session: Session, title: str) -> Iterator[Again]:
    """A command for each folder that the records lie in."""
    folders = dict.fromkeys(source.folder for source in session.values())
    for folder in folders:
        yield _again({k: source for k, source in session.items() if source.folder == folder}, title)


def _images_a_pass(session: Session) -> Any:
    """--batch-size; curvature has mini-batches of training images of its own."""
    configs = [source.record.config for source in session.values()]
    own = [config for config in configs if "augmented_by" not in config]
    return own[0].get("batch_size") if own else None


def _again(session: Session, title: str) -> Again:
    source = _any(session)
    record, config = source.record, source.record.config
    chosen = [kind for kind in INSTRUMENTS if kind in session]
    options = [
        ("--data", config.get("data")),
        ("--measures", tuple(chosen)),
        ("--images", config.get("num_images")),
        ("--batch-size", _images_a_pass(session)),
        ("--epoch", config.get("epoch")),
        ("--other", config.get("other")),
        ("--pretrained", config.get("pretrained")),
        ("--seed", record.seed),
        *pinned(record),
        ("--out", source.folder),
    ]
    subject = str(config.get("subject") or model_name(source))
    by_name = {kind: one.record for kind, one in session.items()}
    spent = {round(one.record.seconds or 0, 3) for one in session.values()}
    return again(
        record,
        made_by(record, "inspect", "evaluate")
        or command_line(["vitascope", "inspect", subject], options),
        took=f"{duration(sum(spent))} for {plural(len(session), 'instrument')}",
        title=title,
        notes=(*map(str, config.get("notes") or ()), *left_out(by_name)),
    )


def summary_table(records: Mapping[str, Record], name: str = "summary", title: str = "") -> Table:
    """One or more lines for each instrument: its value, and where it is lowest and highest.

    >>> values = {"layers": ["a", "b"], "per_layer": [0.5, 0.75]}
    >>> table = summary_table({"gates": Record(kind="gates", values=values)})
    >>> table.inline()[1]
    [['gates', 'share of position, mean over layers', '0.625', 'a: 0.5', 'b: 0.75']]
    """
    rows = [
        line
        for name, instrument in INSTRUMENTS.items()
        if name in records
        for line in instrument.rows(records[name])
    ]
    columns = ("What", "Value", "Lowest", "Highest")
    used = 1 + max((i for line in rows for i, c in enumerate(line.cells) if c.text), default=1)
    return Table(
        name=name,
        title=title,
        corner="Measure",
        columns=columns[:used],
        rows=tuple(row(line.label, line.cells[:used]) for line in rows),
        beside="lost",
    )


def summary_text(records: Mapping[str, Record]) -> str:
    """The table for a terminal, and below it the sentence of each instrument that has one."""
    sentences = [
        f"{name}: {sentence(record)}"
        for name, record in records.items()
        if (sentence := INSTRUMENTS[name].sentence) is not None
    ]
    return "\n".join([as_text(summary_table(records)), *sentences])


def left_out(records: Mapping[str, Record]) -> list[str]:
    """Return what was not measured, and why; one line for each reason.

    >>> values = {
    ...     "left_out": {"a.attn": "attends over channels", "b.attn": "attends over channels"}
    ... }
    >>> left_out({"nonlocality": Record(kind="nonlocality", values=values)})
    ['left out of nonlocality: a.attn, b.attn: attends over channels']
    """
    instruments: dict[tuple[str, str], list[str]] = {}
    for name, record in records.items():
        for part in ("left_out", "kept"):
            for unit, why in record.values.get(part, {}).items():
                instruments.setdefault((unit, why), []).append(name)
    units: dict[tuple[str, str], list[str]] = {}
    for (unit, why), names in instruments.items():
        units.setdefault((", ".join(names), why), []).append(unit)
    return [f"left out of {names}: {_some(each)}: {why}" for (names, why), each in units.items()]


def _some(units: list[str], most: int = 3) -> str:
    """All of a few names; of many the first and the last, with their number.

    >>> _some(["a", "b", "c", "d"])
    'a ... d (4 in all)'
    """
    if len(units) <= most:
        return ", ".join(units)
    return f"{units[0]} ... {units[-1]} ({len(units)} in all)"


def units_table(record: Record) -> Table:
    """The units of one model: what `vitascope inspect --list` prints."""
    rows = []
    for unit in record.values["units"]:
        grid = unit["grid"]
        cells = [
            unit["kind"],
            str(unit["stage"]),
            "x".join(map(str, grid)) if grid else "",
            str(unit["num_prefix_tokens"]) if grid else "",
            " x ".join(map(str, unit["shape"])),
        ]
        rows.append(row(unit["name"], cells))
    return Table(
        name="units",
        title="Units",
        corner="Unit",
        columns=("Kind", "Stage", "Grid", "Prefix", "Shape"),
        rows=tuple(rows),
    )
