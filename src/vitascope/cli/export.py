"""``vitascope export``: a trained run as a file for other programs."""

from collections.abc import Sequence

from vitascope.cli.options import parse, show
from vitascope.requests.export import Export


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope export``, write and print where."""
    request = parse(Export, "vitascope export", words)
    from vitascope.answers.export import run_export

    show(run_export(request), as_json=request.json, quiet=request.quiet)
