"""The tables of a benchmark's record: ratios first, then what stands behind them."""

from collections.abc import Iterator, Sequence
from typing import Any

from vitascope.record import Record
from vitascope.report.tables.table import Table, TableRow, row

__all__ = ["ABOUT_RATES", "ABOUT_RATIOS", "bench_tables"]

ABOUT_RATIOS = "Above 1 is faster than the peer; medians and quartiles over turns in one process."
ABOUT_RATES = "Noise images, medians over turns in one process; rates hold for this machine alone."


def bench_tables(record: Record) -> Iterator[Table]:
    """Speed, memory, images a second, shares, accuracy and cost: those that the record has."""
    values, subject = record.values, record.kind.removeprefix("bench-")
    if values.get("throughput"):
        yield _throughput(record)
    if values["speed"]:
        yield Table(
            name=f"{subject} speed",
            title="Speed against peers",
            corner="Ours / peer",
            columns=("Median", "Quartiles"),
            rows=_quartiles(values["speed"]),
        )
    if values.get("memory"):
        yield Table(
            name=f"{subject} memory",
            title="Memory",
            corner="Work" if subject == "capture" else "Grid",
            columns=(
                "Ours" if subject == "capture" else "Our layer",
                str(record.config.get("peer", "timm's layer")),
                "Ratio",
            ),
            rows=tuple(
                row(
                    what,
                    [f"{ours / 1e6:.1f} MB", f"{theirs / 1e6:.1f} MB", f"{ours / theirs:.3f}"],
                )
                for what, ours, theirs in values["memory"]
            ),
        )
    if values.get("rates"):
        yield Table(
            name=f"{subject} rates",
            title="Images a second",
            corner="Work",
            columns=("Ours", "Peer's", "Ratio"),
            rows=tuple(
                row(what, [f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}"])
                for what, ours, theirs in values["rates"]
            ),
        )
    if values.get("shares"):
        yield Table(
            name=f"{subject} shares",
            title="Share of the machine's matrix product that training reaches",
            corner="Model",
            columns=("Images a second", "Gflop/s", "Share", "Quartiles"),
            rows=tuple(
                row(
                    label,
                    [
                        f"{rate:,.0f}",
                        f"{gflops:.0f}",
                        f"{100 * mid:.0f} %",
                        f"{100 * low:.0f} to {100 * high:.0f} %",
                    ],
                )
                for label, rate, gflops, low, mid, high in values["shares"]
            ),
        )
    if values.get("reached"):
        yield Table(
            name=f"{subject} reached",
            title="Error reached, and its price",
            corner="Up to an error of",
            columns=("Reached", "At worst", "Products", "CPU seconds"),
            rows=tuple(
                row(
                    who,
                    [
                        f"{100 * error:.2g} %",
                        f"{100 * worst:.2g} %",
                        f"{products:g}",
                        f"{seconds:.1f}",
                    ],
                )
                for who, error, worst, products, seconds in values["reached"]
            ),
        )
    if values.get("cost"):
        yield Table(
            name=f"{subject} cost",
            title="Cost in plain forward passes",
            corner="Work",
            columns=("Median", "Quartiles"),
            rows=_quartiles(values["cost"]),
        )


def _throughput(record: Record) -> Table:
    """Images a second beside those of ConViT's Table 1."""
    batch, device = (record.config.get(name) for name in ("batch_size", "device"))
    return Table(
        name="throughput",
        title=f"Images a second, batches of {batch} on {device}",
        corner="Model",
        columns=("Parameters (M)", "Inference", "Training", "The paper's, inference on a GP100"),
        rows=tuple(
            row(
                name,
                [
                    f"{millions:.1f}",
                    f"{inference:,.3g}",
                    f"{training:,.3g}",
                    "" if paper is None else f"{paper:,}",
                ],
            )
            for name, millions, inference, training, paper in record.values["throughput"]
        ),
    )


def _quartiles(rows: Sequence[Sequence[Any]]) -> tuple[TableRow, ...]:
    return tuple(row(w, [f"{mid:.2f}", f"{low:.2f} to {high:.2f}"]) for w, low, mid, high in rows)
