"""Write docs/attention-networks.md: what is measured on networks that nobody chose by hand.

    .venv/bin/python scripts/make_attention_networks.py docs/attention-networks.md

Examines every network of ``attention_networks.py`` (eight minutes on one core) and
stops with the list of broken identities, if there are any, before it writes.
"""

import re
import sys
import warnings
from pathlib import Path
from time import process_time

from attention_networks import Findings, all_networks, examine

HEAD = """# Attention networks

What Vitascope captures and measures on networks that were not chosen by hand: a small model with
attention from every timm file that computes attention, torchvision's, and Hugging Face's image
models. All have random weights. For every network these are checked:

- the output has the same bits while maps are recorded, and rows of a map sum to one;
- heads and windows are the layer's own and do not depend on what else is in the batch;
- the network itself multiplies its values by the map;
- tokens have the image coordinates at which changed pixels change them;
- a grating in the image has its frequency in the Fourier spectrum of the first unit;
- CKA of a layer with itself is one, and leaving out a unit that adds nothing changes nothing;
- each reason in the last column is confirmed by an experiment: no row of the map follows the
  pixels that change, the map is as large for half the tokens, or another seed gives other
  features.

`scripts/make_attention_networks.py` checks this and writes the table, in {minutes} minutes on one
core. `make slow` checks it, too.

*Layers* are the attention computations of one forward pass. *Distance* counts those whose
[nonlocality](instruments/nonlocality.md) is measured. The last column says why the others have
none, and why units are left out of [Fourier](instruments/fourier.md),
[variance](instruments/variance.md), [norms](instruments/norms.md) and [CKA](instruments/cka.md);
"features" means the first three. Units that give one vector per image, as every head does, are
not listed.

| Network | Pixels | Layers | Distance | Left out, and what is particular |
|---|---|---|---|---|
"""
PLAIN = ("one vector an image", "a single place is left")  # of every head


def short(name: str) -> str:
    """A layer's name; of a long one the first and the last two parts.

    >>> short("encoder.layer.2.transformer.layer.0.attention.attention")
    'encoder … attention.attention'
    """
    parts = name.split(".")
    return name if len(name) <= 32 else f"{parts[0]} … {'.'.join(parts[-2:])}"


def row(found: Findings) -> str:
    """One line of the table: each reason once, with the number of layers and the first of them."""
    units: dict[tuple[str, str], set[str]] = {}
    for instrument, left_out in found.refused.items():
        for unit, why in left_out.items():
            if why not in PLAIN:
                units.setdefault((unit, why), set()).add(instrument)
    units |= {(unit, note): {""} for note, names in found.notes.items() for unit in names}
    reasons: dict[tuple[str, str], list[str]] = {}
    for (unit, why), instruments in units.items():
        why = why.partition(";")[0].partition(": nothing ran")[0]
        why = re.sub(r"\d+ rows for \d+ images", "a row for each window", why)
        seen = instruments - {"capture", "nonlocality"}
        title = "features" if len(seen) > 1 else "".join(seen)
        reasons.setdefault((title, why), []).append(unit)
    lines = []
    for (title, why), (first, *rest) in reasons.items():
        more = f" and {len(rest)} more" if rest else ""
        layers = f" (`{short(first)}`{more})" if first else ""
        lines.append(f"{title}: {why}{layers}".removeprefix(": "))
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
    head = HEAD.format(minutes=round((process_time() - begun) / 60))
    Path(sys.argv[1]).write_text(head + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
