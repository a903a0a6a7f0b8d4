"""``vitascope study NAME --scale ...``: a paper's table or figure again."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from vitascope.cli.options import parse
from vitascope.errors import UserError, unknown
from vitascope.settings import Count, Processes, Seed, Side, Within

__all__ = ["Paper", "listed", "run_paper", "understand"]


@dataclass(frozen=True, kw_only=True)
class Paper:
    """Get a paper's tables and figures again, at the size of a laptop or of the paper.

    The same table at both scales, with the paper's numbers beside ours, the spread over seeds, and
    a verdict on every claim: agrees, disagrees, within noise. Interrupted, the same command goes
    on; what is finished is used again, also by other studies in the same folder. vitascope study
    --list names all studies; a table or figure names one too: convit-table-3, vit-fig-4.

    Examples:
      vitascope study sample-efficiency --scale laptop
      vitascope study convit-table-3 --data photos/ --image-size 32 --seeds 0 1 2
      vitascope study sample-efficiency --scale paper --data imagenet:/data/imagenet --plan
      vitascope study --all --scale laptop --out runs/studies
      vitascope study --all --scale paper --data imagenet:/data/imagenet cifar100:/data/cifar100 \\
          --engine slurm --gpus 8 --slurm slurm_partition=gpu
    """

    scale: Literal["laptop", "paper", "smoke"] = "laptop"
    """laptop: micro models, minutes; paper: its models, images and epochs; smoke: seconds."""
    data: tuple[str, ...] = ()
    """Images, as elsewhere; several where studies need different ones. Laptop: digits."""
    image_size: Side | None = None
    """Resize the images to this side."""
    recipe: str | None = None
    """Another recipe than the scale's."""
    epochs: Count | None = None
    """Epochs of every run."""
    seeds: tuple[Seed, ...] = ()
    """One run a seed and training; the scale's when left out."""
    out: Path = Path("runs/studies")
    """Folder for runs, records and figures."""
    engine: Literal["local", "slurm"] = "local"
    """Runs side by side on this machine, or as SLURM jobs (submitit)."""
    processes: Processes | None = None
    """Runs at a time on this machine; one a core when left out."""
    gpus: Annotated[int, Within(0, 1024)] = 8
    """GPUs a node and run, on a cluster."""
    nodes: Processes = 1
    """Nodes a run, on a cluster."""
    hours: Annotated[float, Within(0, open_low=True)] = 72.0
    """Time limit of a run, on a cluster."""
    slurm: tuple[str, ...] = ()
    """What submitit is told besides, as NAME=VALUE: slurm_partition=gpu."""
    plan: bool = False
    """Print what would be run, GPU-hours and memory, and stop."""
    json: bool = False
    """Print the record's values as JSON."""
    quiet: bool = False
    """No progress."""


def understand(name: str, words: Sequence[str], others: Sequence[str] = ()) -> tuple[Any, Paper]:
    """The studies that ``name`` stands for (all of them for ``--all``), and the options.

    ``others`` are names that would have been understood elsewhere, for who mistypes one.
    """
    from vitascope.studies.papers.catalog import catalog, find

    if get_close_matches(name, others) and not get_close_matches(name, catalog(), cutoff=0.9):
        raise unknown("study", name, [*others, *catalog()])
    studies = list(catalog().values()) if name == "--all" else [find(name)]
    return studies, parse(Paper, f"vitascope study {name}", words)


def run_paper(studies: Sequence[Any], args: Paper) -> None:
    """Answer the studies one after the other; a failure of one does not stop the others."""
    from vitascope.report.folder_page import write_folder_page
    from vitascope.report.tables.study import study_text, tally
    from vitascope.studies.papers.answer import answer, check_images

    if args.scale == "paper" or args.plan:
        for study in studies:
            print("\n".join(planned(study, args)), file=sys.stderr if args.json else sys.stdout)
        if args.plan:
            return
    scales = {study.name: scale_of(study, args) for study in studies}
    check_images({study.name: study.plan(scales[study.name]) for study in studies})
    found, failed, values = [], [], []
    for i, study in enumerate(studies):
        if not (args.quiet or args.json) and len(studies) > 1:
            print(f"[{i + 1}/{len(studies)}] {study.name}", file=sys.stderr, flush=True)
        try:
            record = answer(study, scales[study.name], args.out, _engine(args))
        except UserError as error:
            if len(studies) == 1:
                raise
            failed.append(f"{study.name}: {error}")
            continue
        found += [claim["verdict"] for claim in record.values["claims"]]
        values.append(record.values)
        if not args.json:
            print(f"{study_text(record)}\n", flush=True)
    if values:
        page = write_folder_page(args.out)
    if args.json:
        print(json.dumps(values[0] if len(studies) == 1 else values))
    elif len(studies) > 1:
        print(f"{len(values)} studies: {tally(found)}.")
    if values and not args.json:
        print(page)
    if failed:
        raise UserError(f"{len(failed)} of {len(studies)} studies failed: {'; '.join(failed)}")


def scale_of(study: Any, args: Paper) -> Any:
    """The scale with what the command line changes."""
    from vitascope.studies.papers.scale import SCALES

    scale = SCALES[args.scale]
    changes: dict[str, Any] = {
        "image_size": args.image_size, "epochs": args.epochs, "recipe": args.recipe,
        "seeds": args.seeds or None, "data": _source(study, args)}  # fmt: skip
    return replace(scale, **{k: v for k, v in changes.items() if v is not None})


def _source(study: Any, args: Paper) -> str | None:
    """The data given for this study: the one whose kind it names, else the first."""
    needed = study.data["paper"].lower()
    kinds = [word for word in args.data if f"{word.partition(':')[0]}:" in needed]
    return next(iter([*kinds, *args.data]), None)


def _engine(args: Paper) -> Any:
    from vitascope.studies.grid.executor import Engine
    from vitascope.studies.grid.one_training import pairs

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processes = args.processes if args.processes is not None else cores or 1
    return Engine(
        kind=args.engine, processes=processes, gpus=args.gpus, nodes=args.nodes, hours=args.hours,
        options=pairs(args.slurm, "--slurm"), quiet=args.quiet or args.json)  # fmt: skip


def planned(study: Any, args: Paper) -> list[str]:
    """What a study would run: trainings, GPU-hours, memory, and the launch command."""
    from vitascope.studies.grid.runs import command as line
    from vitascope.studies.papers.answer import command
    from vitascope.studies.papers.budget import budget

    scale = scale_of(study, args)
    plan = study.plan(scale)
    cost = budget([plan], len(scale.seeds))
    images = scale.data if args.data else study.data.get(scale.name, study.data["laptop"])
    lines = [f"{study.name}: {cost.num_runs} runs of {len(plan.wanted())} trainings; {images}"]
    if scale.is_paper:
        lines.append(f"  expected: {cost.gpu_hours:,.0f} A100-hours, {cost.largest_gb:.0f} GB a GPU"
                     " with 128 images on it (training alone; computed, not measured)")  # fmt: skip
        if cost.unknown:
            lines.append(f"  not counted: {', '.join(cost.unknown)}")
        extra = [f"--engine slurm --gpus {args.gpus} --nodes {args.nodes} --hours {args.hours:g}"]
        lines.append(f"  launch: {command(study.name, scale, extra)} --out {args.out}")
    launcher = _engine(args).launcher() if scale.is_paper else ""
    lines += [f"  {line(training, scale.seeds[0], args.out, None, launcher)}"
              for training, _ in plan.wanted().values()]  # fmt: skip
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
        rows.append({
            "name": study.name, "covers": list(study.covers), "title": study.title,
            "claim": study.claim, "data": dict(study.data),
            "time": {"smoke": "seconds", "laptop": took,
                     "paper": f"{hours:,.0f} A100-hour{'s' * (hours >= 1.5)}"},
        })  # fmt: skip
    return rows
