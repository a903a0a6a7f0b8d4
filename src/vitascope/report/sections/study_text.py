"""A study in words: its tables with the paper's numbers beside ours, and a verdict a claim."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vitascope.record import Record
from vitascope.report.tables.terminal import markdown, table

__all__ = ["MARKS", "counted", "head", "rows", "study_lines", "study_markdown", "verdict_count"]

MARKS = {"agrees": "+", "within noise": "=", "disagrees": "-"}


def number(cell: Mapping[str, Any], digits: int) -> str:
    """Ours ± spread, and the paper's.

    >>> number({"mean": 59.04, "std": 1.26, "paper": 59.6}, 1), number({"mean": None}, 1)
    ('59.0 ± 1.3 (paper 59.6)', '–')
    """
    if cell.get("mean") is None:
        return "–" if cell.get("paper") is None else f"– (paper {cell['paper']:g})"
    spread = "" if cell.get("std") is None else f" ± {cell['std']:.{digits}f}"
    paper = "" if cell.get("paper") is None else f" (paper {cell['paper']:g})"
    return f"{cell['mean']:.{digits}f}{spread}{paper}"


def head(found: Mapping[str, Any]) -> list[str]:
    """The first line of a study's table."""
    return [found["corner"], *found["columns"]]


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """The lines of a study's table; the paper's name of a row where it differs."""
    lines = []
    for row in found["rows"]:
        theirs = row.get("paper_label")
        label = f"{row['label']} ({theirs})" if theirs and theirs != row["label"] else row["label"]
        lines.append([label, *(number(cell, found["digits"]) for cell in row["cells"])])
    return lines


def verdict_count(record: Record) -> str:
    """How many claims agree.

    >>> verdict_count(Record(kind="study", values={"claims": [{"verdict": "agrees"}]}))
    '1 claim: 1 agrees'
    """
    return counted([claim["verdict"] for claim in record.values["claims"]])


def counted(verdicts: Sequence[str]) -> str:
    """Verdicts by kind, in words."""
    counts = Counter(verdicts)
    agree = {"agrees": "agree", "disagrees": "disagree"}
    parts = [f"{counts[v]} {v if counts[v] == 1 else agree.get(v, v)}" for v in MARKS if counts[v]]
    total = len(verdicts)
    return f"{total} claim{'' if total == 1 else 's'}: {', '.join(parts) or 'none judged'}"


def _blocks(record: Record, draw: Callable[[Sequence[str], Sequence[Sequence[str]]], str]) -> Any:
    for found in record.values["tables"]:
        yield f"{found['title']}; {found['unit']}", draw(head(found), rows(found))


def study_lines(record: Record) -> str:
    """For a terminal."""
    values = record.values
    seeds = len(values["seeds"])
    parts = [f"{values['title']}  [{', '.join(values['covers'])}]",
             f"{values['scale']} scale, {values['data']}, {seeds} seed{'s' if seeds > 1 else ''}; "
             "mean ± standard deviation"]  # fmt: skip
    parts += [f"{title}\n{drawn}" for title, drawn in _blocks(record, table)]
    claims = [
        f"{MARKS[c['verdict']]} {c['verdict']:<12}  {c['source']}: {c['text']}. {c['reading']}"
        for c in values["claims"]
    ]
    return "\n\n".join([*parts, "\n".join(claims), f"{verdict_count(record)}."])


def study_markdown(record: Record) -> str:
    """For `docs/results.md`."""
    values = record.values
    parts = [
        f"**{values['title']}** {', '.join(values['covers'])}. The paper: {values['claim']}. "
        f"Here: {values['scale']} scale, {values['data']}, {len(values['seeds'])} seeds, "
        f"{values['num_runs']} runs; mean ± standard deviation."
    ]
    parts += [f"{title}:\n\n{drawn}" for title, drawn in _blocks(record, markdown)]
    claims = [[c["source"], c["text"], f"**{c['verdict']}**", c["reading"]]
              for c in values["claims"]]  # fmt: skip
    parts.append(markdown(["source", "claim", "verdict", "measured"], claims))
    return "\n\n".join([*parts, f"{verdict_count(record)}. `{values['command']}`"])
