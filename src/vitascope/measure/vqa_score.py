"""VQA accuracy: the score of an answer by how many of ten people gave the same.

    score(a) = mean over the ten sets of nine of the answers of min(matches of a in the set / 3, 1)

(Antol et al. 2015, https://arxiv.org/abs/1505.00468; VQAv2, Goyal et al. 2017.) Leaving each person
out in turn makes people's own answers comparable with a machine's. With n of ten matches it is
0, 0.3, 0.6, 0.9 for n = 0 to 3 and 1 from 4 on; with other numbers of answers the same rule holds.

Answers are normalised first: lower case, no articles, number words as digits, no punctuation (a
full stop or comma inside a number as in the official evaluation). The official list of contractions
inserts apostrophes ("dont" becomes "don't"); here they are removed on both sides, which matches the
same pairs.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

__all__ = ["mean_score", "plain_answer", "soft_targets", "vqa_score"]

_DIGITS = {
    word: str(number)
    for number, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    )
} | {"none": "0"}
_ARTICLES = {"a", "an", "the"}
_OUT = re.compile(r"[;/\[\]\"{}()=+\\_\-><@`?!]")
_THOUSANDS = re.compile(r"(\d),(\d)")
_STOP = re.compile(r"(?<!\d)\.|\.(?!\d)")


def plain_answer(text: str) -> str:
    """An answer as it is compared.

    >>> plain_answer("The Two dogs."), plain_answer("1,000"), plain_answer("it's 2.5")
    ('2 dogs', '1000', 'its 2.5')
    >>> plain_answer("black/white"), plain_answer("don't") == plain_answer("dont")
    ('black white', True)
    """
    text = text.lower().replace("\n", " ").replace("\t", " ").strip()
    text = _THOUSANDS.sub(r"\1\2", text).replace("'", "")
    text = _STOP.sub("", _OUT.sub(" ", text)).replace(",", " ")
    spelled = [_DIGITS.get(word, word) for word in text.split()]
    return " ".join(word for word in spelled if word not in _ARTICLES)


def vqa_score(answer: str, given: Sequence[str]) -> float:
    """The score of one answer, 0 to 1.

    Args:
        answer: The machine's.
        given: What people said, ten of them in VQAv2.

    >>> people = ["cat"] * 2 + ["dog"] * 8
    >>> vqa_score("cat", people), vqa_score("Dog.", people), vqa_score("cow", people)
    (0.6, 1.0, 0.0)
    """
    return _score(Counter(map(plain_answer, given))[plain_answer(answer)], len(given))


def _score(matches: int, people: int) -> float:
    """Return the score of ``matches`` among ``people``: the mean over leaving each of them out.

    >>> [round(_score(n, 10), 2) for n in range(6)]
    [0.0, 0.3, 0.6, 0.9, 1.0, 1.0]
    """
    if people < 2:
        return float(min(matches, 1))
    without = matches * min(max(matches - 1, 0) / 3, 1.0)
    return round((without + (people - matches) * min(matches / 3, 1.0)) / people, 12)


def soft_targets(given: Sequence[str], answers: Mapping[str, int]) -> dict[int, float]:
    """Number of a known answer -> its score: what a classifier over answers is trained on.

    >>> soft_targets(["cat"] * 3 + ["dog"] * 7, {"cat": 0, "cow": 1})
    {0: 0.9}
    """
    counted = Counter(map(plain_answer, given))
    return {
        answers[answer]: _score(matches, len(given))
        for answer, matches in counted.items()
        if answer in answers
    }


def mean_score(answers: Sequence[str], given: Sequence[Sequence[str]]) -> float:
    """Return the mean score over all questions."""
    scores = [vqa_score(answer, people) for answer, people in zip(answers, given, strict=True)]
    return sum(scores) / len(scores)
