"""Registers at test time: move outlier patches of a trained ViT into a token of their own.

Large vision transformers turn a few patches into "artifacts" of high norm (see `norms`), which
spoil attention maps and dense features. Darcet et al. 2024 train the network again with register
tokens. Jiang et al. 2025 (https://arxiv.org/abs/2506.08010) need no training:

1. Find the first block after which patches are high, and in the MLPs up to it the hidden neurons
   that are active on those patches: the register neurons (:func:`register_neurons`).
2. Append a token of zeros. In it each of these neurons takes the largest activation it has on any
   token; on all other tokens it is 0 (:func:`test_time_registers`).

Deviations: neurons are ranked by how much more active they are on high patches than on the others
(the paper: by their activation on high patches alone), so that neurons which are active everywhere
stay where they are. A patch is high above three times the median of its image (the paper sets a
threshold for each model).

Shapes: B images, T tokens, H hidden neurons of an MLP.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.threads import exclusive_access, only_this_thread
from vitascope.errors import UserError
from vitascope.measure.features.norms import RARE, high_norm
from vitascope.measure.streaming.batches import images_in
from vitascope.settings import checked

__all__ = ["Neuron", "RegisterNeurons", "register_neurons", "test_time_registers"]


@dataclass(frozen=True)
class Neuron:
    """A hidden neuron of an MLP, with its mean activation on high and on other patches."""

    block: int
    index: int
    on_high: float
    elsewhere: float


@dataclass(frozen=True)
class RegisterNeurons:
    """Outlier patches of a ViT, and the neurons behind them, the most telling first."""

    block: int  # the first after which patches are high
    share: float  # of patches that are high after it
    norm: float  # mean norm of high patches
    median: float  # median norm of all patches
    neurons: tuple[Neuron, ...]


@checked
def register_neurons(
    model: nn.Module, batches: Iterable[Any], *, count: int = 10
) -> RegisterNeurons:
    """Find patches of high norm, and the neurons that make them.

    Args:
        model: A vision transformer of timm, or one with the same ``blocks``; left unchanged.
        batches: Images (B, C, height, width) or (images, labels), kept in memory: two passes.
        count: Neurons to find.

    Raises:
        UserError: If the model has no such blocks, or no patch of high norm.
    """
    blocks, prefix = _blocks(model), int(getattr(model, "num_prefix_tokens", 0))
    images = list(images_in(batches, model))
    norms: dict[int, list[Tensor]] = {index: [] for index in range(len(blocks))}

    def keep_norms(index: int) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            norms[index].append(output[:, prefix:].detach().float().norm(dim=-1))

        return only_this_thread(hook)

    with capture.evaluating(model), ExitStack() as stack:
        for index, block in enumerate(blocks):
            stack.callback(block.register_forward_hook(keep_norms(index)).remove)
        for batch in images:
            model(batch)
    all_norms = {index: torch.cat(parts) for index, parts in norms.items()}  # (n, patches)
    high = {index: high_norm(each) for index, each in all_norms.items()}
    first = next((i for i, mask in high.items() if float(mask.float().mean()) > RARE), None)
    if first is None:
        raise UserError(
            f"no patch of this {type(model).__name__} is above three times the median norm after "
            f"any of its {len(blocks)} blocks: there is nothing to move"
        )
    neurons = _neurons(model, blocks[: first + 1], images, high[first], prefix)
    return RegisterNeurons(
        block=first,
        share=float(high[first].float().mean()),
        norm=float(all_norms[first][high[first]].mean()),
        median=float(all_norms[first].median()),
        neurons=tuple(sorted(neurons, key=lambda n: n.elsewhere - n.on_high)[:count]),
    )


def _neurons(
    model: nn.Module, blocks: list[Any], images: list[Tensor], high: Tensor, prefix: int
) -> list[Neuron]:
    """Every hidden neuron of these blocks."""
    sums: dict[int, list[Any]] = {  # on high patches, elsewhere
        index: [0.0, 0.0] for index in range(len(blocks))
    }
    counts = [max(int(high.sum()), 1), max(int((~high).sum()), 1)]
    here = high[:0]

    def add(index: int) -> Callable[..., None]:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            hidden = inputs[0][:, prefix:].detach().double()
            for part, mask in enumerate((here, ~here)):
                sums[index][part] += (hidden * mask[..., None]).sum((0, 1))

        return only_this_thread(hook)

    with capture.evaluating(model), ExitStack() as stack:
        for index, block in enumerate(blocks):
            stack.callback(block.mlp.fc2.register_forward_pre_hook(add(index)).remove)
        done = 0
        for batch in images:
            here = high[done : done + len(batch)]
            model(batch)
            done += len(batch)
    return [
        Neuron(block, index, on_high, elsewhere)
        for block, (first, second) in sums.items()
        for index, (on_high, elsewhere) in enumerate(
            zip((first / counts[0]).tolist(), (second / counts[1]).tolist(), strict=True)
        )
    ]


@contextmanager
def test_time_registers(model: nn.Module, neurons: Iterable[Neuron]) -> Iterator[None]:
    """Run ``model`` with one more token, which takes over what these neurons put into patches.

    The token is appended before the first block and dropped after the last one, so that the head
    and the features have their usual shape. Attention maps inside have it as their last token.

    Raises:
        UserError: If the model has no blocks of timm's form, or positions that are tied to the
            number of its tokens.
    """
    blocks = _blocks(model)
    if getattr(model, "rope", None) is not None or hasattr(blocks[0].attn, "rel_pos"):
        raise UserError(
            f"the attention of this {type(model).__name__} has a position for every token, and a "
            "new one has none; take a model with added position embeddings"
        )
    chosen: dict[int, list[int]] = {}
    for neuron in neurons:
        chosen.setdefault(neuron.block, []).append(neuron.index)

    def append(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        tokens = inputs[0]
        return (torch.cat([tokens, torch.zeros_like(tokens[:, :1])], 1), *inputs[1:])

    def drop(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return output[:, :-1]

    def move(indices: list[int]) -> Callable[..., tuple[Tensor]]:
        def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
            hidden = inputs[0].clone()
            largest = hidden[..., indices].amax(1)
            hidden[..., indices] = 0
            hidden[:, -1, indices] = largest
            return (hidden,)

        return only_this_thread(hook)

    with ExitStack() as stack:
        stack.enter_context(exclusive_access(model))
        first, last = blocks[0], blocks[-1]
        stack.callback(first.register_forward_pre_hook(only_this_thread(append)).remove)
        stack.callback(last.register_forward_hook(only_this_thread(drop)).remove)
        for block, indices in chosen.items():
            fc2 = blocks[block].mlp.fc2
            stack.callback(fc2.register_forward_pre_hook(move(indices)).remove)
        yield


def _blocks(model: nn.Module) -> list[Any]:
    """The blocks of a vision transformer.

    Raises:
        UserError: If it has none of timm's form.
    """
    blocks = list(getattr(model, "blocks", ()))
    if not blocks or not all(hasattr(getattr(block, "mlp", None), "fc2") for block in blocks):
        raise UserError(
            "registers need a vision transformer as timm's: a list `blocks`, each with `mlp.fc2`; "
            f"{type(model).__name__} has none"
        )
    return blocks
