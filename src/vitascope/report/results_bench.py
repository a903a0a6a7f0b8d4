"""A benchmark's record in tables: ratios first, then what stands behind them."""

from vitascope.record import Record
from vitascope.report.text import markdown

__all__ = ["benchmark"]


def benchmark(record: Record) -> str:
    """All that the record holds of speed, memory, rates, accuracy and cost."""
    rows = [
        [w, f"{mid:.2f}", f"{low:.2f} to {high:.2f}"]
        for w, low, mid, high in record.values["speed"]
    ]
    parts = [
        "Above 1 is faster than the peer; medians and quartiles over turns in one process.",
        markdown(["ours / peer", "median", "quartiles"], rows),
    ]
    if record.values.get("memory"):
        sizes = [
            [grid, f"{ours / 1e6:.1f} MB", f"{theirs / 1e6:.1f} MB", f"{ours / theirs:.3f}"]
            for grid, ours, theirs in record.values["memory"]
        ]
        peer = record.config.get("peer", "timm's layer")
        parts.append(markdown(["memory", "our layer", peer, "ratio"], sizes))
    if record.values.get("rates"):
        rates = [
            [what, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.1f}"]
            for what, ours, theirs in record.values["rates"]
        ]
        parts.append(markdown(["images a second", "ours", "peer's", "ratio"], rates))
    if record.values.get("reached"):
        reached = [
            [who, f"{100 * error:.2g} %", f"{100 * worst:.2g} %", f"{products:g}", f"{seconds:.1f}"]
            for who, error, worst, products, seconds in record.values["reached"]
        ]
        parts.append(
            markdown(["to an error of", "reached", "at worst", "products", "CPU seconds"], reached)
        )
    for what, counts in record.values.get("products", {}).items():
        parts.append(
            f"Products of one batch after the other, {what}: {', '.join(map(str, counts))}."
        )
    if record.values.get("cost"):
        costs = [
            [what, f"{mid:.2f}", f"{low:.2f} to {high:.2f}"]
            for what, low, mid, high in record.values["cost"]
        ]
        parts.append(markdown(["work", "in plain forward passes", "quartiles"], costs))
    config = ", ".join(f"{key} {value}" for key, value in record.config.items())
    return "\n\n".join([*parts, f"Settings: {config}."])
