"""Which pretrained backbone for these images, and how good will it get?

1. Probe every candidate: frozen features, nearest neighbours and a linear classifier.
2. Race: fine-tune the best few and the best of each kind of locality; the winner's network also
   from random weights, which shows what pretraining added.
3. Answer: accuracy against cost, and one recommendation (:func:`vitascope.studies.stats.recommend`,
   on paired test images), or that it is undecided. Beside it the order by ImageNet accuracy, which
   shows what probing added.

All on the test images: the share of the one that is taken is a little too good for that, the more
so the more candidates there were.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np

from vitascope.data import Dataset
from vitascope.errors import UserError
from vitascope.record import Record, provenance
from vitascope.settings import Seed, Side, Within, check
from vitascope.studies import stats
from vitascope.studies.grid.executor import Engine, run_all
from vitascope.studies.grid.runs import folder_of
from vitascope.studies.grid.training import Training
from vitascope.studies.images import surveyed
from vitascope.studies.pretrained.candidates import DEFAULT, IMAGENET, Opened, opened, plain_name
from vitascope.studies.pretrained.cost import Cost, cost_of
from vitascope.studies.pretrained.features import frozen_features
from vitascope.studies.pretrained.probe import Probed, linear, probe
from vitascope.studies.pretrained.race import RacePlan, Runner, order_of, planned, runners
from vitascope.studies.pretrained.twice import SHARES, Twice, twice
from vitascope.studies.session.mistakes import mistakes
from vitascope.studies.session.pretrained import images_for
from vitascope.train import Predictions, Recipe, load_run, lock_folder, recipe

__all__ = ["PretrainedQuestion", "choose_pretrained"]

Tell = Callable[[str], None]
OnImage = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class PretrainedQuestion:
    """The question in full."""

    data: str
    models: tuple[str, ...] = DEFAULT
    seeds: tuple[Seed, ...] = (0, 1, 2)
    image_size: Side | None = None  # the candidates' own when left out
    margin: Annotated[float, Within(0, 100)] = 1.0  # points a cheaper model may be behind
    probe_only: bool = False
    budget: float | None = None  # seconds of the whole
    recipe: Recipe = field(default_factory=lambda: recipe("finetune"))

    def __post_init__(self) -> None:
        check(self)
        for name in ("models", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise UserError(f"{name} must be one or more different ones, not {list(values)}")


@dataclass(frozen=True, kw_only=True)
class ProbedCandidate:
    """A candidate that was probed."""

    opened: Opened
    probed: Probed
    cost: Cost
    seconds: float  # of one image, forward
    num_train: int
    twice: Twice | None  # the linear probe with twice the images


def choose_pretrained(
    question: PretrainedQuestion,
    out: str | Path,
    engine: Engine | None = None,
    *,
    tell: Tell = lambda line: None,
    on_image: OnImage = lambda model, done, total: None,
) -> Record:
    """Probe, race and answer. The record is ``out/pretrained.json``, the features are kept there.

    Args:
        question: What to ask.
        out: Folder for features, runs and record.
        engine: Where the runs are made; one after the other in this process when left out.
        tell: Told, in one line each, what every candidate is and found.
        on_image: Told of the probe's progress.

    Raises:
        UserError: If no candidate can be had, or another process is at work in ``out``.
    """
    out, started, made = Path(out), perf_counter(), provenance()
    engine = engine or Engine()
    with lock_folder(out):
        look = surveyed(question.data)
        tell(look.short)
        candidates, skipped, images = _probe_all(question, out, tell, on_image)
        race: dict[str, np.ndarray] = {}
        scratch: np.ndarray | None = None
        plan = None
        if not question.probe_only:
            left = None if question.budget is None else question.budget - (perf_counter() - started)
            plan = _plan(question, candidates, left, engine)
            race, scratch = _race(question, plan, candidates, out, engine)
        values, arrays = _answer(question, candidates, race, scratch, plan, images)
        taken = candidates[values["recommendation"]["model"]]
        values["mistakes"], pictures = _mistakes(question, taken, plan, out)
        arrays |= pictures
        answer = Record(
            kind="pretrained",
            values={**values, "skipped": skipped, "images": look.values()},
            arrays=arrays,
            config={**asdict(question), "recipe": question.recipe.to_dict()},
            seed=question.seeds[0],
            seconds=perf_counter() - started,
            made=made,
        )
        answer.save(out / "pretrained")
    return answer


def _probe_all(
    question: PretrainedQuestion, out: Path, tell: Tell, on_image: OnImage
) -> tuple[dict[str, ProbedCandidate], dict[str, str], Dataset]:
    found: dict[str, ProbedCandidate] = {}
    skipped: dict[str, str] = {}
    images = None
    for each in opened(question.models, question.image_size):
        if each.found is None:
            skipped[each.text] = each.problem
            tell(f"skipped {each.text}: {each.problem}")
            continue
        images = images_for(question.data, each.found)
        if not len(images.train):
            raise UserError(f"{question.data} has no training images; give a source that has some")
        tell(each.found.line)
        found[each.text] = _probed(question, each, images, out / "features", on_image)
        shares = found[each.text].probed.shares
        tell(
            f"{each.text}: k-NN {100 * shares['knn']:.1f} %, linear {100 * shares['linear']:.1f} % "
            f"of {len(images.test)} test images"
        )
    if images is None:
        first = next(iter(skipped.values()))
        raise UserError(f"none of {len(skipped)} candidates can be had; of the first: {first}")
    return found, skipped, images


def _probed(
    question: PretrainedQuestion, each: Opened, images: Dataset, folder: Path, on_image: OnImage
) -> ProbedCandidate:
    assert each.found is not None
    model, size = each.found.model, each.found.preprocessing.size
    total, done = len(images.train) + len(images.test), 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        on_image(each.text, done, total)

    train, test = (
        frozen_features(each.found, part, folder, on_step=step)
        for part in (images.train, images.test)
    )
    cost = cost_of(model, size)
    probed = probe(
        train,
        images.train.labels,
        test,
        images.test.labels,
        seeds=question.seeds,
        groups=images.train.groups,
    )
    return ProbedCandidate(
        opened=each,
        twice=_twice(question, probed.c, train, test, images),
        probed=probed,
        cost=cost,
        seconds=cost.milliseconds / 1000,
        num_train=len(images.train),
    )


def _twice(
    question: PretrainedQuestion, c: float, train: np.ndarray, test: np.ndarray, images: Dataset
) -> Twice | None:
    """The learning curve of the linear probe, and what it says of twice the images."""
    counts, errors = [], []
    for share in SHARES:
        for seed in question.seeds:
            part = some(images.train.labels, share, seed)
            if len(np.unique(images.train.labels[part])) < 2:
                continue
            model = linear(c).fit(train[part], images.train.labels[part])
            counts.append(len(part))
            errors.append(float((model.predict(test) != images.test.labels).mean()))
    return twice(counts, errors)


def some(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Positions of a share of each class, at least one image, drawn with the seed.

    >>> some(np.array([0, 0, 1, 1]), 0.5, 0).shape
    (2,)
    """
    rng, found = np.random.default_rng(seed), []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        found.append(rng.permutation(members)[: max(1, round(share * len(members)))])
    return np.sort(np.concatenate(found))


def _plan(
    question: PretrainedQuestion,
    candidates: Mapping[str, ProbedCandidate],
    left: float | None,
    engine: Engine,
) -> RacePlan:
    able = {name: each for name, each in candidates.items() if _rebuildable(each)}
    if not able:
        raise UserError(
            "none of the candidates can be fine-tuned: hf: models and functions are only probed; "
            "give --probe-only, or models of timm's"
        )
    wanted = runners(
        [
            Runner(
                model=name,
                kind=each.opened.kind,
                linear=each.probed.inner[f"{each.probed.c:g}"],
                seconds=each.seconds,
            )
            for name, each in able.items()
        ]
    )
    return planned(
        wanted,
        num_images=next(iter(able.values())).num_train,
        num_seeds=len(question.seeds),
        epochs=question.recipe.epochs,
        budget=left,
        processes=engine.processes,
    )


def _rebuildable(each: ProbedCandidate) -> bool:
    return each.opened.found is not None and each.opened.found.config is not None


def _training(question: PretrainedQuestion, model: str, epochs: int, start: Any) -> Training:
    return Training(
        model=model,
        data=question.data,
        image_size=question.image_size,
        recipe=question.recipe,
        epochs=epochs,
        start=start,
    )


def _race(
    question: PretrainedQuestion,
    plan: RacePlan,
    candidates: Mapping[str, ProbedCandidate],
    out: Path,
    engine: Engine,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Which test images each got right, (S, M), and those of the best network from scratch."""

    def fine_tuned(trainings: Sequence[Training]) -> list[np.ndarray]:
        wanted = [(training, (), seed) for training in trainings for seed in question.seeds]
        run_all(
            wanted,
            out,
            engine,
            cost=lambda training: float(candidates[training.model].cost.multiply_adds),
        )
        return [
            np.stack(
                [_predictions(folder_of(training, seed, out)).correct for seed in question.seeds]
            )
            for training in trainings
        ]

    found = fine_tuned([_training(question, m, plan.epochs, "pretrained") for m in plan.models])
    race = dict(zip(plan.models, found, strict=True))
    best = max(race, key=lambda model: float(race[model].mean()))
    (scratch,) = fine_tuned([_training(question, best, plan.epochs, "random")])
    return race, scratch


def _predictions(folder: Path) -> Predictions:
    kept = load_run(folder).predictions
    assert kept is not None  # every run of this version keeps them
    return kept


def _answer(
    question: PretrainedQuestion,
    candidates: Mapping[str, ProbedCandidate],
    race: Mapping[str, np.ndarray],
    scratch: np.ndarray | None,
    plan: RacePlan | None,
    images: Dataset,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    final = dict(race) or {name: each.probed.linear for name, each in candidates.items()}
    cost = {name: float(candidates[name].cost.multiply_adds) for name in final}
    advice = stats.recommend(final, cost, question.margin, images.test.groups)
    best = advice.best
    rows = [_row(name, each, race) for name, each in candidates.items()]
    for line in rows:  # how far behind the best, on the same images
        name = line["model"]
        if name in final and name != best:
            behind = advice.against[name]
            line["behind"] = {"value": behind.value, "low": behind.low, "high": behind.high}
    arrays = {
        f"correct/linear/{n}": c.probed.linear.astype(np.uint8) for n, c in candidates.items()
    }
    arrays |= {f"correct/knn/{n}": c.probed.knn.astype(np.uint8) for n, c in candidates.items()}
    arrays |= {f"correct/race/{n}": c.astype(np.uint8) for n, c in race.items()}
    gained = None
    if scratch is not None:
        arrays["correct/scratch"] = scratch.astype(np.uint8)
        found = stats.difference(race[best], scratch, groups=images.test.groups)
        gained = {"model": best, "top1": 100 * float(scratch.mean())}
        gained |= {"gain": {"value": found.value, "low": found.low, "high": found.high}}
    static = order_of({line["model"]: line["imagenet"] for line in rows})
    probed = order_of({line["model"]: line["linear"] for line in rows})
    values = {
        "question": "Which pretrained backbone for these images, and how good will it get?",
        "data": {
            "name": images.name,
            "num_train": len(images.train),
            "num_test": len(images.test),
            "classes": list(images.classes),
            "notes": list(images.notes),
        },
        "probe": rows,
        "race": [
            {
                "model": name,
                "top1": float(each.mean()),
                "per_seed": [float(share) for share in each.mean(axis=1)],
                "epochs": None if plan is None else plan.epochs,
            }
            for name, each in race.items()
        ],
        "race_left_out": [] if plan is None else list(plan.left_out),
        "scratch": gained,
        "order": {
            "imagenet": static,
            "probe": probed,
            "race": order_of({name: float(each.mean()) for name, each in race.items()}),
        },
        "table": rows,
        "recommendation": {
            "model": advice.model,
            "verdict": advice.verdict,
            "best": best,
            "reason": advice.reason,
            "rivals": list(advice.rivals),
            "stage": "race" if race else "probe",
            "margin": question.margin,
        },
        "seeds": list(question.seeds),
    }
    return values, arrays


def _mistakes(
    question: PretrainedQuestion, taken: ProbedCandidate, plan: RacePlan | None, out: Path
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the recommended model gets wrong, fine-tuned or with a linear head, the first seed's."""
    assert taken.opened.found is not None
    name, said = taken.opened.text, taken.probed.first
    if plan is not None:
        run = _training(question, name, plan.epochs, "pretrained")
        said = _predictions(folder_of(run, question.seeds[0], out))
    images = images_for(question.data, taken.opened.found)
    whole = np.array_equal(images.test.labels, said.label)  # no file was left out
    values, arrays = mistakes(said, images.classes, images.test if whole else None)
    told = {"model": name, "seed": question.seeds[0]}
    return {**told, **values}, {f"mistakes/{key}": each for key, each in arrays.items()}


def _row(name: str, each: ProbedCandidate, race: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """One candidate, as ``--json`` has it."""
    found = each.opened.found
    assert found is not None
    how, shares = found.preprocessing, each.probed.shares
    top1, where = IMAGENET.get(plain_name(name), (None, ""))
    return {
        "model": name,
        **shares,
        "k": each.probed.k,
        "c": each.probed.c,
        "fine_tuned": float(race[name].mean()) if name in race else None,
        "kind": each.opened.kind,
        "locality": each.opened.locality,
        "size": list(how.size),
        "mean": list(how.mean),
        "std": list(how.std),
        "interpolation": how.interpolation,
        "crop_pct": how.crop_pct,
        "weights": found.weights_key,
        "line": found.line,
        "license": found.license,
        "imagenet": top1,
        "imagenet_source": where,
        "twice": None if each.twice is None else asdict(each.twice),
        **asdict(each.cost),
    }
