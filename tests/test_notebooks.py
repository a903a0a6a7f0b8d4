"""The notebooks run as they are, and show what they promise."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

BOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


QUICK = "convolution-to-attention"


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if p.stem == QUICK else pytest.mark.slow, id=p.stem) for p in BOOKS],
)
def test_a_notebook_runs_and_its_last_cell_shows_something(path, tmp_path):
    book = nbformat.read(path, as_version=4)
    assert not [cell for cell in book.cells if cell.get("outputs")]  # kept without outputs
    NotebookClient(book, timeout=800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    last = [output for output in book.cells[-1].outputs if output.output_type == "execute_result"]
    assert {"text/html", "image/png"} & set(last[0].data)


def test_there_are_the_three_notebooks():
    names = [path.stem for path in BOOKS]
    assert names == ["compare", "convolution-to-attention", "instruments"]
