"""The table of `compare --until decided` in docs/statistics.md: errors, power and runs used.

    PYTHONPATH=tests python scripts/make_until.py [TRIALS]

Three models with costs of 3, 2 and 1; the first is ahead of the second by the lead, and the third
is 4 points behind the second (80 %). Runs are simulated as in tests/simulated_runs.py. With a lead
of 0 the first two are equal, so that every "clear" is false: the worst case, because one more equal
model would have to be beaten too. The fixed number of seeds is the least, up to 10, with which a
comparison that looks once has the same power, but for a point. About five minutes of one core with
1,000 trials. The record is docs/records/seeds-in-rounds.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from simulated_runs import World
from vitascope.record import Record
from vitascope.stats import Look, looks, recommend

MODELS = ("a", "b", "c")
COST = {"a": 3.0, "b": 2.0, "c": 1.0}
LEADS, SPREADS, IMAGES = (0.0, 1.0, 2.0, 4.0, 10.0), (1.0, 2.0), (360, 2000)
FIRST, MOST, MARGIN = 3, 10, 1.0
FOLDS = 5
RECORD = Path(__file__).parents[1] / "docs" / "records" / "seeds-in-rounds"


def world(lead: float, spread: float, images: int) -> World:
    """Three models of which the first leads."""
    return World(
        accuracies=(80.0 + lead, 80.0, 76.0), spreads=(spread,) * 3, seeds=MOST, images=images
    )


def runs_used(found: tuple[Look, ...]) -> int:
    """Runs that all looks needed."""
    last = found[-1]
    left = {name: next(look.seeds for look in found if name in look.behind) for name in last.behind}
    return sum(left.get(name, last.seeds) for name in MODELS)


def wrong(verdict: str, model: str, lead: float) -> bool:
    """Whether a verdict is false: no such lead, or the taken model is further behind."""
    if verdict == "clear":
        return model != "a" or lead == 0
    deficit = {"a": 0.0, "b": lead, "c": lead + 4.0}[model]
    return verdict == "equivalent" and deficit > MARGIN


def simulated(lead: float, spread: float, images: int, trials: int) -> dict[str, Any]:
    """One row: shares of verdicts, runs used, and the fixed number of seeds with the same power."""
    clear = false = equivalent = not_equal = by_images = 0
    runs, number = [], []
    fixed = np.zeros(MOST + 1)
    for right in world(lead, spread, images).trials(trials, seed=int(10 * lead + spread)):
        correct = dict(zip(MODELS, right, strict=True))
        found = looks(correct, COST, first=FIRST, most=MOST, margin=MARGIN)
        last = found[-1].recommendation
        is_wrong = wrong(last.verdict, last.model, lead)
        clear += last.verdict == "clear" and not is_wrong
        false += last.verdict == "clear" and is_wrong
        equivalent += last.verdict == "equivalent"
        not_equal += last.verdict == "equivalent" and is_wrong
        by_images += found[-1].limit == "images"
        runs.append(runs_used(found))
        number.append(len(found))
        for seeds in range(FIRST, MOST + 1) if lead else ():
            once = recommend({name: each[:seeds] for name, each in correct.items()}, COST, MARGIN)
            fixed[seeds] += once.verdict == "clear" and once.model == "a"
    same = clear - 0.01 * trials
    enough = [seeds for seeds in range(FIRST, MOST + 1) if lead and fixed[seeds] >= same]
    return {
        "images": images,
        "spread": spread,
        "lead": lead,
        "clear": clear / trials,
        "false_clear": false / trials,
        "equivalent": equivalent / trials,
        "false_equivalent": not_equal / trials,
        "limited_by_images": by_images / trials,
        "looks": float(np.mean(number)),
        "runs": float(np.mean(runs)),
        "fixed_seeds": enough[0] if enough else None,
        "fixed_power": [share / trials for share in fixed[FIRST:].tolist()],
    }


def with_folds(lead: float, spread: float, images: int, trials: int) -> dict[str, Any]:
    """One row of repeated folds: shares of verdicts, and repetitions used."""
    rng = np.random.default_rng(int(10 * lead + spread))
    made = replace(world(lead, spread, images), seeds=MOST * FOLDS)
    shares = dict.fromkeys(("clear", "false_clear", "equivalent", "false_equivalent"), 0.0)
    used = []
    for right in made.trials(trials, seed=int(100 + 10 * lead + spread)):
        dealt = np.stack([rng.permutation(np.arange(images) % FOLDS) for _ in range(MOST)])
        run = FOLDS * np.arange(MOST)[:, None] + dealt  # of each image in each repetition
        correct = {
            name: np.take_along_axis(each, run, axis=0)
            for name, each in zip(MODELS, right, strict=True)
        }
        found = looks(correct, COST, first=1, most=MOST, margin=MARGIN, folds=dealt)
        last = found[-1].recommendation
        kind = "false_" if wrong(last.verdict, last.model, lead) else ""
        if last.verdict != "undecided":
            shares[f"{kind}{last.verdict}"] += 1 / trials
        used.append(found[-1].seeds)
    return {
        "images": images,
        "spread": spread,
        "lead": lead,
        **shares,
        "repetitions": float(np.mean(used)),
    }


def folds_table(rows: list[Mapping[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| images | spread | lead | rightly clear | falsely clear | equivalent (falsely) | "
        "repetitions |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        right = f"{100 * row['clear']:.0f} %" if row["lead"] else ""
        equal = 100 * (row["equivalent"] + row["false_equivalent"])
        lines.append(
            f"| {row['images']:,} | {row['spread']:g} | {row['lead']:g} | {right} | "
            f"{100 * row['false_clear']:.1f} % | {equal:.0f} % "
            f"({100 * row['false_equivalent']:.1f} %) | {row['repetitions']:.1f} |"
        )
    return "\n".join(lines)


def table(rows: list[Mapping[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| images | spread | lead | rightly clear | falsely clear | equivalent (falsely) | looks | "
        "runs | fixed seeds, runs | saved |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        fixed, saved = "", ""
        if row["fixed_seeds"]:
            number = len(MODELS) * row["fixed_seeds"]
            fixed = f"{row['fixed_seeds']}, {number}"
            saved = f"{100 * (1 - row['runs'] / number):.0f} %"
        right = f"{100 * row['clear']:.0f} %" if row["lead"] else ""
        equal = f"{100 * row['equivalent']:.0f} % ({100 * row['false_equivalent']:.1f} %)"
        lines.append(
            f"| {row['images']:,} | {row['spread']:g} | {row['lead']:g} | {right} | "
            f"{100 * row['false_clear']:.1f} % | {equal} | {row['looks']:.1f} | "
            f"{row['runs']:.1f} | {fixed} | {saved} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulate, and print the table."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rows, folds, started = [], [], perf_counter()
    for images in IMAGES:
        for spread in SPREADS:
            for lead in LEADS:
                rows.append(simulated(lead, spread, images, trials))
                folds.append(with_folds(lead, spread, images, trials))
                print(rows[-1], folds[-1], file=sys.stderr, flush=True)
    config = {"trials": trials, "first": FIRST, "most": MOST, "margin": MARGIN, "folds": FOLDS}
    seconds = perf_counter() - started
    Record(
        kind="simulation", values={"rows": rows, "folds": folds}, config=config, seconds=seconds
    ).save(RECORD)
    print(f"{table(rows)}\n\n{folds_table(folds)}")


if __name__ == "__main__":
    main()
