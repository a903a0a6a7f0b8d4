"""What ``vitascope report`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vitascope.requests import fields

__all__ = ["Report"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make one page of runs, evaluations, inspections, comparisons and studies: the answer first.

    The page is a single file that makes no network requests: figures with a sentence under each,
    tables, definitions and the commands to reproduce it all. Several models are drawn together.

    Examples:
      vitascope report runs/compare
      vitascope report runs/vit runs/convit --out report --title "ViT and ConViT on my photos"
      vitascope report inside/vit inside/convit --formats pdf svg --tables tex csv --out paper
      vitascope report --serve runs/convit
    """

    paths: Annotated[tuple[str, ...], Positional, arg(metavar="PATH [PATH ...]")]
    """Folders or records: runs, evaluations, inspections, comparisons, studies, explorers."""
    out: Path | None = None
    """Folder for report.html, figures/ and tables/; the path's own, or report for several. A name
    that ends in .html is the page's."""
    title: str | None = None
    """A title for the page."""
    formats: tuple[Literal["png", "svg", "pdf"], ...] = ()
    """Also write every figure, for a paper."""
    tables: tuple[Literal["md", "tex", "csv"], ...] = ()
    """Also write every table."""
    serve: bool = False
    """Serve the explorer on this machine, for images of your own; ends with Ctrl-C."""
    data: str | None = None
    """Images that --serve shows at first; needed for a model given by name, a run has its own."""
    port: int = 8000
    """Port of --serve; 0 takes a free one."""
    json: fields.Json = False
    quiet: bool = False
    """Print nothing but errors."""
