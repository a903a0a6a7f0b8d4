"""``vitascope predict``: what is on these images?"""

from collections.abc import Sequence

from vitascope.cli.options import parse, show
from vitascope.requests.predict import Predict


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope predict``, classify and print or write."""
    request = parse(Predict, "vitascope predict", words)
    from vitascope.answers.predict import run_predict

    show(run_predict(request), as_json=request.json, quiet=request.quiet)
