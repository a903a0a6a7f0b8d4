"""The API reference, docs/api/*.md, from the docstrings; docs/conf.py runs it in each build.

Griffe reads the source without running it and splits Google-style docstrings; this file only says
what is listed and how it looks. One page per public package: a section for each module that its
public names live in, with the module's docstring, those names and what they return, and a line for
whatever else is in its ``__all__``. `commands.md` has the help of every command. Packages that only
the commands use (comparison, report, ...) are not part of the reference.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe
import make_recipes

ROOT = Path(__file__).parents[1]
PAGES = {  # file -> what is on it, in reading order
    "python": "commands.python",
    "loading": "loading",
    "models": "models",
    "layers": "layers",
    "capture": "capture",
    "measure": "measure",
    "data": "data",
    "training": "training",
    "inspection": "inspection.attention_watch",
    "deploy": "deploy",
    "overlay": "overlay",
    "stats": "stats",
    "record": "record",
    "figure": "figure",
    "errors": "errors",
}
SHORT = {word: word.upper() for word in ("cka", "fgsm", "gpsa", "pgd", "psa", "vqa")}

_ROLE = re.compile(r":(?:func|class|mod|meth|attr|data|obj):`~?([^`]+)`")
_ROOMS = re.compile(r"^Rooms:.*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)  # for readers of the code
_DOCTEST = re.compile(r"(?:^>>>.*\n?(?:^(?!>>>)\S.*\n?|^\.\.\..*\n?)*\n*)+", re.MULTILINE)


def markdown(text: str) -> str:
    """A docstring's running text as Markdown: roles and double backquotes, examples fenced.

    >>> markdown("See :func:`maps` and ``x``.")
    'See `maps` and `x`.'
    """
    text = _ROLE.sub(r"`\1`", _ROOMS.sub("", text))
    text = _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n\n", text)
    return re.sub(r"``([^`\n]+)``", r"`\1`", text).strip()


def signature(function: griffe.Function | griffe.Class, name: str) -> str:
    """The call as written in Python, one argument a line where it is long."""
    parameters = [p for p in function.parameters if p.name not in ("self", "cls")]
    words, starred = [], False
    for parameter in parameters:
        kind = parameter.kind
        if kind is griffe.ParameterKind.keyword_only and not starred:
            words.append("*")
        starred |= kind in (
            griffe.ParameterKind.keyword_only,
            griffe.ParameterKind.var_positional,
        )
        stars = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }.get(kind, "")
        word = stars + parameter.name
        if parameter.annotation is not None:
            word += f": {parameter.annotation}"
        if parameter.default is not None and not stars:
            word += (" = " if parameter.annotation is not None else "=") + str(parameter.default)
        words.append(word)
    returns = getattr(function, "returns", None)
    tail = f" -> {returns}" if returns is not None and function.is_function else ""
    line = f"{name}({', '.join(words)}){tail}"
    if len(line) <= 88:
        return line
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){tail}"


def sections(thing: griffe.Object) -> Iterator[str]:
    """The docstring's parts as Markdown blocks."""
    if thing.docstring is None:
        return
    for part in thing.docstring.parse("google", warnings=False):
        if part.kind is griffe.DocstringSectionKind.text:
            yield markdown(part.value)
        elif part.kind is griffe.DocstringSectionKind.examples:
            yield markdown("\n\n".join(text for _, text in part.value))
        elif isinstance(part.value, list):
            title = {"parameters": "Arguments"}.get(part.kind.value, part.kind.value.capitalize())
            yield f"*{title}*\n\n" + "\n".join(_item(item) for item in part.value)
        else:  # a note or another titled paragraph
            yield f"*{part.title or part.kind.value.capitalize()}* " + markdown(
                getattr(part.value, "contents", str(part.value))
            )


def _item(item: griffe.DocstringElement) -> str:
    name = getattr(item, "name", "") or (str(item.annotation) if item.annotation else "")
    said = " ".join(markdown(item.description).split())
    return f"- `{name}`: {said}" if name else f"- {said}"


def entry(thing: griffe.Object, depth: int = 3, of: str = "") -> Iterator[str]:
    """One name: heading, call, docstring; a class also its fields and methods.

    Args:
        thing: What to show.
        depth: Of the heading.
        of: What is written before the name in a call, `measure.` for one.
    """
    yield f"{'#' * depth} `{thing.name}`"
    if thing.is_attribute:
        value = str(thing.value or "")  # type: ignore[attr-defined]
        yield f"```python\n{thing.name} = {value if len(value) < 80 else '...'}\n```"
    elif isinstance(thing, griffe.Class | griffe.Function):
        yield f"```python\n{signature(thing, of + thing.name)}\n```"
    yield from sections(thing)
    if not isinstance(thing, griffe.Class):
        return
    fields = [m for m in thing.members.values() if m.is_attribute and _public(m)]
    lines = [f"- `{m.name}`: {' '.join(markdown(m.docstring.value).split())}" for m in fields]
    if lines:
        yield "\n".join(lines)
    for member in thing.members.values():
        if isinstance(member, griffe.Function) and _public(member):
            yield f"{'#' * (depth + 1)} `{thing.name}.{member.name}`"
            yield f"```python\n{signature(member, member.name)}\n```"
            yield from sections(member)


def _public(member: griffe.Object | griffe.Alias) -> bool:
    return not member.is_alias and not member.name.startswith("_") and bool(member.docstring)


def names(module: griffe.Module) -> list[str]:
    """What is public: ``__all__``, or what a module defines, or imports to be found there."""
    if module.exports:
        return [str(name).strip("'\"") for name in module.exports]
    return sorted(
        name
        for name, member in module.members.items()
        if _found_there(member)
        or (not member.is_alias and (member.is_function or member.is_class) and name[0] != "_")
    )


def _found_there(member: griffe.Object | griffe.Alias) -> bool:
    """Whether it was imported from elsewhere in the package, perhaps from a file of its name."""
    if isinstance(member, griffe.Alias):
        return member.target_path.startswith("vitascope.")
    return isinstance(member, griffe.Module) and member.name in member.members


def homes(package: griffe.Module) -> list[griffe.Module]:
    """The modules that a package's public names live in, its own first."""
    found = {}
    for name in names(package):
        target = ours(package[name])
        if target is None:
            continue
        module = target if target.is_module else target.module
        found[module.path] = module
    return [found[path] for path in sorted(found, key=lambda path: (path != package.path, path))]


def ours(thing: griffe.Object | griffe.Alias) -> griffe.Object | None:
    """What a name stands for; nothing where another library made it."""
    try:
        return thing.final_target if isinstance(thing, griffe.Alias) else thing
    except griffe.AliasResolutionError:
        return None


def page(package: griffe.Module) -> str:
    """The page of a package or of a public module beside them."""
    blocks = [f"# `{package.path}`", *sections(package)]
    theirs = [name for name in names(package) if ours(package[name]) is None]
    blocks += [f"`{name}` is `{package[name].target_path}`." for name in theirs]
    public, modules = set(names(package)), homes(package)
    functions = {name for module in modules for name in names(module)}
    for module in modules:
        listed = [module[name] for name in names(module) if name in module.members]
        listed = [thing for thing in listed if not thing.is_alias]
        if module is package:
            blocks += [block for thing in listed for block in entry(thing, depth=2)]
            continue
        if not listed and module.name in functions:  # a folder that a function is named like
            continue
        blocks += [f"## {title(module)}", f"Module `{module.path}`.", *sections(module)]
        shown = _with_returned([thing for thing in listed if thing.name in public], listed)
        for thing in sorted(shown, key=lambda thing: thing.is_class):  # first what is called
            blocks += entry(thing, of=f"{package.name}." if thing.name in public else "")
        more = [f"- `{t.name}`: {_line(t)}" for t in listed if t not in shown and t.docstring]
        if more:
            blocks += ["Also in this module:", "\n".join(more)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def title(module: griffe.Module) -> str:
    """The name of a module as a heading: `residual_stream` is Residual stream, `cka` is CKA."""
    words = [SHORT.get(word, word) for word in module.name.split("_")]
    return " ".join([words[0][0].upper() + words[0][1:], *words[1:]])


def _with_returned(shown: list[griffe.Object], listed: list[griffe.Object]) -> list[griffe.Object]:
    """Also the classes of the module that its public functions return, in the module's order."""
    returned = " ".join(str(getattr(thing, "returns", "")) for thing in shown)
    words = set(re.findall(r"\w+", returned))
    return [t for t in listed if t in shown or (t.is_class and t.name in words)]


def commands() -> str:
    """The help of every command, as the terminal shows it."""
    from vitascope.commands import COMMANDS

    blocks = ["# Commands", "What `vitascope COMMAND --help` prints."]
    for name in [*COMMANDS, "study convit-table-2", "study buildup", "study spectra"]:
        words = [sys.executable, "-m", "vitascope", *name.split(), "--help"]
        env = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
        text = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
        blocks += [f"## {name}", f"```text\n{text}\n```"]
    return "\n\n".join(blocks) + "\n"


def pages() -> dict[str, str]:
    """File name -> text of the reference made from docstrings."""
    top = griffe.load("vitascope", search_paths=[ROOT / "src"], resolve_aliases=True)
    made = {f"{file}.md": page(top[name]) for file, name in PAGES.items()}
    rows = [f"| [`vitascope.{n}`]({file}.md) | {_line(top[n])} |" for file, n in PAGES.items()]
    short = [f"- `vitascope.{name}`: {_home(top[name])}" for name in names(top)]
    made["README.md"] = "\n".join(
        [
            "# Python and command reference",
            "",
            "The options of every command: [commands](commands.md). In Python:",
            "",
            "| package | what it has |",
            "|---|---|",
            *rows,
            "",
            "Names of `vitascope` itself:",
            "",
            *short,
            "",
            "```{toctree}",
            ":hidden:",
            "",
            "commands",
            *PAGES,
            "```",
            "",
        ]
    )
    return made


def _line(thing: griffe.Object) -> str:
    said = thing.docstring.value.splitlines()[0] if thing.docstring else ""
    return markdown(said).rstrip(".")


def _home(thing: griffe.Object | griffe.Alias) -> str:
    target = ours(thing)
    assert target is not None, f"{thing.path} is not ours"
    file = "python" if ".commands.python" in target.path else target.path.split(".")[1]
    assert file in PAGES, f"{target.path} is public, but {file} has no page"
    return f"{_line(target)} ([{file}]({file}.md))"


def main(folder: Path) -> None:
    """Write the pages and remove those of packages that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {**pages(), "commands.md": commands(), "recipes.md": make_recipes.page()}
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "api")
