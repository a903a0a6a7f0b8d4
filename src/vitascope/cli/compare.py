"""``vitascope compare``: which model, with how much locality, for these images?"""

from collections.abc import Sequence

from vitascope.cli.options import parse, show
from vitascope.requests.compare import Compare


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope compare``, train and print."""
    request = parse(Compare, "vitascope compare", words)
    from vitascope.answers.compare import question_of, run_compare

    if request.print_commands and not request.pretrained:
        from vitascope.studies.comparison.compare import commands

        print("\n".join(commands(question_of(request), request.out)))
        return
    show(run_compare(request), as_json=request.json, quiet=request.quiet)
