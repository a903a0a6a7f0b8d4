"""``vitascope study``: reproduce the papers' tables and figures, or search on one's own images."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from vitascope import option_types
from vitascope.commands import buildup, spectra
from vitascope.commands.engine import engine_of
from vitascope.commands.parsing import parse, show
from vitascope.commands.result import Result
from vitascope.errors import UserError, printable, unknown
from vitascope.runs.options import EngineOptions
from vitascope.settings import Count, Seed

# Studies with options of their own: their options, and what answers them.
SEARCHES: dict[str, tuple[type[Any], Callable[[Any], Result]]] = {
    "buildup": (buildup.Buildup, buildup.run),
    "spectra": (spectra.Spectra, spectra.run),
}


@dataclass(frozen=True, kw_only=True)
class StudyOptions(EngineOptions):
    """Reproduce a paper's tables and figures, at the size of a laptop or of the paper.

    The same table at both scales, with the paper's numbers next to ours, the spread over seeds, and
    a verdict on every claim: agrees, disagrees, undecided, or not testable here. If it is
    interrupted, the same command continues; finished runs are used again, also by other studies
    in the same folder.
    vitascope study --list names all studies; a table or figure names one too: convit-table-3,
    park-kim-fig-2b. A figure whose parts are in several studies runs all of them: convit-fig-11.

    Examples:
      vitascope study sample-efficiency --scale laptop
      vitascope study convit-table-3 --data photos/ --image-size 32 --seeds 0 1 2
      vitascope study sample-efficiency --scale paper --data imagenet:/data/imagenet --plan
      vitascope study fine-grid --scale desk --data cifar10:/data/cifar10 --plan
      vitascope study fine-grid --seeds 0 1 2 3 4 --records results/fine-grid.json
      vitascope study --all --scale laptop --out runs/studies
      vitascope study --all --scale paper --data imagenet:/data/imagenet cifar100:/data/cifar100 \\
          --engine slurm --gpus 8 --slurm slurm_partition=gpu
    """

    common = ("scale", "data", "image_size", "seeds", "out", "plan")  # first in the help

    scale: Literal["laptop", "desk", "paper", "smoke"] = "laptop"
    """laptop: micro models, minutes; desk: mini models on real images, hours; paper: its models,
    images and epochs; smoke: seconds."""
    data: tuple[str, ...] = ()
    """Images, as for `vitascope train`, several if studies need different ones; laptop: digits."""
    image_size: option_types.ImageSize = None
    recipe: str | None = None
    """Another recipe than the scale's."""
    epochs: Count | None = None
    """Epochs of every run; the scale's when left out."""
    seeds: tuple[Seed, ...] = ()
    """One run per seed; the scale's when left out."""
    records: tuple[Path, ...] = ()
    """Records of earlier studies, or folders of them, so that seeds are added: seeds that one of
    the same study and scale has are not trained again, nor, where accuracies alone are asked for,
    runs whose answers any of them kept."""
    out: Path = Path("runs/studies")
    """Folder for runs, records and figures."""
    processes: option_types.RunsAtATime = None
    plan: bool = False
    """Print what would be run and what it costs (paper: GPU-hours and memory, computed; desk:
    core-hours, from timed steps), and stop."""
    keep: Path | None = None
    """Copy what is worth keeping of the finished runs into this folder: records, predictions,
    metrics, readings; no weights."""
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def usage() -> str:
    """Return the text of ``vitascope study --help``."""
    return "\n".join(
        [
            "usage: vitascope study NAME [options]",
            "       vitascope study --all [options]",
            "       vitascope study --list [--json]",
            "",
            "Reproduce the papers' tables and figures, or answer a question by training or",
            "measuring several models. --list names the papers' studies, with the claim, the data",
            "and the time of each; a table or figure names its study too: convit-table-3. Besides:",
            "",
            *searches(),
            "",
            "vitascope study NAME --help tells more. Examples:",
            "  vitascope study sample-efficiency --scale laptop",
            "  vitascope study convit-table-3 --data photos/ --image-size 32",
            "  vitascope study --all --scale laptop --out runs/studies",
            "  vitascope study buildup --base resnet --data digits --epochs 10",
        ]
    )


def searches() -> list[str]:
    """The studies with options of their own, with the first line of their help."""
    return [f"  {name:<10} {kind.__doc__.splitlines()[0]}" for name, (kind, _) in SEARCHES.items()]


def list_all(as_json: bool) -> str:
    """Return one line per study, or JSON with everything about each."""
    rows = listed()
    if as_json:
        return json.dumps(rows)
    width = max(len(row["name"]) for row in rows)
    lines = [
        f"  {row['name']:<{width}}  {row['title']} ({', '.join(row['covers'])}; "
        f"{row['time']['laptop']})"
        for row in rows
    ]
    lines = ["Studies, what they cover, and their time at --scale laptop on two cores:", *lines]
    lines += [
        "",
        "`vitascope study NAME --plan` prints the claim, the images and the time.",
    ]
    return "\n".join([*lines, "", "With options of their own:", *searches()])


def understand(words: Sequence[str]) -> tuple[Any, Callable[[Any], None]]:
    """The options of the study that ``words`` name, and what answers and prints it."""
    if "--all" in words:
        words = ["--all", *(word for word in words if word != "--all")]
    name, *arguments = words
    if name == "--list":
        if set(arguments) - {"--json"}:
            raise UserError(f"--list takes --json alone, not {' '.join(arguments)}")
        return "--json" in arguments, lambda as_json: print(list_all(as_json))
    if name in SEARCHES:
        kind, answer = SEARCHES[name]
        options = parse(kind, f"vitascope study {name}", arguments)
        return options, lambda o: show(answer(o), as_json=o.json, quiet=o.quiet)
    studies, options = papers_studies(name, arguments)
    return options, lambda o: run_papers(studies, o)


def main(words: Sequence[str]) -> None:
    """Run the study that the words after ``vitascope study`` name."""
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        raise SystemExit(0 if words else 2)
    options, answer = understand(words)
    answer(options)


def papers_studies(name: str, words: Sequence[str]) -> tuple[list[Any], StudyOptions]:
    """The studies that ``name`` stands for (all of a figure's parts), and their options."""
    from vitascope.papers.catalog import catalog, find_all

    near = get_close_matches(name, SEARCHES)
    if near and not get_close_matches(name, catalog(), cutoff=0.9):
        raise unknown("study", name, [*SEARCHES, *catalog()])
    studies = list(catalog().values()) if name == "--all" else find_all(name)
    return studies, parse(StudyOptions, f"vitascope study {name}", words)


def run(name: str, options: StudyOptions) -> Result:
    """Answer one study of a paper and write the page of its folder."""
    from vitascope.papers.answer import check_images
    from vitascope.papers.catalog import find_all
    from vitascope.report.page import write_folder_page

    study, *others = find_all(name)
    check_images({study.name: study.plan(scale_of(study, options))})
    result = replace(_answered(study, options), written=write_folder_page(options.out))
    also = f"note: {name} has further parts: {', '.join(each.name for each in others)}"
    return replace(result, notes=(*result.notes, also)) if others else result


def _answered(study: Any, options: StudyOptions) -> Result:
    """Answer one study of a paper, whose images are known to be there."""
    from vitascope.papers.answer import answer
    from vitascope.report.sections.study import study_text

    record = answer(
        study, scale_of(study, options), options.out, engine_of(options), options.records
    )
    return Result(records={study.name: record}, summary=study_text(record), values=record.values)


def scale_of(study: Any, options: StudyOptions) -> Any:
    """The scale of a study, with what the request changes."""
    from vitascope.papers.scale import SCALES

    needed = study.data["paper"].lower()  # of several sources, the kind that the study names
    fitting = [word for word in options.data if f"{word.partition(':')[0]}:" in needed]
    named = re.search(r"(\w+):path", needed) if options.scale == "paper" else None
    usual = named[1] if named else None  # a set without its place: cifar100
    changes: dict[str, Any] = {
        "data": next(iter([*fitting, *options.data]), usual),
        "seeds": options.seeds or tuple(range(study.seeds.get(options.scale, 0))) or None,
        "image_size": options.image_size,
        "epochs": options.epochs,
        "recipe": options.recipe,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(SCALES[options.scale], **given)


def run_papers(studies: Sequence[Any], options: StudyOptions) -> None:
    """Answer the studies one after the other; a failure of one does not stop the others."""
    from vitascope.papers.answer import check_images
    from vitascope.report.page import write_folder_page
    from vitascope.report.sections.claims import CountedClaim, correction, tally, tested
    from vitascope.runs.cache import keep

    if options.keep is not None and options.plan:
        raise UserError("--plan runs nothing, so there is nothing to --keep; give one of them")
    if options.records and len(studies) > 1:
        names = ", ".join(study.name for study in studies[:3])
        raise UserError(f"--records are those of one study; name one of them: {names}, …")
    if options.scale == "paper" or options.plan:
        for study in studies:
            print(
                "\n".join(planned(study, options)), file=sys.stderr if options.json else sys.stdout
            )
        if options.plan:
            return
    check_images({study.name: study.plan(scale_of(study, options)) for study in studies})
    claims: list[CountedClaim] = []
    failed, values = [], []
    for i, study in enumerate(studies):
        if not (options.quiet or options.json) and len(studies) > 1:
            print(f"[{i + 1}/{len(studies)}] {study.name}", file=sys.stderr, flush=True)
        try:
            result = _answered(study, options)
        except UserError as error:
            if len(studies) == 1:
                raise
            failed.append(f"{study.name}: {error}")
            continue
        claims += map(tested, result.values["claims"])
        values.append(result.values)
        if not options.json:
            print(printable(f"{result}\n"), flush=True)
    if values:
        page = write_folder_page(options.out)
        if options.keep is not None:
            keep(options.out, options.keep)
    if options.json:
        print(json.dumps(values[0] if len(studies) == 1 else values))
    elif len(studies) > 1:
        counted = f"{len(values)} studies, {tally([claim.verdict for claim in claims])}."
        print(f"{counted} {correction(claims)}".strip())
    if values and not options.json:
        print(page)
    if failed:
        raise UserError(f"{len(failed)} of {len(studies)} studies failed: {'; '.join(failed)}")


def planned(study: Any, options: StudyOptions) -> list[str]:
    """Describe what a study would run: trainings, hours, memory and the launch command."""
    from vitascope.papers.answer import command
    from vitascope.runs.cache import command as line

    scale = scale_of(study, options)
    plan = study.plan(scale)
    images = scale.data if options.data else study.data.get(scale.name, study.data["laptop"])
    num_trainings = len(plan.wanted())
    num_runs = num_trainings * len(scale.seeds)
    lines = [
        f"{study.name}: {num_runs} runs of {num_trainings} trainings; {images}",
        f"  claim: {study.claim}",
    ]
    if scale.is_paper:
        from vitascope.papers.cost import budget

        cost = budget([plan], len(scale.seeds))
        lines.append(
            f"  expected: {cost.gpu_hours:,.0f} A100-hours, {cost.largest_gb:.0f} GB a GPU"
            " with 128 images on it (training alone; computed, not measured)"
        )
        size = f"--gpus {options.gpus} --nodes {options.nodes} --hours {options.hours:g}"
        extra = [f"--engine slurm {size}"]
        lines.append(f"  launch: {command(study.name, scale, extra)} --out {options.out}")
    if scale.name == "desk":
        from vitascope.papers.answer import check_images
        from vitascope.papers.cost import core_hours
        from vitascope.papers.earlier import earlier_runs

        check_images({study.name: plan})
        earlier = earlier_runs(options.records, study.name, scale, plan).runs
        left = core_hours(plan, scale.seeds, options.out, known=earlier)
        lines.append(
            f"  expected: {left.hours:,.1f} core-hours: {left.training:,.1f} for {left.num_runs} "
            f"runs that are not there yet, {left.readings:,.1f} for what is read off them (timed "
            "steps of every model on this machine)"
        )
        slow, fast = min(left.images_per_second.values()), max(left.images_per_second.values())
        lines.append(f"  one core trains {slow:,.0f} to {fast:,.0f} images a second")
    on_cluster = replace(options, engine="slurm")
    launcher = engine_of(on_cluster).launcher() if scale.is_paper else ""
    lines += [
        f"  {line(training, scale.seeds[0], options.out, None, launcher)}"
        for training, _ in plan.wanted().values()
    ]
    if len(scale.seeds) > 1:
        lines.append(f"  and the same with --seed {', '.join(map(str, scale.seeds[1:]))}")
    return lines


def listed() -> list[dict[str, Any]]:
    """Every study: what it covers, the claim, the data, how long it takes at each scale."""
    from vitascope.papers.catalog import catalog
    from vitascope.papers.scale import LAPTOP, laptop_minutes

    rows = []
    for study in catalog().values():
        took = f"{max(laptop_minutes(study.plan(LAPTOP), len(LAPTOP.seeds)), 1):.0f} min"
        paper = "many GPU-hours: --scale paper --plan counts them"
        row = {
            "name": study.name,
            "covers": list(study.covers),
            "title": study.title,
            "claim": study.claim,
            "data": dict(study.data),
            "time": {"smoke": "seconds", "laptop": took, "desk": "hours", "paper": paper},
        }
        rows.append(row)
    return rows
