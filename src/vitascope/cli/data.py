"""``vitascope data``: what these images are like."""

from collections.abc import Sequence

from vitascope.cli.options import parse, show
from vitascope.requests.data import DataRequest


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope data``, look and print."""
    request = parse(DataRequest, "vitascope data", words)
    from vitascope.answers.data import run_data

    show(run_data(request), as_json=request.json, quiet=request.quiet)
