"""``vitascope inspect``: look inside any model."""

from collections.abc import Sequence

from vitascope.cli.options import parse, show
from vitascope.requests.inspect import Inspect


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope inspect``, measure and print."""
    request = parse(Inspect, "vitascope inspect", words)
    from vitascope.answers.inspect import run_inspect

    show(run_inspect(request), as_json=request.json, quiet=request.quiet)
