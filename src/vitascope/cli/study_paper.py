"""``vitascope study NAME --scale ...``: reproduce a table or figure of a paper."""

import json
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from vitascope.answers.engine import engine_of
from vitascope.answers.study import run_study, scale_of
from vitascope.cli.options import parse
from vitascope.errors import UserError, unknown
from vitascope.requests.study import StudyRequest


def understand(
    name: str, words: Sequence[str], others: Sequence[str] = ()
) -> tuple[Any, StudyRequest]:
    """The studies that ``name`` stands for (all of them for ``--all``), and the options.

    ``others`` are names that would have been understood elsewhere, for who mistypes one.
    """
    from vitascope.studies.papers.catalog import catalog, find

    if get_close_matches(name, others) and not get_close_matches(name, catalog(), cutoff=0.9):
        raise unknown("study", name, [*others, *catalog()])
    studies = list(catalog().values()) if name == "--all" else [find(name)]
    return studies, parse(StudyRequest, f"vitascope study {name}", words)


def run_paper(studies: Sequence[Any], args: StudyRequest) -> None:
    """Answer the studies one after the other; a failure of one does not stop the others."""
    from vitascope.report.page import write_folder_page
    from vitascope.report.tables.claims import CountedClaim, correction, tally, tested
    from vitascope.studies.grid.keep import keep
    from vitascope.studies.papers.answer import check_images

    if args.keep is not None and args.plan:
        raise UserError("--plan runs nothing, so there is nothing to --keep; give one of them")
    if args.records and len(studies) > 1:
        raise UserError("--records are those of one study; name it instead of --all")
    if args.scale == "paper" or args.plan:
        for study in studies:
            print("\n".join(planned(study, args)), file=sys.stderr if args.json else sys.stdout)
        if args.plan:
            return
    check_images({study.name: study.plan(scale_of(study, args)) for study in studies})
    found: list[CountedClaim] = []
    failed, values = [], []
    for i, study in enumerate(studies):
        if not (args.quiet or args.json) and len(studies) > 1:
            print(f"[{i + 1}/{len(studies)}] {study.name}", file=sys.stderr, flush=True)
        try:
            result = run_study(study, args)
        except UserError as error:
            if len(studies) == 1:
                raise
            failed.append(f"{study.name}: {error}")
            continue
        found += map(tested, result.values["claims"])
        values.append(result.values)
        if not args.json:
            print(f"{result}\n", flush=True)
    if values:
        page = write_folder_page(args.out)
        if args.keep is not None:
            keep(args.out, args.keep)
    if args.json:
        print(json.dumps(values[0] if len(studies) == 1 else values))
    elif len(studies) > 1:
        counted = f"{len(values)} studies, {tally([claim.verdict for claim in found])}."
        print(f"{counted} {correction(found)}".strip())
    if values and not args.json:
        print(page)
    if failed:
        raise UserError(f"{len(failed)} of {len(studies)} studies failed: {'; '.join(failed)}")


def planned(study: Any, args: StudyRequest) -> list[str]:
    """What a study would run: cells, GPU-hours, memory, and the launch command."""
    from vitascope.studies.grid.runs import command as line
    from vitascope.studies.papers.answer import command
    from vitascope.studies.papers.budget import budget

    scale = scale_of(study, args)
    plan = study.plan(scale)
    cost = budget([plan], len(scale.seeds))
    images = scale.data if args.data else study.data.get(scale.name, study.data["laptop"])
    lines = [f"{study.name}: {cost.num_runs} runs of {len(plan.wanted())} trainings; {images}"]
    if scale.is_paper:
        lines.append(
            f"  expected: {cost.gpu_hours:,.0f} A100-hours, {cost.largest_gb:.0f} GB a GPU"
            " with 128 images on it (training alone; computed, not measured)"
        )
        if cost.unknown:
            lines.append(f"  not counted: {', '.join(cost.unknown)}")
        extra = [f"--engine slurm --gpus {args.gpus} --nodes {args.nodes} --hours {args.hours:g}"]
        lines.append(f"  launch: {command(study.name, scale, extra)} --out {args.out}")
    if scale.name == "desk":
        from vitascope.studies.papers.answer import check_images
        from vitascope.studies.papers.core_hours import core_hours
        from vitascope.studies.papers.earlier import earlier_runs

        check_images({study.name: plan})
        known = earlier_runs(args.records, study.name, scale, plan).runs
        left = core_hours(plan, scale.seeds, args.out, known=known)
        lines.append(
            f"  expected: {left.hours:,.1f} core-hours: {left.training:,.1f} for {left.num_runs} "
            f"runs that are not there yet, {left.readings:,.1f} for what is read off them (timed "
            "steps of every model on this machine)"
        )
        slow, fast = min(left.images_per_second.values()), max(left.images_per_second.values())
        lines.append(f"  one core trains {slow:,.0f} to {fast:,.0f} images a second")
    launcher = engine_of(args).launcher() if scale.is_paper else ""
    lines += [
        f"  {line(training, scale.seeds[0], args.out, None, launcher)}"
        for training, _ in plan.wanted().values()
    ]
    if len(scale.seeds) > 1:
        lines.append(f"  and the same with --seed {', '.join(map(str, scale.seeds[1:]))}")
    return lines


def listed() -> list[dict[str, Any]]:
    """Every study: what it covers, the claim, the data, how long it takes at each scale."""
    from vitascope.studies.papers.budget import budget, laptop_minutes
    from vitascope.studies.papers.catalog import catalog
    from vitascope.studies.papers.scale import LAPTOP, PAPER

    rows = []
    for study in catalog().values():
        hours = max(budget([study.plan(PAPER)], len(PAPER.seeds)).gpu_hours, 1)
        took = f"{max(laptop_minutes(study.plan(LAPTOP), len(LAPTOP.seeds)), 1):.0f} min"
        paper = f"{hours:,.0f} A100-hour{'s' * (hours >= 1.5)}"
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
