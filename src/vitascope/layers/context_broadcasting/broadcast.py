"""Context broadcasting: every token keeps half of itself and gets half of the mean token.

Uniform attention is what a softmax finds hardest to learn, so it is given for free
(Hyeon-Woo et al. 2023, https://arxiv.org/abs/2210.08457; the last two from its supplement, 2.7):

    CB(x_i)        = (x_i + m) / 2,           m = mean_j x_j over all tokens, the class token too
    CB_S(x_i)      = (x_i + s m) / 2          s: one learned scale per channel
    CB_gate(x_i)   = x_i (x_0 + 1)            x_0: the class token
    CB_hybrid(x_i) = x_i x_0 + CB(x_i)

CB is attention with the matrix (I + 11^T / T) / 2: it keeps the mean token, leaves equal tokens
alone, and halves every token's distance to the mean. As an affine map of the channels commutes with
it, CB before the last dense layer of an MLP equals CB after it.

Deviation: our documents give neither the form of CB_S nor its start. Both are arguments:
``scale_form="halved"`` as above, or ``"added"`` for x_i + s m; ``scale_init=1`` starts ``"halved"``
as CB itself, and 0 starts ``"added"`` as no broadcasting at all.

Cost (Tables S5 and S6): T D multiply-adds per layer, twice that for CB_hybrid. ViT-S with 12
layers, D = 384 and T = 197: 0.9 million, and 3.6 in the hidden width of the MLP.

Shapes: B images, T tokens, D width; tensors (B, T, D), (B, h, w, D), (B, D, h, w), or windows of an
image side by side in the batch.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vitascope.errors import UserError, unknown

__all__ = ["ContextBroadcast", "Kind", "ScaleForm", "context_broadcast", "mean_token"]

Kind = Literal["cb", "cb_s", "cb_gate", "cb_hybrid"]
ScaleForm = Literal["halved", "added"]


def mean_token(x: Tensor, keep: Tensor | None = None) -> Tensor:
    """The mean over the tokens to keep. (B, T, D), (B, T) of booleans -> (B, 1, D)

    >>> mean_token(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[[2.]]])
    """
    if keep is None:
        return x.mean(dim=1, keepdim=True)
    there = keep[..., None]
    count = there.sum(dim=1, keepdim=True).clamp(min=1).to(x.dtype)
    return torch.where(there, x, 0).sum(dim=1, keepdim=True) / count


def context_broadcast(
    x: Tensor,
    kind: Kind = "cb",
    *,
    scale: Tensor | None = None,
    scale_form: ScaleForm = "halved",
    keep: Tensor | None = None,
) -> Tensor:
    """The equations above; tokens that are not kept (padding) stay as they are.

    Args:
        x: Tokens (B, T, D); the class token first where a kind needs it.
        kind: Which equation.
        scale: s of CB_S. (D,)
        scale_form: (x + s m) / 2 when ``"halved"``, x + s m when ``"added"``.
        keep: False for padding. (B, T)

    >>> context_broadcast(torch.tensor([[[0.0], [4.0]]])).flatten().tolist()
    [1.0, 3.0]
    """
    if kind == "cb_gate":
        out = torch.addcmul(x, x, x[:, :1])
    else:
        mean = mean_token(x, keep)
        if kind == "cb_s":
            if scale is None:
                raise UserError("cb_s needs a scale")
            mean = mean * scale.to(mean.dtype)
        out = x + mean if (kind, scale_form) == ("cb_s", "added") else torch.lerp(x, mean, 0.5)
        if kind == "cb_hybrid":
            out = torch.addcmul(out, x, x[:, :1])
    return out if keep is None else torch.where(keep[..., None], out, x)


class ContextBroadcast(nn.Module):
    """Context broadcasting of one layer, for tokens and feature maps alike.

    Args:
        dim: Width D.
        kind: ``"cb"``, ``"cb_s"``, ``"cb_gate"`` or ``"cb_hybrid"``; only ``"cb_s"`` has
            parameters, D of them.
        spatial: 4-D tensors are (B, D, h, w) and not (B, h, w, D).
        scale_form: ``"halved"`` or ``"added"``; only for ``"cb_s"``.
        scale_init: Every channel's scale at the start; only for ``"cb_s"``.

    >>> ContextBroadcast(2)(torch.tensor([[[0.0, 2.0], [4.0, 2.0]]])).tolist()
    [[[1.0, 2.0], [3.0, 2.0]]]
    """

    def __init__(
        self,
        dim: int,
        kind: Kind = "cb",
        *,
        spatial: bool = False,
        scale_form: ScaleForm = "halved",
        scale_init: float = 1.0,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if kind not in get_args(Kind):
            raise unknown("kind of context broadcasting", kind, get_args(Kind))
        if scale_form not in get_args(ScaleForm):
            raise unknown("form of the scale", scale_form, get_args(ScaleForm))
        self.dim, self.kind, self.spatial = dim, kind, spatial
        self.scale_form, self.scale_init = scale_form, float(scale_init)
        self.scale: nn.Parameter | None = None
        if kind == "cb_s":
            self.scale = nn.Parameter(torch.empty(dim, device=device, dtype=dtype))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """All scales at ``scale_init``."""
        if self.scale is not None:
            nn.init.constant_(self.scale, self.scale_init)

    def forward(self, x: Tensor, keep: Tensor | None = None, images: int | None = None) -> Tensor:
        """Broadcast within each image.

        Args:
            x: Tokens or a feature map, of any of the shapes above.
            keep: False for padding. (B, T)
            images: B, where the batch holds several windows of each image.
        """
        spatial = self.spatial and x.ndim == 4
        if x.ndim < 3 or x.shape[1 if spatial else -1] != self.dim:
            raise UserError(f"need tokens of width {self.dim}, got {tuple(x.shape)}")
        if x.ndim != 3 and self.kind in ("cb_gate", "cb_hybrid"):
            raise UserError(f"{self.kind} needs a class token; a map {tuple(x.shape)} has none")
        rows = x.flatten(2).mT if spatial else x.flatten(1, -2)  # (windows, T, D)
        tokens = rows if images is None else rows.reshape(images, -1, self.dim)
        out = context_broadcast(
            tokens, self.kind, scale=self.scale, scale_form=self.scale_form, keep=keep
        )
        out = out.reshape(rows.shape)
        return out.mT.reshape(x.shape) if spatial else out.reshape(x.shape)

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows."""
        scale = "" if self.scale is None else f", scale_form={self.scale_form!r}"
        return f"{self.dim}, kind={self.kind!r}{scale}"
