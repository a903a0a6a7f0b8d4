"""``vitascope study``: reproduce the papers' tables and figures, or search on one's own images."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from vitascope.cli.options import parse
from vitascope.cli.study_search import STUDIES
from vitascope.errors import UserError


def usage() -> str:
    """What ``vitascope study --help`` prints."""
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
    return [f"  {name:<10} {kind.__doc__.splitlines()[0]}" for name, (kind, _) in STUDIES.items()]


def list_all(as_json: bool) -> str:
    """The papers' studies, and the others."""
    from vitascope.cli.study_paper import listed

    rows = listed()
    if as_json:
        return json.dumps(rows)
    lines = []
    for row in rows:
        time = row["time"]
        lines += [
            f"{row['name']}: {row['title']}",
            f"  covers  {', '.join(row['covers'])}",
            f"  claim   {row['claim']}",
            f"  laptop  {row['data']['laptop']}; about {time['laptop']} on two cores",
            f"  desk    {row['data']['desk']}; {time['desk']} (--plan says how many)",
            f"  paper   {row['data']['paper']}; about {time['paper']}",
        ]
    return "\n".join([*lines, "", "With options of their own:", *searches()])


def understand(words: Sequence[str]) -> tuple[Any, Callable[[Any], None]]:
    """The options of the study that ``words`` name, and what answers it."""
    if "--all" in words:
        words = ["--all", *(word for word in words if word != "--all")]
    name, *rest = words
    if name == "--list":
        if set(rest) - {"--json"}:
            raise UserError(f"--list takes --json alone, not {' '.join(rest)}")
        return "--json" in rest, lambda as_json: print(list_all(as_json))
    if name in STUDIES:
        kind, answer = STUDIES[name]
        return parse(kind, f"vitascope study {name}", rest), answer
    from vitascope.cli.study_paper import run_paper
    from vitascope.cli.study_paper import understand as paper

    studies, args = paper(name, rest, tuple(STUDIES))
    return args, lambda options: run_paper(studies, options)


def run(words: Sequence[str]) -> None:
    """Run the study that the words after ``vitascope study`` name."""
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        raise SystemExit(0 if words else 2)
    args, answer = understand(words)
    answer(args)
