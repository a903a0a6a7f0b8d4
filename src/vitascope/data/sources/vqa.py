"""Questions about images with ten people's answers, in the layout of VQAv2.

    ROOT/*questions.json     {"questions": [{"question_id", "image_id", "question"}, ...]}
    ROOT/*annotations.json   {"annotations": [{"question_id", "answers": [{"answer"}, ...]}, ...]}
    ROOT/PART/               COCO_train2014_000000000042.jpg, or 42.jpg

for the parts ``train`` and ``val``: a file or folder belongs to the part that its name holds, as in
``v2_OpenEnded_mscoco_train2014_questions.json`` and ``train2014``. (Goyal et al. 2017,
https://visualqa.org: 443,757 questions to train on, 214,354 to validate.)

Images are brought to a square of ``side`` pixels; nothing is varied.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitascope.data.decoding import opened, upright
from vitascope.data.images import to_tensor
from vitascope.data.sources.folder import EXTENSIONS
from vitascope.errors import UserError, reason

MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)  # ViLT's


@dataclass(frozen=True)
class Question:
    """One question, its image and people's answers."""

    number: int
    text: str
    image: Path
    answers: tuple[str, ...]


class VQAFolder:
    """The questions of one part; ``folder.image(question)`` is a normalised tensor.

    Args:
        root: See above.
        part: ``train`` or ``val``.
        side: Pixels of the square that images are brought to.
    """

    def __init__(self, root: str | Path, part: str = "train", *, side: int = 384):
        self.root, self.part, self.side = Path(root), part, side
        asked = _items(self.root, part, "questions")
        annotations = {item["question_id"]: item for item in _items(self.root, part, "annotations")}
        images = _images(self.root, part)
        self.questions: list[Question] = []
        for item in asked:
            number = item["question_id"]
            if number not in annotations:
                raise UserError(f"question {number} of {part} has no annotation in {self.root}")
            image = images.get(int(item["image_id"]))
            if image is None:
                raise UserError(f"question {number}: no image {item['image_id']} in {self.root}")
            answers = tuple(str(answer["answer"]) for answer in annotations[number]["answers"])
            self.questions.append(Question(number, str(item["question"]), image, answers))
        if not self.questions:
            raise UserError(f"{self.root} has no question of part {part}")

    def __len__(self) -> int:
        return len(self.questions)

    def image(self, question: Question) -> Tensor:
        """Read the image of one question. (3, side, side)"""
        try:
            with opened(question.image) as file:
                image = upright(file).convert("RGB").resize((self.side, self.side))
        except (OSError, UserError) as error:
            raise UserError(f"{question.image} cannot be read: {error}") from error
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        return (to_tensor(image).float() / 255 - mean) / std

    def images(self, questions: Sequence[Question]) -> Tensor:
        """Read the images of several questions. (B, 3, side, side)"""
        return torch.stack([self.image(question) for question in questions])


def _items(root: Path, part: str, kind: str) -> list[dict[str, Any]]:
    """Read the one JSON file of a part and return its ``kind`` list."""
    if not root.is_dir():
        raise UserError(f"no folder at {root}")
    files = sorted(path for path in root.glob(f"*{kind}.json") if part in path.name)
    if len(files) != 1:
        names = ", ".join(path.name for path in files) or "none"
        raise UserError(f"{root} needs one *{part}*{kind}.json; there is {names}")
    try:
        items = json.loads(files[0].read_text(encoding="utf-8"))[kind]
        needed = {"question_id", "image_id", "question"} if kind == "questions" else {"answers"}
        wrong = [item for item in items if not needed <= item.keys()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{files[0]} is not VQA's {kind}: {reason(error)}") from None
    if wrong:
        raise UserError(f"{files[0]}: an item without {', '.join(sorted(needed))}")
    return items


def _images(root: Path, part: str) -> dict[int, Path]:
    """COCO's number of each image -> its file."""
    files = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and part in path.name):
        for path in folder.iterdir():
            number = path.stem.rpartition("_")[2]
            if path.suffix.lower() in EXTENSIONS and number.isdigit():
                files[int(number)] = path
    if not files:
        raise UserError(f"no images in a folder of {root} with {part!r} in its name")
    return files
