"""A benchmark's record as Markdown."""

from vitascope.record import Record
from vitascope.report.sections.bench_tables import ABOUT, bench_tables
from vitascope.report.tables.terminal import markdown

__all__ = ["benchmark"]


def benchmark(record: Record) -> str:
    """All that the record holds of speed, memory, rates, accuracy and cost."""
    parts = [ABOUT, *(markdown(head, rows) for head, rows in bench_tables(record))]
    for what, counts in record.values.get("products", {}).items():
        parts.append(
            f"Products of one batch after the other, {what}: {', '.join(map(str, counts))}."
        )
    config = ", ".join(f"{key} {value}" for key, value in record.config.items())
    return "\n\n".join([*parts, f"Settings: {config}."])
