"""What a benchmark's record holds, as rows of words: ratios first, then what stands behind them."""

from collections.abc import Iterator, Sequence
from typing import Any

from vitascope.record import Record

__all__ = ["ABOUT", "bench_tables"]

ABOUT = "Above 1 is faster than the peer; medians and quartiles over turns in one process."


def bench_tables(record: Record) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Head and rows of each table: speed, memory, rates, accuracy, cost."""
    values, peer = record.values, record.config.get("peer", "timm's layer")
    yield ["ours / peer", "median", "quartiles"], _quartiles(values["speed"])
    if values.get("memory"):
        yield (
            ["memory", "our layer", peer, "ratio"],
            [
                [grid, f"{ours / 1e6:.1f} MB", f"{theirs / 1e6:.1f} MB", f"{ours / theirs:.3f}"]
                for grid, ours, theirs in values["memory"]
            ],
        )
    if values.get("rates"):
        yield (
            ["images a second", "ours", "peer's", "ratio"],
            [
                [what, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}"]
                for what, ours, theirs in values["rates"]
            ],
        )
    if values.get("reached"):
        yield (
            ["to an error of", "reached", "at worst", "products", "CPU seconds"],
            [
                [
                    who,
                    f"{100 * error:.2g} %",
                    f"{100 * worst:.2g} %",
                    f"{products:g}",
                    f"{seconds:.1f}",
                ]
                for who, error, worst, products, seconds in values["reached"]
            ],
        )
    if values.get("cost"):
        yield ["work", "in plain forward passes", "quartiles"], _quartiles(values["cost"])


def _quartiles(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [[what, f"{mid:.2f}", f"{low:.2f} to {high:.2f}"] for what, low, mid, high in rows]
