"""Questions about images in the layout of VQAv2, answered by a ViLT, measured by the VQA score.

Answering is classification over the answers that most people gave to at least 9 training questions
(3,129 of them in VQAv2; Kim et al. 2021), trained with the soft scores of all ten people's answers
as targets of a binary cross-entropy, summed over the answers. The context-broadcasting paper names
VQAv2 in its supplement and gives neither network nor recipe there: the recipe ``vqa`` is ViLT's.

Words are those of the training questions, in lower case, with three signs before them (padding,
unknown, start). ViLT itself starts from weights learned on captions, with BERT's word pieces;
those weights need its own vocabulary and are not loaded here.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.capture import evaluating
from vitascope.data.random_streams import Purpose, stream
from vitascope.data.sources.vqa import Question, VQAFolder
from vitascope.errors import UserError
from vitascope.measure.vqa_score import mean_score, plain_answer, soft_targets
from vitascope.models.vilt import vilt
from vitascope.record import Record

LEAST = 9  # questions whose commonest answer it must be
LONGEST = 40  # words, ViLT's
PAD, UNKNOWN, START = 0, 1, 2

Batch = tuple[dict[str, Tensor], Tensor]  # inputs of the model, soft targets (B, K)


def words_of(text: str) -> list[str]:
    """A question's words.

    >>> words_of("What's on the table?")
    ["what's", 'on', 'the', 'table']
    """
    return re.findall(r"[a-z0-9']+", text.lower())


def common_answers(questions: Sequence[Question], least: int = LEAST) -> dict[str, int]:
    """Answer -> its number, of those that are the commonest of at least ``least`` questions."""
    counted: Counter[str] = Counter()
    for question in questions:
        given = Counter(map(plain_answer, question.answers))
        counted[min(given, key=lambda answer: (-given[answer], answer))] += 1
    common = sorted(answer for answer, count in counted.items() if answer and count >= least)
    return {answer: number for number, answer in enumerate(common)}


class VQA:
    """The task of choosing among the common answers."""

    name, metric, label = "vqa", "vqa_score", "VQA score"
    columns: tuple[str, ...] = ("vqa_score",)

    def __init__(
        self, root: str | Path, *, side: int, batch_size: int, seed: int = 0, num_workers: int = 0
    ) -> None:
        self.root, self.side, self.batch_size, self.seed = Path(root), side, batch_size, seed
        self.train, self.test = (VQAFolder(root, part, side=side) for part in ("train", "val"))
        self.answers = common_answers(self.train.questions)
        if len(self.answers) < 2:
            raise UserError(
                f"{root}: fewer than two answers are the commonest of {LEAST} training questions"
            )
        texts = [words_of(question.text) for question in self.train.questions]
        self.words = {w: i + 3 for i, w in enumerate(sorted({w for text in texts for w in text}))}
        self.longest = min(LONGEST, 1 + max(map(len, texts)))
        if batch_size > len(self.train):
            raise UserError(
                f"batches of {batch_size} from {len(self.train)} questions; give --set batch_size="
            )
        self.steps = len(self.train) // batch_size

    def config(self) -> dict[str, Any]:
        """Location and number of the questions, and the answers, for ``config.yaml``."""
        return {
            "name": f"vqa:{self.root}",
            "size": [3, self.side, self.side],
            "num_classes": len(self.answers),
            "classes": list(self.answers),
            "num_words": len(self.words) + 3,
            "longest_question": self.longest,
            "train_images": len(self.train),
            "test_images": len(self.test),
        }

    def inputs(self, folder: VQAFolder, questions: Sequence[Question]) -> dict[str, Tensor]:
        """Return the model's inputs: words (B, W) padded to the same length, and images."""
        tokens = torch.full((len(questions), self.longest), PAD)
        for row, question in zip(tokens, questions, strict=True):
            numbers = [self.words.get(word, UNKNOWN) for word in words_of(question.text)]
            numbers = [START, *numbers][: self.longest]
            row[: len(numbers)] = torch.tensor(numbers)
        return {
            "input_ids": tokens,
            "attention_mask": (tokens != PAD).long(),
            "token_type_ids": torch.zeros_like(tokens),
            "pixel_values": folder.images(questions),
            "pixel_mask": torch.ones(len(questions), self.side, self.side, dtype=torch.long),
        }

    def targets(self, questions: Sequence[Question]) -> Tensor:
        """Scores of all answers. (B, K)"""
        scores = torch.zeros(len(questions), len(self.answers))
        for row, question in zip(scores, questions, strict=True):
            for number, score in soft_targets(question.answers, self.answers).items():
                row[number] = score
        return scores

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """Yield shuffled, whole batches of an epoch."""
        order = stream(Purpose.ORDER, self.seed, epoch=epoch).permutation(len(self.train))
        for step in range(start, self.steps):
            rows = order[step * self.batch_size : (step + 1) * self.batch_size]
            chosen = [self.train.questions[i] for i in rows]
            yield self.inputs(self.train, chosen), self.targets(chosen)

    def loss(self, model: nn.Module, batch: Batch, device: torch.device) -> Tensor:
        """Binary cross-entropy summed over the answers, mean over the questions."""
        inputs, targets = batch
        logits = model(**{name: value.to(device) for name, value in inputs.items()}).logits
        scores = F.binary_cross_entropy_with_logits(logits, targets.to(device), reduction="none")
        return scores.sum(dim=1).mean()

    def said(self, model: nn.Module) -> list[str]:
        """The model's answer to every test question."""
        device, names = next(model.parameters()).device, list(self.answers)
        answers: list[str] = []
        questions = self.test.questions
        with evaluating(model):
            for first in range(0, len(questions), self.batch_size):
                inputs = self.inputs(self.test, questions[first : first + self.batch_size])
                logits = model(**{name: value.to(device) for name, value in inputs.items()}).logits
                answers += [names[i] for i in logits.argmax(dim=1).tolist()]
        return answers

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Return the mean score over the test questions."""
        given = [question.answers for question in self.test.questions]
        return {"vqa_score": mean_score(self.said(model), given)}

    def record(self, model: nn.Module) -> Record:
        """Return a record of the measurement with every answer."""
        answers = self.said(model)
        given = [question.answers for question in self.test.questions]
        values = {
            "vqa_score": mean_score(answers, given),
            "num_questions": len(answers),
            "classes": list(self.answers),
        }
        numbers = np.array([self.answers[answer] for answer in answers])
        return Record(kind="vqa", values=values, arrays={"answers": numbers})


def build_vilt(name: str, task: VQA, **changes: Any) -> nn.Module:
    """A ViLT for the words, answers and images of a task."""
    return vilt(
        name,
        num_answers=len(task.answers),
        num_words=len(task.words) + 3,
        longest=task.longest,
        side=task.side,
        **changes,
    )
