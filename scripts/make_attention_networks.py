"""Write docs/attention-networks.md: what is measured on networks that nobody chose by hand.

    .venv/bin/python scripts/make_attention_networks.py docs/attention-networks.md

Examines every network of ``attention_networks.py`` (five to ten minutes on one core) and
stops with the list of broken identities, if there are any, before it writes.
"""

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from time import process_time

from attention_networks import Findings, all_networks, examine

HEAD = """# Attention networks

What Vitascope sees on networks that nobody chose by hand: a small model with attention of every
timm file that computes attention, torchvision's, and Hugging Face's image models, all with
random weights. Of every network these hold: the output has the same bits while maps are recorded,
rows of a map sum to one, heads and windows are the layer's own and do not depend on what else is in
the batch, the network itself multiplies its values by the map, tokens have the image coordinates at
which changed pixels change them, CKA of a layer with itself is one, and the network without a unit
that adds nothing is the network as it is. `scripts/make_attention_networks.py` checks this and
writes the table; `make slow` checks it too.

*Layers* are the attention computations of one forward pass. *Distance* counts those whose
nonlocality is measured; *left out* gives the reason for the others.

| Network | Image | Layers | Distance | Left out, and what is particular |
|---|---|---|---|---|
"""


def some(names: Iterable[str]) -> str:
    """The first of some layers, and how many there are."""
    first, *rest = names
    return f"`{first}`" + (f" and {len(rest)} more" if rest else "")


def row(found: Findings) -> str:
    """One line of the table."""
    reasons: dict[str, list[str]] = {}
    left_out = found.refused.get("capture") or found.refused.get("nonlocality") or {}
    for layer, why in left_out.items():
        reasons.setdefault(why, []).append(layer)
    lines = [f"{some(names)}: {why}" if any(names) else why for why, names in reasons.items()]
    lines += [f"{some(names)}: {note}" for note, names in found.notes.items()]
    lines += [f"no {name}: {why['']}" for name, why in found.refused.items()
              if "" in why and name not in ("capture", "nonlocality")]  # fmt: skip
    side = found.network.size[-1]
    measured = len(found.measured.get("nonlocality", ()))
    text = "; ".join(lines).replace("|", "\\|")
    return f"| {found.network.name} | {side} | {len(found.layers)} | {measured} | {text} |\n"


def main() -> None:
    """Examine every network and write the page that the command line names."""
    warnings.simplefilter("ignore")
    rows, problems, begun = [], [], process_time()
    for network in all_networks():
        found = examine(network)
        rows.append(row(found))
        problems += [f"{network.name}: {problem}" for problem in found.problems]
        print(f"{process_time() - begun:.0f} s", rows[-1].strip(), *found.problems[:3], flush=True)
    if problems:
        sys.exit("\n".join(problems))
    Path(sys.argv[1]).write_text(HEAD + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
