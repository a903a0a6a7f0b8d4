"""Search of the site without a server: the index as a script instead of a file that is fetched.

A hook of MkDocs (``hooks`` in mkdocs.yml). Its search runs in a worker that fetches the index,
which browsers refuse to pages opened from disk. After the build the same search code is loaded by
script tags into the search page.
"""

from pathlib import Path
from typing import Any

WORKER = "if (!window.Worker) {\n  console.log("  # where MkDocs' main.js starts its worker
SCRIPTS = """\
function addScripts (names, then) {
  if (names.length === 0) { then(); return; }
  var script = document.createElement("script");
  script.src = joinUrl(base_url, "search/" + names[0]);
  script.onload = function () { addScripts(names.slice(1), then); };
  document.head.appendChild(script);
}

if (document.getElementById("mkdocs-search-query")) {
  window.Worker = undefined;  // doSearch then calls `search` of worker.js itself
  window.postMessage = function (message) { onWorkerMessage({data: message}); };
  addScripts(["lunr.js", "worker.js", "search_index.js"], function () { onScriptsLoaded(); });
}
"""


def without_worker(main: str) -> str:
    """MkDocs' main.js with scripts in place of its worker.

    >>> without_worker("a();\\n" + WORKER + "'no')}").startswith("a();\\nfunction addScripts")
    True
    """
    kept, found, _ = main.partition(WORKER)
    if not found:
        raise ValueError("MkDocs' search/main.js starts no worker as it used to: see this hook")
    return kept + SCRIPTS


def on_post_build(config: Any, **_: Any) -> None:
    """What MkDocs calls when the site is there."""
    folder = Path(config["site_dir"]) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"data = {index};\n", encoding="utf-8")
    main = folder / "main.js"
    main.write_text(without_worker(main.read_text(encoding="utf-8")), encoding="utf-8")
