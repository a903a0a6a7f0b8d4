"""The table of imports in docs/architecture.md, from the code; `make docs` runs it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vitascope"
PAGE = ROOT / "docs" / "architecture.md"
ANYWHERE = {
    "errors",
    "settings",
    "option_types",
    "atomic",
    "hub_access",
    "reliability",
    "processes",
    "progress",
    "threads",
}  # every package may import these
BEGIN, END = "| package | imports |\n|---|---|\n", "\n\n"


def package_of(path: Path) -> str:
    """The package, or the module beside the packages, that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """The packages of ours that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [node.module]
            if node.module == "vitascope":
                names = [f"vitascope.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("vitascope.")}
    return found


def package_imports() -> dict[str, set[str]]:
    """Each package with the packages that its files import, besides itself."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        package = package_of(path)
        if package not in ("__init__", "__main__"):
            found.setdefault(package, set()).update(imports_of(path) - {package, "__version__"})
    return found


def table() -> str:
    """The packages from the bottom up: each imports only what stands above it."""
    packages = {
        package: sorted(others - ANYWHERE)
        for package, others in package_imports().items()
        if package not in ANYWHERE and not package.startswith("_")
    }
    rows = []
    for package in TopologicalSorter(dict(sorted(packages.items()))).static_order():
        others = ", ".join(f"`{other}`" for other in packages[package])
        rows.append(f"| `{package}` | {others} |")
    return BEGIN + "\n".join(rows) + END


def page(text: str) -> str:
    """The page with today's table in place of the one it has."""
    start = text.index(BEGIN)
    end = text.index(END, start + len(BEGIN)) + len(END)
    return text[:start] + table() + text[end:]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
