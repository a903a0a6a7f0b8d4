"""Tables of searches: networks that a build-up tried, and the Hessian spectra of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.report.figures.axes import count
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import number
from vitascope.report.tables.table import Table, row


def tried_networks(record: Record) -> Sequence[Mapping[str, Any]]:
    """The networks of the record in the order tried, the base first.

    Raises:
        UserError: For a record of another kind, or of a search that has tried nothing.
    """
    if record.kind != "buildup":
        raise UserError(f"this is a record of {record.kind!r}; give one of 'buildup'")
    rows: Sequence[Mapping[str, Any]] = record.values.get("candidates") or ()
    if not rows:
        raise UserError("the build-up has tried nothing yet; the same command continues it")
    return rows


def buildup_table(record: Record) -> Table:
    """All networks, accuracies in percent."""
    rows = []
    for place, network in enumerate(tried_networks(record)):
        new, change, verdict, done = "", "", "", "base"
        if place:
            new = f"c{network['stage'] + 1}"
            change, verdict = _change(network), verdict_of(network)
            done = "kept" if network["kept"] else "not kept"
        cells = [
            new,
            str(network["num_msa"]),
            _with_spread(network, "top1"),
            change,
            verdict,
            done,
            _with_spread(network, "test_top1"),
            count(network["parameters"]),
            count(network["seconds"]),
        ]
        rows.append(row(" ".join(network["kinds"]), cells))
    return Table(
        name="buildup",
        title="All networks in the order tried; change against the last one kept",
        corner="Blocks",
        columns=(
            "New in",
            "MSAs",
            "Validation (%)",
            "Change, 95 % interval",
            "Verdict",
            "Rule",
            "Test (%)",
            "Parameters",
            "Seconds",
        ),
        rows=tuple(rows),
    )


def verdict_of(network: Mapping[str, Any]) -> str:
    """Return whether the change would come again: helps, hurts, or undecided."""
    if "noise" in network:  # an old record: half of an interval
        beyond = abs(network["change"]) > network["noise"]
        return ("helps" if network["change"] > 0 else "hurts") if beyond else "undecided"
    return str(network["verdict"])


def _change(network: Mapping[str, Any]) -> str:
    """Points against the network kept so far, with the interval."""

    def signed(value: float) -> str:
        return ("+" if value >= 0 else "") + number(value, 2)

    change = signed(network["change"])
    if "noise" in network:
        return f"{change} ± {number(network['noise'], 2)}"
    if network.get("low") is None:
        return change
    return f"{change} [{signed(network['low'])}, {signed(network['high'])}]"


def _with_spread(network: Mapping[str, Any], name: str) -> str:
    std = network.get(f"{name}_std")
    return number(network[name], 2) + ("" if std is None else f" ± {number(std, 2)}")


def spectra_table(record: Record, styles: Styles | None = None) -> Table:
    """A line for each run and epoch; next to NEP and APE the verdict against the first run."""
    rows = []
    for found in record.values["rows"]:
        run, epoch = found["run"], found["epoch"]
        cells = [
            "last" if epoch is None else str(epoch),
            _with_error(found["nep"], 100),
            _against(found, "nep", 100),
            _with_error(found["ape"]),
            _against(found, "ape"),
            _with_error(found["loss"]),
        ]
        rows.append(row(run, cells, style=styles.of(run) if styles else None))
    return Table(
        name="spectra",
        title="Over mini-batches, with standard errors; differences with 95 % intervals",
        corner="Run",
        columns=(
            "Epoch",
            "NEP, % below 0",
            "NEP against the first",
            "APE, mean above 0",
            "APE against the first",
            "NLL + l2",
        ),
        rows=tuple(rows),
    )


def _against(found: Mapping[str, Any], what: str, scale: float = 1.0) -> str:
    """More, less or undecided against the first run, with the 95 % interval of the difference.

    >>> _against({"nep_verdict": "more", "nep_low": 0.1, "nep_high": 0.3}, "nep", 100)
    'more [+10, +30]'
    """
    verdict, low, high = (found.get(f"{what}_{name}") for name in ("verdict", "low", "high"))
    if low is None or high is None:
        return str(verdict)
    return f"{verdict} [{scale * low:+.3g}, {scale * high:+.3g}]".replace("-", "−")


def _with_error(pair: Sequence[Any], scale: float = 1.0) -> str:
    """A mean with its standard error.

    >>> _with_error([0.25, 0.0125], 100), _with_error([None, None])
    ('25 ± 1.2', 'none')
    """
    if pair[0] is None:
        return "none"
    error = "" if pair[1] is None else f" ± {scale * pair[1]:.2g}"
    return f"{scale * pair[0]:.3g}{error}"
