"""AlterNet: a pre-activation ResNet whose stages end in self-attention.

Park and Kim 2022 (https://arxiv.org/abs/2202.06709, section 4.1, Fig. 11, App. E). Convolutions
raise high frequencies and attention lowers them, so blocks of the two take turns, and attention
closes the stages. A stage of n blocks with m of attention is

    [convolution] x (n - 2 m) + [convolution, attention] x m

AlterNet-50 has n = (3, 4, 6, 4) and m = (0, 1, 3, 2): one block more in the last stage than
ResNet-50, "to make the number of blocks even". Parameters are those of the released definition, to
the number: 35,915,038 at depth 50 with 1000 classes. One table of position biases serves all heads
of a block there; Swin, which the paper names as its source, has one for each
(``bias_per_head=True``).
"""

from collections.abc import Sequence
from typing import Any

from vitascope.errors import UserError
from vitascope.models.resnet.resnet import PreActResNet
from vitascope.models.resnet.stages import are_sizes


def alternate(depth: int, num_msa: int) -> str:
    """Blocks of a stage, one letter each: see :mod:`vitascope.models.resnet.stages`.

    >>> alternate(6, 2)
    'cccaca'
    """
    if not 0 <= 2 * num_msa <= depth:
        raise UserError(
            f"{num_msa} attention blocks cannot take turns in {depth} blocks; at most {depth // 2}"
        )
    return "c" * (depth - 2 * num_msa) + "ca" * num_msa


class AlterNet(PreActResNet):
    """A pre-activation ResNet with attention at the ends of its stages.

    Args:
        depths: Blocks of each stage.
        num_msa: How many of them are attention.
        kinds: The stages as words, instead of ``num_msa``.
        kwargs: As for :class:`PreActResNet`.

    >>> AlterNet(depths=(2, 2, 4), num_msa=(0, 1, 1)).kinds
    ('cc', 'ca', 'ccca')
    """

    def __init__(
        self,
        *,
        depths: Sequence[int] = (2, 2, 2),
        num_msa: Sequence[int] = (0, 1, 1),
        kinds: Sequence[str] | None = None,
        **kwargs: Any,
    ):
        if kinds is None and are_sizes(depths):
            if not are_sizes(num_msa, least=0) or len(num_msa) != len(depths):
                raise UserError(
                    f"num_msa {num_msa}: give one number for each of {len(depths)} stages"
                )
            kinds = [alternate(n, m) for n, m in zip(depths, num_msa, strict=True)]
        super().__init__(depths=depths, kinds=kinds, **kwargs)
