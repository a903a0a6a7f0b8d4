"""What of the papers holds here: all studies on one page, and their verdicts in one table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vitascope.record import Record
from vitascope.report.sections.study_text import MARKS, counted
from vitascope.report.tables.terminal import markdown

__all__ = ["in_order", "verdicts"]


def in_order(records: Sequence[tuple[str, Record]]) -> list[tuple[str, Record]]:
    """Studies in the papers' order and before the rest, which stays as it is."""
    studies = [pair for pair in records if pair[1].kind == "study"]
    studies.sort(key=lambda pair: (pair[1].values.get("order") or 0, pair[0]))
    return [*studies, *(pair for pair in records if pair[1].kind != "study")]


def verdicts(studies: Sequence[tuple[str, Record]]) -> str:
    """A line a named study: what it covers, on what, how many of the paper's claims are seen."""
    rows, every = [], []
    for name, record in studies:
        found = [claim["verdict"] for claim in record.values["claims"]]
        every += found
        counts = Counter(found)
        images = Path(str(record.values["data"])).name
        rows.append([f"[{name}](#{name})", ", ".join(record.values["covers"]), images,
                     *(str(counts[verdict] or "") for verdict in MARKS)])  # fmt: skip
    scales = sorted({str(record.values["scale"]) for _, record in studies})
    hours = sum(record.values["training_seconds"] for _, record in studies) / 3600
    names = {record.values["study"] for _, record in studies}
    again = len(studies) - len(names)
    more = f", {again} of them on other images too," if again else ""
    words = (
        f"{len(names)} studies{more} at the {' and '.join(scales)} scale, {counted(every)}. The "
        "papers' models, images and epochs are far larger, so a disagreement says where a claim "
        "stops holding at this size, not that the paper is wrong. Every claim is judged by itself: "
        "of 40 with nothing behind them about one would seem to agree and one to disagree. Runs "
        f"that studies share were trained once; counted for each study they are {hours:.1f} hours "
        "of one core that was shared with other work."
    )
    return f"{words}\n\n{markdown(['study', 'covers', 'images', *MARKS], rows)}"
