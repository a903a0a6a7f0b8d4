"""``vitascope evaluate``: how good a model is on labelled images, also when they are changed."""

from collections.abc import Sequence

from vitascope.cli.options import parse, show
from vitascope.requests.evaluate import Evaluate


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope evaluate``, measure and print."""
    request = parse(Evaluate, "vitascope evaluate", words)
    from vitascope.answers.evaluate import run_evaluate

    show(run_evaluate(request), as_json=request.json, quiet=request.quiet)
