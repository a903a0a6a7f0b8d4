"""The body of a staged residual network, declared by one word per stage.

A letter is a block: ``c`` of convolutions, ``a`` of windowed self-attention (see
:mod:`vitascope.models.resnet.blocks`). ``("ccc", "ccca", "cacaca", "caca")`` is the AlterNet-50 of
Park and Kim 2022 (https://arxiv.org/abs/2202.06709), and the build-up rule of their section 4.1
goes from one such declaration to the next. Every stage but the first halves the map in its first
block.
"""

from collections.abc import Sequence
from typing import Any

from timm.layers import calculate_drop_path_rates
from torch import nn

from vitascope.errors import UserError, unknown
from vitascope.layers.blur import BLURS
from vitascope.models.resnet.blocks import (
    BasicBlock,
    Bottleneck,
    MSABlock,
    PostActBasicBlock,
    PostActBottleneck,
    PostActMSABlock,
)

BLOCKS: dict[str, Any] = {"basic": BasicBlock, "bottleneck": Bottleneck}
ORDERS: dict[str, dict[str, Any]] = {  # of activation: blocks, "msa" that of attention
    "pre": {**BLOCKS, "msa": MSABlock},
    "post": {"basic": PostActBasicBlock, "bottleneck": PostActBottleneck, "msa": PostActMSABlock},
}


def stage_kinds(kinds: Sequence[str] | None, depths: Sequence[int]) -> tuple[str, ...]:
    """The stages as words, all convolution where none are given.

    >>> stage_kinds(None, (2, 3))
    ('cc', 'ccc')
    """
    listed = kinds is None or (isinstance(kinds, Sequence) and not isinstance(kinds, str))
    stages = (
        tuple("c" * n for n in depths) if kinds is None or not listed else tuple(map(str, kinds))
    )
    if not listed or [*map(len, stages)] != [*depths] or set("".join(stages)) - {"c", "a"}:
        example = ", ".join(repr("c" * (n - 1) + "a") for n in depths)
        raise UserError(
            f"kinds {kinds!r} do not fit stages of {tuple(depths)} blocks; give a word a stage of "
            f"the letters c (convolution) and a (attention), as ({example}), or other depths"
        )
    return stages


def are_sizes(given: Any, least: int = 1) -> bool:
    """Return whether these are whole numbers, one or more of them."""
    listed = isinstance(given, Sequence) and len(given) > 0
    return listed and all(isinstance(number, int) and number >= least for number in given)


def check_sizes(
    depths: Sequence[int], widths: Sequence[int], heads: Sequence[int] | None, block: str
) -> Sequence[int]:
    """The heads of each stage (3, 6, 12, ... as in the paper), when all sizes fit together."""
    if heads is None and are_sizes(depths):
        heads = [3 * 2**stage for stage in range(len(depths))]
    if not (
        are_sizes(depths) and are_sizes(widths) and heads is not None and are_sizes(heads)
    ) or not len(depths) == len(widths) == len(heads):
        raise UserError(
            f"depths {depths}, widths {widths}, heads {heads}: give one number for each stage"
        )
    if block not in BLOCKS:
        raise unknown("block", block, BLOCKS)
    quarter = BLOCKS[block].expansion
    if any(out % quarter for out in widths):
        raise UserError(f"widths {tuple(widths)} must be multiples of {quarter} for block={block}")
    return heads


def residual_stages(
    kinds: Sequence[str],
    widths: Sequence[int],
    heads: Sequence[int],
    *,
    block: str,
    drop_path_rate: float,
    order: str = "pre",
    blur: int = 1,
    blur_kind: str = "box",
    blur_stages: Sequence[int] | None = None,
    groups: int = 1,
    group_width: int = 64,
    **attention: Any,
) -> nn.ModuleList:
    """The stages, each a sequence of blocks.

    Args:
        kinds: As :func:`stage_kinds` gives them.
        widths: Channels that each stage puts out.
        heads: Heads of the attention blocks of each stage.
        block: Key of :data:`BLOCKS`, the convolution blocks.
        drop_path_rate: Of the last block, rising from 0 in the first.
        order: Key of :data:`ORDERS`: whether blocks activate before or after their convolutions.
        blur: Side of the box blur at the end of each stage; none at 1.
        blur_kind: Key of :data:`BLURS`.
        blur_stages: Numbers of the stages that end with it, from 1; all when left out.
        groups: Of the 3x3 convolutions of post-activation bottlenecks.
        group_width: Their channels, as :class:`PostActBottleneck` counts them.
        attention: ``head_dim``, ``window`` and ``bias_per_head`` of the attention blocks.
    """
    if blur_kind not in BLURS:
        raise unknown("blur_kind", blur_kind, BLURS)
    blurred = range(1, len(kinds) + 1) if blur_stages is None else blur_stages
    if not {*blurred} <= {*range(1, len(kinds) + 1)}:
        raise UserError(f"blur_stages {blur_stages}: there are stages 1 to {len(kinds)}")
    convolution, msa = ORDERS[order][block], ORDERS[order]["msa"]
    grouped = {} if groups == 1 else {"groups": groups, "group_width": group_width}
    rates: Any = iter(calculate_drop_path_rates(drop_path_rate, sum(map(len, kinds))))
    width = widths[0] // convolution.expansion  # of the stem
    stages = []
    for stage, (word, out, num_heads) in enumerate(zip(kinds, widths, heads, strict=True)):
        blocks: list[nn.Module] = []
        for index, kind in enumerate(word):
            shape = width, out, 2 if index == 0 and stage > 0 else 1, next(rates)
            if kind == "c":
                blocks.append(convolution(*shape, **grouped))
            else:
                inner = out // convolution.expansion
                blocks.append(msa(*shape, inner=inner, num_heads=num_heads, **attention))
            width = out
        if blur != 1 and stage + 1 in blurred:
            blocks.append(BLURS[blur_kind](blur))
        stages.append(nn.Sequential(*blocks))
    return nn.ModuleList(stages)
