"""Products of the Hessian of the training objective with vectors, on a retained graph.

    Hv = d/dw [ (dL/dw) . v ]

The gradient is taken once with its own graph, which is kept; each product is then one backward
pass through it (Pearlmutter 1994), at about 1.5 times the cost of a gradient. The l2 term is added
exactly, as ``weight_decay * v``. Several vectors at once (``is_grads_batched``) took 20 % longer
per vector on one core than one after the other.

Shapes: n weights, flat, in the order of ``model.named_parameters()``.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.measure.curvature.eigenvalues import Product
from vitascope.measure.curvature.objective import deterministic, objective, trainable_weights


def flat(parts: Iterable[Tensor]) -> Tensor:
    """All parts as one vector. (n,)"""
    return torch.cat([part.reshape(-1) for part in parts])


def unflattened(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A flat vector (n,) in parts of the shapes of some tensors."""
    pieces = vector.split([tensor.numel() for tensor in like])
    return [piece.view_as(tensor) for piece, tensor in zip(pieces, like, strict=True)]


class HessianProducts:
    """``H(v)`` for the mean objective over fixed batches; the model is left unchanged.

    Args:
        model: Any classifier.
        batches: (images, targets); each keeps its graph in memory.
        weight_decay: Of the l2 term.
        dtype: Precision of weights and products.
        batch_norm: As for :func:`~vitascope.measure.curvature.objective.deterministic`.

    >>> model, batch = nn.Linear(2, 2), (torch.ones(1, 2), torch.tensor([0]))
    >>> product = HessianProducts(model, [batch], weight_decay=0.5)
    >>> along = torch.tensor([1.0, 0, 1, 0, 0, 0])  # both logits rise alike
    >>> torch.allclose(product(along), 0.5 * along, atol=1e-6)
    True
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[tuple[Tensor, Tensor]],
        *,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.float32,
        batch_norm: str = "running",
    ):
        self.weight_decay = weight_decay
        self.weights = trainable_weights(model, dtype)
        leaves = list(self.weights.values())
        self.size = sum(leaf.numel() for leaf in leaves)
        total = sum(len(images) for images, _ in batches)
        self.gradients: list[tuple[Tensor, ...]] = []  # of each batch, with their graphs
        self.loss = 0.0
        with torch.enable_grad(), deterministic(model, batch_norm=batch_norm):
            for images, targets in batches:
                loss = objective(model, self.weights, images, targets) * (len(images) / total)
                if not bool(torch.isfinite(loss)):
                    raise UserError(
                        f"the loss is {loss.item()} on these images: look at weights and images"
                    )
                if not loss.requires_grad:
                    raise UserError("the loss does not depend on any weight that trains")
                self.loss += loss.item()
                self.gradients.append(
                    torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
                )
        here = flat([w.detach() for w in leaves])
        self.loss += weight_decay / 2 * here.square().sum().item()
        self.gradient = weight_decay * here  # (n,)
        for gradients in self.gradients:
            self.gradient += flat([gradient.detach() for gradient in gradients])

    def parts(self, vector: Tensor) -> dict[str, Tensor]:
        """A flat vector by weight, in the weights' shapes."""
        leaves = list(self.weights.values())
        return dict(zip(self.weights, unflattened(vector, leaves), strict=True))

    def __call__(self, vector: Tensor) -> Tensor:
        """Hv. (n,) -> (n,)"""
        return self.within(list(self.weights))(vector)

    def within(self, names: Sequence[str]) -> Product:
        """The product with vectors over the named weights alone, H_bb v. (n,) -> (n,)"""
        leaves = [self.weights[name] for name in names]
        index_of = {name: index for index, name in enumerate(self.weights)}

        def product(vector: Tensor) -> Tensor:
            along = unflattened(vector, leaves)
            result = self.weight_decay * vector
            for gradients in self.gradients:
                mine = [gradients[index_of[name]] for name in names]
                products = torch.autograd.grad(
                    mine, leaves, along, retain_graph=True, materialize_grads=True
                )
                result += flat(products)
            return result

        return product
