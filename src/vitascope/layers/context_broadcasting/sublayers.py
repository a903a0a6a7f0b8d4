"""The MLPs and attention layers of any model, found by their dense layers alone.

A dense layer is a linear layer or a 1 x 1 convolution. *Attention* has a dense layer for its
queries (``q``, ``qkv``, ``query``, …), or is torch's own. An *MLP* is the smallest module whose
first dense layer widens (D -> h) and whose last one comes back (h, or h / 2 behind a gate -> D),
with no shortcut inside. Where a block holds the two dense layers with its attention, itself or in
two modules (``intermediate`` and ``output`` of Hugging Face), the pair is the MLP. Nothing is run
and no model names are used; :func:`vitascope.capture.units` finds more, by running the model.

Left out: a narrowing pair (squeeze and excitation), a convolutional inverted bottleneck without
attention at its side, an MLP across tokens, whose width no norm of its block has (MLP-Mixer), and
what lies inside an attention layer (position MLPs, attention pooling).

    front ─► first dense layer, … ─► mid ─► last dense layer, dropout ─► end
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

_QUERIES = ("q", "qk", "qkv", "query", "q_proj", "qkv_proj", "wq", "to_q", "to_qkv")
_KEYS = ("k", "kv", "key", "k_proj", "kv_proj", "wk", "to_k", "to_kv")
_VALUES = ("v", "value", "v_proj", "wv", "to_v")
_INPUTS = (*_QUERIES, *_KEYS, *_VALUES)


@dataclass(frozen=True, kw_only=True)
class Sublayer:
    """One MLP or attention layer, with module names; triples are (front, mid, end) as above."""

    name: str
    kind: str  # mlp or msa
    block: str  # the module that calls it
    hook_modules: tuple[
        str, str | None, str
    ]  # goes into the first and second, comes out of the third
    widths: tuple[int, int, int]
    spatial: tuple[bool, bool, bool]  # does a 4-D tensor there have its channels first


def attentions(model: nn.Module) -> list[Sublayer]:
    """Every attention layer over tokens, in the order of the model."""
    parts = []
    for name, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):  # its projection is not called as a module
            parts.append(
                Sublayer(
                    name=name,
                    kind="msa",
                    block=_caller(model, name),
                    hook_modules=(name, None, name),
                    widths=(module.embed_dim,) * 3,
                    spatial=(False, False, False),
                )
            )
        elif _has_queries(module) and not _holds_mlp(model, name):
            parts.append(_attention(model, name))
    return parts


def mlps(model: nn.Module) -> list[Sublayer]:
    """Every MLP over channels, in the order of the model."""
    attending = [name for name, m in model.named_modules() if _attends(m)]
    attending += [part.name for part in attentions(model)]  # with a projection next to them
    order = {name: index for index, (name, _) in enumerate(model.named_modules())}
    parts: list[Sublayer] = []
    for name in sorted(order, key=lambda n: -len(n.split(".")) if n else 0):  # the smallest first
        if any(_within(name, other) for other in attending):
            continue
        if any(_within(part.name, name) for part in parts):
            continue
        inside = [other for other in attending if _within(other, name)]
        dense = [d for d in _dense(model, name) if not any(_within(d, other) for other in inside)]
        if _widens_and_returns(model, dense) and _over_channels(model, name, dense):
            if inside:
                parts.append(_pair(model, name, dense))
            elif not _has_shortcut(model.get_submodule(name)):
                parts.append(_mlp(model, name, dense))
    return sorted(parts, key=lambda part: order[part.name])


def _has_queries(module: nn.Module) -> bool:
    """Return whether a child is, or holds, a dense layer for queries."""
    return any(
        name in _QUERIES and any(_is_dense(m) for m in child.modules())
        for name, child in module.named_children()
    )


def _attends(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) or _has_queries(module)


def _has_shortcut(module: nn.Module) -> bool:
    """Return whether its output includes a shortcut: it has a drop path and a skip."""
    drops = any(name.startswith("drop_path") for name, _ in module.named_children())
    return drops and getattr(module, "has_skip", True)


def _holds_mlp(model: nn.Module, name: str) -> bool:
    """Return whether it contains an MLP of its own width, as attention pooling does."""
    width = _widths(model, _first(model, name))[0]
    children = [f"{name}." * bool(name) + n for n, _ in model.get_submodule(name).named_children()]
    inner = [_dense(model, child) for child in children]
    return any(_widens_and_returns(model, d) and _widths(model, d[0])[0] == width for d in inner)


def _first(model: nn.Module, name: str) -> str:
    """The dense layer of the queries."""
    return next(d for d in _dense(model, name) if _step(d, name) in _QUERIES)


def _attention(model: nn.Module, name: str) -> Sublayer:
    """The attention layer with its projection, which may be the only dense layer next to it."""
    first = _first(model, name)
    width = _widths(model, first)[0]
    out = [d for d in _dense(model, name) if _step(d, name) not in _INPUTS]
    out = [d for d in out if _widths(model, d)[1] == width][-1:] or out[-1:]
    outer, end = name, name
    if not out:
        around = name.rpartition(".")[0]
        beside = [d for d in _dense(model, around) if not _within(d, name)]
        if len(beside) == 1:
            outer, out, end = around, beside, _after_dropout(model, beside[0])
    last = out[0] if out else None
    back, wide = _widths(model, last) if last else (width, width)
    beside_it = model.get_submodule(_caller(model, outer)).children()
    maps = _spatial(model, first) or any(isinstance(m, nn.BatchNorm2d) for m in beside_it)
    return Sublayer(
        name=outer,
        kind="msa",
        block=_caller(model, outer),
        hook_modules=(outer, last, end),
        widths=(width, back, wide),
        spatial=(maps, _spatial(model, last or first), maps),
    )


def _mlp(model: nn.Module, name: str, dense: list[str]) -> Sublayer:
    """An MLP that is one module; hooks of an ``nn.Sequential`` go to its first and last child."""
    front = end = name  # a child added to a sequence would run as one more step
    while isinstance(inner := model.get_submodule(front), nn.Sequential):
        front = f"{front}.{next(iter(inner._modules))}".lstrip(".")
    while isinstance(inner := model.get_submodule(end), nn.Sequential):
        end = f"{end}.{next(reversed(inner._modules))}".lstrip(".")
    return _sublayer(model, name, _caller(model, name), (front, dense[-1], end), dense)


def _pair(model: nn.Module, name: str, dense: list[str]) -> Sublayer:
    """An MLP of two dense layers of a block with attention, in the block or in two children."""
    holder = f"{name}." * bool(name) + _step(dense[0], name)
    hook_modules = (holder, dense[-1], _after_dropout(model, dense[-1]))
    return _sublayer(model, holder, name, hook_modules, dense)


def _sublayer(
    model: nn.Module, name: str, block: str, hook_modules: tuple[str, str, str], dense: list[str]
) -> Sublayer:
    first, last = dense[0], dense[-1]
    return Sublayer(
        name=name,
        kind="mlp",
        block=block,
        hook_modules=hook_modules,
        widths=(_widths(model, first)[0], *_widths(model, last)),
        spatial=(_spatial(model, first), _spatial(model, last), _spatial(model, last)),
    )


def _widens_and_returns(model: nn.Module, dense: list[str]) -> bool:
    if len(dense) < 2:
        return False
    (width, hidden), *between, (back, out) = [_widths(model, d) for d in dense]
    wide = hidden > width or (hidden == width and not between)
    there = width == out and wide and back * 2 >= hidden >= back
    return there and (width, width) not in between  # two branches side by side are not one MLP


def _over_channels(model: nn.Module, name: str, dense: list[str]) -> bool:
    """Return whether it mixes channels: it is as wide as a norm next to it."""
    beside = model.get_submodule(name.rpartition(".")[0])
    norms = {m.normalized_shape for m in beside.children() if isinstance(m, nn.LayerNorm)}
    if norms and (_widths(model, dense[0])[0],) not in norms:
        return False
    parts = list(model.get_submodule(name).modules())
    wide = any(isinstance(m, nn.Conv2d) and set(m.kernel_size) != {1} for m in parts)
    linear = any(isinstance(m, nn.Linear) for m in parts)
    return linear or not wide or any(_attends(m) for m in beside.children())


def _after_dropout(model: nn.Module, dense: str) -> str:
    """The dropout that follows a dense layer in their own parent module, else the dense layer."""
    holder, _, own = dense.rpartition(".")
    names = list(model.get_submodule(holder)._modules)
    follower = [f"{holder}.{n}" for n in names[names.index(own) + 1 :][:1] if len(names) <= 3]
    return next((n for n in follower if isinstance(model.get_submodule(n), nn.Dropout)), dense)


def _dense(model: nn.Module, name: str) -> list[str]:
    """Names of the dense layers below, as declared."""
    below = model.get_submodule(name).named_modules(prefix=name)
    return [n for n, m in below if _is_dense(m)]


def _is_dense(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (
        isinstance(module, nn.Conv2d) and set(module.kernel_size) == {1} and module.groups == 1
    )


def _widths(model: nn.Module, dense: str) -> tuple[int, int]:
    module = model.get_submodule(dense)
    if isinstance(module, nn.Conv2d):
        return module.in_channels, module.out_channels
    assert isinstance(module, nn.Linear)
    return module.in_features, module.out_features


def _spatial(model: nn.Module, dense: str) -> bool:
    return isinstance(model.get_submodule(dense), nn.Conv2d)


def _step(name: str, above: str) -> str:
    """Name of the child of ``above`` that contains ``name``."""
    return name.removeprefix(f"{above}." if above else "").split(".")[0]


def _within(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.") or not other


def _caller(model: nn.Module, name: str) -> str:
    """The nearest enclosing module with its own forward: not a ModuleList or Sequential."""

    def above(name: str) -> Iterator[str]:
        while name:
            name = name.rpartition(".")[0]
            yield name

    lists = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
    return next((n for n in above(name) if not isinstance(model.get_submodule(n), lists)), "")
