"""Which convolutions should become attention? The build-up rule, as a search on one's own images.

Park and Kim 2022 (https://arxiv.org/abs/2202.06709), section 4.1 and Fig. 12a:

1. replace conv blocks by MSA blocks alternately, from the end of the network;
2. if the last one does not help, take it back and go on at the end of an earlier stage;
3. more heads in late stages: the models' own business, recorded here.

"Alternately" leaves a conv before every MSA, so from the end of a stage every second block is
tried, and never a stage's first, which changes the shape: stages are [conv] x (n - 2m) +
[conv, MSA] x m. A candidate *helps* if its mean top-1 over the seeds, on images held out of the
training set, is above that of the network kept so far by more than ``margin`` points; a tie does
not help. The paper does not say on which images it decided; here the test set decides nothing and
is measured beside. Every candidate is trained from scratch.

`vitascope study buildup --data digits` trains four networks of ``resnet_micro`` twice at most.

Kinds: one word a stage, one letter a block, "c" conv and "a" MSA: AlterNet-50 is
("ccc", "ccca", "cacaca", "caca").
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from vitascope import record
from vitascope.data import subset
from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.settings import Processes, check_value
from vitascope.studies.grid.buildup_cells import (
    BuildUp,
    Images,
    Kinds,
    first_kinds,
    images_of,
    run,
    scored,
    with_base,
)
from vitascope.studies.noise import half_width, pooled_spread
from vitascope.train import lock_folder
from vitascope.train.run_folder.run import differences

__all__ = ["Candidate", "build_up", "candidates", "improves"]

# What must not change in a folder; more seeds or candidates or another margin use the same runs.
_SAME = ("base", "model_args", "data", "image_size", "validation", "recipe")
_ROUNDING = 1e-9  # points; one image is worth far more


@dataclass(frozen=True)
class Candidate:
    """A network to try, and the block that is new in it; none in the base."""

    kinds: Kinds
    stage: int | None = None  # from 0
    block: int | None = None


def candidates(base: Kinds) -> Generator[Candidate, bool, Kinds]:
    """The networks to try; send whether each one helped. Returns the kinds that are kept.

    >>> rule = candidates(("cc", "cccc"))
    >>> next(rule).kinds, rule.send(True).kinds, rule.send(False).kinds
    (('cc', 'ccca'), ('cc', 'caca'), ('ca', 'ccca'))
    """
    kept = base
    for stage in reversed(range(len(base))):
        for block in range(len(base[stage]) - 1, 0, -2):
            word = kept[stage]
            if "a" in word[block - 1 : block + 2]:  # attention is there already, or beside it
                continue
            word = word[:block] + "a" + word[block + 1 :]
            trial = Candidate((*kept[:stage], word, *kept[stage + 1 :]), stage, block)
            if not (yield trial):
                break
            kept = trial.kinds
    return kept


def improves(trial: Sequence[float], kept: Sequence[float], margin: float = 0.0) -> bool:
    """Whether the mean over seeds is higher by more than the margin; a tie is no improvement.

    >>> improves([90.0, 92.0], [91.0, 91.0]), improves([92.0], [91.0]), improves([92.0], [91.0], 1)
    (False, True, False)
    """
    return fmean(trial) - fmean(kept) > margin + _ROUNDING


def build_up(
    question: BuildUp,
    out: str | Path,
    *,
    processes: int = 1,
    quiet: bool = False,
    progress: Callable[[str], object] = lambda line: None,
) -> Record:
    """Train what is not trained yet, keep or go back, until the rule has no block left.

    The record is ``out/buildup.json``, written anew after every candidate.

    Args:
        question: What to ask; more seeds or candidates, or another margin, may be asked of the
            same folder later.
        out: Folder for runs and record.
        processes: Runs at a time.
        quiet: No progress bar.
        progress: Called with a line about every candidate.

    Raises:
        UserError: If the base has no kinds, or the folder holds another question.
    """
    out, started = Path(out), perf_counter()
    check_value(processes, Processes, "processes")
    images = images_of(question)
    question = with_base(question, images)
    start = Candidate(first_kinds(question, images))
    rule = candidates(start.kinds)
    trial = next(rule, None)
    if trial is None:
        raise UserError(f"{question.base} has no block to replace in {' '.join(start.kinds)}")
    with lock_folder(out):
        _enter(out, question)
        how: dict[str, Any] = {"processes": processes, "quiet": quiet}
        run(question, [start.kinds, trial.kinds], out, **how)  # neither waits for an answer
        kept = {**asdict(start), **scored(question, start.kinds, out, images)}
        kept |= {"change": None, "kept": True}
        rows, answer = [kept], None
        most = question.max_candidates
        while trial is not None and (most is None or len(rows) <= most):
            run(question, [trial.kinds], out, **how)
            row = {**asdict(trial), **scored(question, trial.kinds, out, images)}
            row["change"] = row["top1"] - kept["top1"]
            row["kept"] = improves(row["top1_seeds"], kept["top1_seeds"], question.margin)
            kept = row if row["kept"] else kept
            rows.append(row)
            progress(_line(row))
            trial = _next(rule, row["kept"])
            answer = _record(question, rows, images, trial is None, perf_counter() - started)
            answer.save(out / "buildup")
    assert answer is not None  # there is a first candidate
    return answer


def _enter(out: Path, question: BuildUp) -> None:
    """Take the folder for this question, or refuse it if it holds another."""
    if not (out / "buildup.json").exists():
        Record(kind="buildup", config=question.config, seed=question.seeds[0]).save(out / "buildup")
    found = differences(record.load(out / "buildup").config, question.config, _SAME)
    if found:
        raise UserError(
            f"{out} holds another build-up: {'; '.join(found)}; ask the same question or choose "
            "another folder"
        )


def _next(rule: Generator[Candidate, bool, Kinds], helped: bool) -> Candidate | None:
    try:
        return rule.send(helped)
    except StopIteration:
        return None


def _line(row: Mapping[str, Any]) -> str:
    verdict = "kept" if row["kept"] else "not kept"
    return f"{' '.join(row['kinds'])}  {row['top1']:.2f} % ({row['change']:+.2f}): {verdict}"


def _record(
    question: BuildUp,
    rows: Sequence[dict[str, Any]],
    images: Images,
    complete: bool,
    seconds: float,
) -> Record:
    """What was found so far; ``noise`` is half of the 95 % interval of a change."""
    spread = pooled_spread([row["top1_seeds"] for row in rows])
    seeds = (len(question.seeds),) * 2
    for row in rows[1:]:
        before = row["top1"] - row["change"]
        row["noise"] = half_width(row["top1"], before, seeds, spread, len(images.chooser.test))
    values = {
        "question": "Which conv blocks should become MSA blocks?",
        "base": question.base,
        "data": images.whole.name,
        "images": {
            "train": len(subset(images.chooser.train, question.recipe.subset)),
            "validation": len(images.chooser.test),
            "test": len(images.whole.test),
        },
        "seeds": list(question.seeds),
        "margin": question.margin,
        "candidates": list(rows),
        "kinds": next(row["kinds"] for row in reversed(rows) if row["kept"]),
        "complete": complete,
        "training_seconds": sum(row["seconds"] for row in rows),
    }
    config, seed = question.config, question.seeds[0]
    return Record(kind="buildup", values=values, config=config, seed=seed, seconds=seconds)
