"""AttnLRP: relevance propagated layer by layer, through attention as well, down to the pixels.

Achtibat et al. 2024 (https://arxiv.org/abs/2402.05602) give every operation of a transformer a rule
by which it hands the relevance R of its output on to its inputs. Each of them is the gradient with
one change, and the relevance of an input x is x times that changed gradient:

* linear layers, convolutions, sums, pooling: the gradient itself (the rule LRP-0);
* element-wise non-linear functions f: f(x)/x in place of f'(x) (the identity rule);
* normalisation: the deviation (or norm) in the denominator is a constant;
* products of two numbers that both depend on the image (weights times values, queries times keys):
  half to each factor. A factor that is a gate (a sigmoid) is a constant;
* softmax: the gradient itself (its Taylor expansion).

The rules are put into the backward pass of autograd, at the operations that a network has really
run. So no layer is named, and any network has the map. Where no relevance is lost to biases and
softmax, it adds up to the score.

Deviations: the paper's gamma rule, which it recommends for the linear layers of vision
transformers, is left out; and so a convolutional network of ReLUs gives gradient times input.

Shapes: B images, C channels.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Grads = tuple[Tensor | None, ...]
_ELEMENTWISE: dict[str, Callable[[Any, Tensor], Tensor]] = {  # backward node -> f(x)
    "GeluBackward0": lambda node, x: F.gelu(x, approximate=node._saved_approximate),
    "SiluBackward0": lambda node, x: F.silu(x),
    "MishBackward0": lambda node, x: F.mish(x),
    "HardswishBackward0": lambda node, x: F.hardswish(x),
    "HardtanhBackward0": lambda node, x: x.clamp(node._saved_min_val, node._saved_max_val),
}
_PRODUCTS = ("MulBackward0", "BmmBackward0", "MmBackward0", "BaddbmmBackward0")
_CONSTANTS = ("Sigmoid", "Hardsigmoid", "Rsqrt", "Reciprocal")  # gates, and what normalises


def attention_lrp(score: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Relevance of every pixel for the score of its image. (B, C, H, W)

    Args:
        score: From images to a number per image (B,). Its graph may depend on the images alone, not
            on weights that require gradients: a product with a weight is no product of two inputs.
        images: (B, C, H, W)

    >>> weight = torch.tensor([1.0, 2.0])
    >>> relevance = attention_lrp(lambda x: F.gelu(x.flatten(1)) @ weight, torch.ones(1, 2, 1, 1))
    >>> round(relevance.sum().item(), 4) == round(3 * F.gelu(torch.ones(())).item(), 4)
    True
    """
    with torch.enable_grad():
        leaf = images.detach().clone().requires_grad_(True)
        total = score(leaf).sum()
        for node in _nodes(total.grad_fn):
            rule = _rule(node)
            if rule is not None:
                node.register_hook(rule)
        (gradient,) = torch.autograd.grad(total, leaf)
    return (leaf * gradient).detach()


def _nodes(root: Any) -> Iterator[Any]:
    """Every operation of a graph once."""
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)


def _rule(node: Any) -> Callable[[Grads, Grads], Grads] | None:
    """How the gradients of an operation change; None where they stay."""
    name = node.name()
    factors = [following for following, _ in node.next_functions]
    if name in _ELEMENTWISE:
        return lambda grads, outer: (_identity(node, outer[0]), *grads[1:])
    if name == "NativeLayerNormBackward0":
        return lambda grads, outer: (_layer_norm(node, outer[0]), *grads[1:])
    if name == "DivBackward0" and all(factors):
        return lambda grads, outer: _scaled(grads, (1.0, 0.0))
    if name.startswith("ScaledDotProduct"):
        return lambda grads, outer: _scaled(grads, (0.25, 0.25, 0.5))
    if name in _PRODUCTS and sum(factor is not None for factor in factors) == 2:
        constant = [f is not None and f.name().startswith(_CONSTANTS) for f in factors]
        shares = [0.0 if one else 1.0 if any(constant) else 0.5 for one in constant]
        return lambda grads, outer: _scaled(grads, shares)
    return None


def _scaled(grads: Grads, shares: Any) -> Grads:
    changed = [g if g is None else g * s for g, s in zip(grads, shares, strict=False)]
    return (*changed, *grads[len(changed) :])


def _identity(node: Any, outer: Tensor | None) -> Tensor | None:
    """The gradient f(x)/x; where x is 0 no relevance arrives, whatever it is."""
    if outer is None:
        return None
    x = node._saved_self
    return outer * _ELEMENTWISE[node.name()](node, x) / x.where(x != 0, 1)


def _layer_norm(node: Any, outer: Tensor | None) -> Tensor | None:
    """The gradient of (x - mean) / deviation with a constant deviation."""
    if outer is None:
        return None
    weight, over = node._saved_weight, tuple(range(-len(node._saved_normalized_shape), 0))
    inner = (outer if weight is None else outer * weight) * node._saved_result2
    return inner - inner.mean(over, keepdim=True)
