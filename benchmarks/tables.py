"""The tables of a benchmark's record: ratios to peers, memory and costs."""

from collections.abc import Callable, Iterator

from vitascope.record import Record
from vitascope.table import Table, row

ABOUT_RATIOS = "Above 1 is faster than the peer; medians and quartiles over turns in one process."


# What a record may hold: title, corner, columns, and a line's cells.
_KINDS: dict[str, tuple[str, str, tuple[str, ...], Callable[..., list[str]]]] = {
    "speed": (
        "Speed against peers",
        "Ours / peer",
        ("Median", "Quartiles"),
        lambda low, mid, high: [f"{mid:.2f}", f"{low:.2f} to {high:.2f}"],
    ),
    "memory": (
        "Memory",
        "Grid",
        ("Our layer", "timm's layer", "Ratio"),
        lambda a, b: [f"{a / 1e6:.1f} MB", f"{b / 1e6:.1f} MB", f"{a / b:.3f}"],
    ),
    "rates": (
        "Images a second",
        "Work",
        ("Ours", "Peer's", "Ratio"),
        lambda ours, theirs: [f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}"],
    ),
    "shares": (
        "Share of the machine's matrix product that training reaches",
        "Model",
        ("Images a second", "Gflop/s", "Share", "Quartiles"),
        lambda rate, gflops, low, mid, high: [
            f"{rate:,.0f}",
            f"{gflops:.0f}",
            f"{100 * mid:.0f} %",
            f"{100 * low:.0f} to {100 * high:.0f} %",
        ],
    ),
    "reached": (
        "Error reached, and its price",
        "Up to an error of",
        ("Reached", "At worst", "Products", "CPU seconds"),
        lambda error, worst, products, seconds: [
            f"{100 * error:.2g} %",
            f"{100 * worst:.2g} %",
            f"{products:g}",
            f"{seconds:.1f}",
        ],
    ),
}
_KINDS["points"] = (
    "Cost by size",
    "What grows",
    ("Work", "Model", "Size", "Seconds", "Memory"),
    lambda work, model, size, seconds, held: [
        work,
        model,
        f"{size:g}",
        f"{seconds:.3g}",
        f"{held / 1e6:.1f} MB",
    ],
)
_KINDS["cost"] = ("Cost in plain forward passes", "Work", *_KINDS["speed"][2:])


def bench_tables(record: Record) -> Iterator[Table]:
    """Speed, memory, images a second, shares, accuracy and cost: those that the record has."""
    for kind, (title, corner, columns, cells) in _KINDS.items():
        if kind == "memory" and "peer" in record.config:
            columns = (columns[0], str(record.config["peer"]), columns[2])
        if kind == "memory" and record.kind in ("bench-capture", "bench-inspect"):  # whole passes
            corner, columns = "Work", ("Ours", *columns[1:])
        if record.values.get(kind):
            yield Table(
                name=f"{record.kind.removeprefix('bench-')} {kind}",
                title=title,
                corner=corner,
                columns=columns,
                rows=tuple(row(label, cells(*line)) for label, *line in record.values[kind]),
            )
