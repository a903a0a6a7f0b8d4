"""ViLT from a configuration: one transformer over words and patches, for questions about images.

Kim et al. 2021, https://arxiv.org/abs/2102.03334; the network is Hugging Face's
``ViltForQuestionAnswering``. Context broadcasting goes into its MLPs by the usual suffix
(``vilt_base+cb``): the mean then runs over all tokens, words and patches together, and over the
places that pad a short question too, of which every question has the same total number.

Shapes: B questions, W words, K answers.
"""

from typing import Any

from torch import nn

from vitascope.errors import UserError, unknown
from vitascope.layers.context_broadcasting.broadcasting import broadcast
from vitascope.models.suffix import read_name

SIZES: dict[str, dict[str, int]] = {
    "vilt_base": {  # ViLT-B/32
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "patch_size": 32,
    },
    "vilt_micro": {  # ours, for tests
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "patch_size": 8,
    },
}


def vilt(
    name: str, *, num_answers: int, num_words: int, longest: int, side: int, **changes: Any
) -> nn.Module:
    """A ViLT with random weights.

    Args:
        name: ``vilt_base`` or ``vilt_micro``, with or without a suffix.
        num_answers: K.
        num_words: Size of the vocabulary.
        longest: W, to which questions are padded.
        side: Of the images.
        changes: Fields of ``ViltConfig``.
    """
    size, locality, suffix, patch = read_name(name)
    if size not in SIZES:
        raise unknown("vision-language model", size, SIZES)
    if locality or patch is not None:
        raise UserError(
            f"{name}: a ViLT takes +cb, +cb_s, +cb_gate or +cb_hybrid and no other suffix"
        )
    try:
        from transformers import ViltConfig, ViltForQuestionAnswering
    except ImportError:
        raise UserError("ViLT needs transformers: pip install 'vitascope[hub]'") from None
    try:
        config = ViltConfig(
            **{
                **SIZES[size],
                "vocab_size": num_words,
                "max_position_embeddings": longest,
                "image_size": side,
                "num_labels": num_answers,
                "max_image_length": -1,  # all patches
                **changes,
            }
        )
        model: nn.Module = ViltForQuestionAnswering(config)
    except (TypeError, ValueError) as error:
        raise UserError(f"cannot build {name}: {error}") from None
    return broadcast(model, **suffix) if suffix else model
