"""Insert context broadcasting into any model, in place, with one call.

Where (Table S5) and at which position (Table S6 of Hyeon-Woo et al. 2023, supplement):

    <front> ─ dense layer ─ activation ─ <mid> ─ dense layer, dropout ─ <end>      of an MLP
    <front> ─ queries, keys, values, attention ─ <mid> ─ projection ─ <end>        of an MSA

and then layer scale, drop path and the shortcut. A :class:`ContextBroadcast` becomes a child,
``context_broadcast``, of the module at that place, and a hook there calls it: no class changes, no
parameter is renamed, and copies, ``torch.compile``, ``torch.export`` and timm's methods see it.

The mean is over the whole image (:mod:`vitascope.layers.context_broadcasting.whole_image`): windows
that a block cuts for its attention are put together again, and the zeros it padded them with stay
out, as do the tokens that a block is told to mask (``attention_mask`` of Hugging Face,
``attn_mask`` of timm). Networks that fold pixels into the batch above their blocks (MobileViT, the
inner blocks of TNT) average over each sequence.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from torch import Tensor, nn

from vitascope.capture import evaluating, matching
from vitascope.capture.input_check import require_module
from vitascope.errors import UserError
from vitascope.layers.context_broadcasting.broadcast import ContextBroadcast, Kind, ScaleForm
from vitascope.layers.context_broadcasting.class_token import require_class_token
from vitascope.layers.context_broadcasting.sublayers import Sublayer, attentions, mlps
from vitascope.layers.context_broadcasting.whole_image import (
    TokenBatch,
    first_tensor,
    follow_attention,
    follow_block,
)
from vitascope.settings import checked

__all__ = ["BroadcastCost", "Position", "Where", "broadcast", "broadcast_cost"]

Model = TypeVar("Model", bound=nn.Module)
Position = Literal["front", "mid", "end"]
Where = Literal["mlp", "msa", "both"]
_CHILD = "context_broadcast"
_SOUGHT = {
    "mlp": "MLP, that is two dense layers that widen and come back to their width",
    "msa": "attention, that is a module with a dense layer q, qk, qkv, query or q_proj, or torch's",
}


@dataclass(frozen=True, kw_only=True)
class BroadcastCost:
    """Parameters and multiply-adds that :func:`broadcast` added to a model."""

    kind: str
    layers: tuple[str, ...]  # names of the ContextBroadcast modules
    parameters: int
    multiply_adds: int | None  # as Tables S5 and S6 count them; None without an input to run on


@checked
def broadcast(
    model: Model,
    kind: Kind = "cb",
    position: Position = "end",
    where: Where = "mlp",
    *,
    modules: str | Sequence[str] | None = None,
    scale_form: ScaleForm = "halved",
    scale_init: float = 1.0,
    example_input: Tensor | None = None,
) -> Model:
    """Put context broadcasting into ``model``, which is changed in place and returned.

    Args:
        model: Any module with MLPs or attention; see
            :mod:`vitascope.layers.context_broadcasting.sublayers`.
        kind: ``"cb"``, ``"cb_s"`` (one scale per channel), ``"cb_gate"`` or ``"cb_hybrid"`` (the
            class token).
        position: ``"front"``, ``"mid"`` or ``"end"``, the paper's choice.
        where: ``"mlp"``, the paper's choice, ``"msa"`` or ``"both"``.
        modules: Only those whose names match a wildcard: ``"blocks.1?.mlp"``.
        scale_form: Of ``cb_s``: (x + s m) / 2 when ``"halved"``, x + s m when ``"added"``.
        scale_init: The scales s of ``cb_s`` at the start.
        example_input: Images to find the class token with, if the model does not tell their size.

    >>> from vitascope.models import create_model
    >>> model = broadcast(create_model("vit_micro"), "cb_s")
    >>> broadcast_cost(model).parameters  # 4 layers of width 72
    288
    """
    require_module(model)
    if any(isinstance(m, ContextBroadcast) for m in model.modules()):
        raise UserError(
            f"{type(model).__name__} has context broadcasting already; take a fresh one"
        )
    parts = _parts(model, where, modules)
    index = get_args(Position).index(position)
    for part in parts:
        if part.hook_modules[index] is None:
            raise UserError(f"{part.name} has no {position}: its last dense layer is no module")
    if kind in ("cb_gate", "cb_hybrid"):
        require_class_token(model, kind, [part.name for part in parts], example_input)
    for block in dict.fromkeys(part.block for part in parts):
        own = [part for part in parts if part.block == block]
        batches = [_insert(model, part, index, kind, scale_form, scale_init) for part in own]
        follow_block(model.get_submodule(block), batches)
    return model


def broadcast_cost(model: nn.Module, *inputs: Any, **named: Any) -> BroadcastCost:
    """Count what context broadcasting added, and its multiply-adds if given an input to run on.

    One image in, for the cost of one image. T D per layer; CB_hybrid twice, CB_S D more.
    """
    layers = {n: m for n, m in model.named_modules() if isinstance(m, ContextBroadcast)}
    if not layers:
        raise UserError(f"{type(model).__name__} has no context broadcasting; see broadcast()")
    counts: list[int] = []

    def count(layer: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(layer, ContextBroadcast)
        x, _, images = args
        scales = (images or len(x)) * layer.dim if layer.kind == "cb_s" else 0
        counts.append(x.numel() * (2 if layer.kind == "cb_hybrid" else 1) + scales)

    if inputs or named:
        handles = [layer.register_forward_pre_hook(count) for layer in layers.values()]
        try:
            with evaluating(model):
                model(*inputs, **named)
        finally:
            for handle in handles:
                handle.remove()
    return BroadcastCost(
        kind=next(iter(layers.values())).kind,
        layers=tuple(layers),
        parameters=sum(p.numel() for layer in layers.values() for p in layer.parameters()),
        multiply_adds=sum(counts) if inputs or named else None,
    )


class _Broadcasts:
    """Hook that replaces the input or output of a module."""

    def __init__(self, batch: TokenBatch, width: int):
        self.batch, self.width = batch, width

    def replaced(self, module: nn.Module, x: Tensor) -> Tensor:
        self.batch.met = True
        windows = self.batch.windows_in(x)
        if windows is not None and self.batch.tokens not in (0, x.numel() // self.width):
            raise UserError("the windows inside this attention are padded: broadcast at its end")
        return getattr(module, _CHILD)(x, self.batch.keep, windows)


class _Before(_Broadcasts):
    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        old = first_tensor(args, kwargs)
        new = self.replaced(module, old)  # torch's attention takes it three times
        return (
            tuple(new if arg is old else arg for arg in args),
            {key: new if arg is old else arg for key, arg in kwargs.items()},
        )


class _After(_Broadcasts):
    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (self.replaced(module, output[0]), *output[1:])
        return self.replaced(module, output)


def _parts(model: nn.Module, where: Where, modules: str | Sequence[str] | None) -> list[Sublayer]:
    """The MLPs, the attention layers, or both; none is an error."""
    sublayers: list[Sublayer] = []
    for kind, parts in (("mlp", mlps), ("msa", attentions)):
        if where in (kind, "both"):
            own = parts(model)
            if not own:
                raise UserError(f"{type(model).__name__} has no {_SOUGHT[kind]}")
            sublayers += own
    if any(isinstance(m, nn.MultiheadAttention) and not m.batch_first for m in model.modules()):
        raise UserError(
            "tokens come before images here (batch_first=False), which is not supported"
        )
    if modules is not None:
        chosen = matching(modules, [part.name for part in sublayers], "sublayer")
        return [part for part in sublayers if part.name in chosen]
    alike = Counter((part.block, part.widths[0]) for part in sublayers if part.kind == "mlp")
    attending = {part.block for part in attentions(model)}
    for (block, _), count in alike.items():
        if count > 1 and block not in attending:
            raise UserError(
                f"one of the {count} MLPs in {block} may mix tokens; choose by modules="
            )
    return sublayers


def _insert(
    model: nn.Module, part: Sublayer, place: int, kind: Kind, form: ScaleForm, init: float
) -> TokenBatch:
    """Add the layer and its hook at one position."""
    batch, width = TokenBatch(part.hook_modules[place] or part.name), part.widths[place]
    if part.kind == "msa":
        follow_attention(model.get_submodule(part.hook_modules[0] or ""), batch, part.widths[0])
    module = model.get_submodule(part.hook_modules[place] or "")
    like = next(model.get_submodule(part.name).parameters())
    layer = ContextBroadcast(
        width,
        kind,
        spatial=part.spatial[place],
        scale_form=form,
        scale_init=init,
        device=like.device,
        dtype=like.dtype,
    )
    module.add_module(_CHILD, layer)
    if place == 2:
        module.register_forward_hook(_After(batch, width))
    else:
        module.register_forward_pre_hook(_Before(batch, width), with_kwargs=True)
    return batch
