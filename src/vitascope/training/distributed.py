"""Processes, devices and mixed precision of a training, through Hugging Face Accelerate.

Accelerate starts the process group under ``torchrun``, places and wraps the model (DDP), scales
fp16 losses and drives trackers (TensorBoard, W&B, MLflow, ...). Its FSDP needs GPUs even to be
tried, so sharding is torch's own ``fully_shard`` here, which two CPU processes can test. States
are gathered and scattered by torch's ``distributed.checkpoint.state_dict``: under every layout a
checkpoint holds whole tensors by parameter name, so one written by eight sharded processes is read
by one. Several machines must share the run's folder.

A device is chosen by its name; bfloat16 is tried on it before it is used.
"""

import atexit
import faulthandler
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.tracking import GeneralTracker
from accelerate.utils import ProjectConfiguration, broadcast_object_list
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from vitascope.errors import UserError
from vitascope.training.observe import chosen
from vitascope.training.recipes.config import Recipe

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class TrainingProcess:
    """One process of a run."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        device: str | None = None,
        fsdp: bool = False,
        folder: Path | None = None,
        trackers: Sequence[str | GeneralTracker] | None = (),
    ) -> None:
        distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
        AcceleratorState._reset_state(reset_partial_state=not distributed)  # an earlier run's
        GradientState._reset_state()
        tellers, on_cpu = chosen(trackers), _on_cpu(device)
        if on_cpu and recipe.mixed_precision == "bf16":
            check_bfloat16()
        try:
            self.accelerator = Accelerator(
                cpu=on_cpu,
                mixed_precision=recipe.mixed_precision,
                log_with=tellers or None,
                project_config=ProjectConfiguration(folder, folder / "events" if folder else None),
            )
        except ValueError as error:
            raise UserError(f"cannot start training: {error}") from error
        self.device, self.world_size = self.accelerator.device, self.accelerator.num_processes
        self.rank, self.main = self.accelerator.process_index, self.accelerator.is_main_process
        self.fsdp = fsdp and self.world_size > 1
        if self.world_size > 1:
            atexit.unregister(_leave)
            atexit.register(_leave)
        elif distributed:
            raise UserError("the launcher promised several processes but this one is alone")

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model on its device, wrapped for several processes."""
        if not self.fsdp:
            return self.accelerator.prepare_model(model)
        mesh = init_device_mesh(self.device.type, (self.world_size,))
        model.to(self.device)
        for module in list(model.modules()):
            if isinstance(module, (nn.ModuleList, nn.Sequential)):
                for block in module:
                    whole = not isinstance(block, (FSDPModule, nn.ModuleList, nn.Sequential))
                    if whole and sum(p.numel() for p in block.parameters()) >= 1_000:
                        fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def unsynced(self, model: nn.Module, last: bool) -> Any:
        """Share gradients only after the last part of an accumulated batch."""
        if last or self.world_size == 1 or self.fsdp:
            return nullcontext()
        return self.accelerator.no_sync(model)

    def plain(self, model: nn.Module) -> nn.Module:
        """The model inside the wrapper."""
        return model.module if isinstance(model, DistributedDataParallel) else model

    def release(self, model: nn.Module) -> None:
        """Undo what the wrapper changed in the caller's model."""
        plain = self.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        vars(plain).pop("forward", None)  # Accelerate puts the class's own there

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum over processes."""
        if self.world_size == 1:
            return tensor
        return self.accelerator.reduce(tensor, reduction="sum")

    def agreed(self, value: Any) -> Any:
        """The main process's value, everywhere."""
        if self.world_size == 1:
            return value
        box = [value]
        broadcast_object_list(box)
        return box[0]

    @contextmanager
    def main_writes(self) -> Iterator[bool]:
        """True on the main process; the others wait at the end of the block."""
        yield self.main
        self.accelerator.wait_for_everyone()

    def model_state(self, model: nn.Module) -> dict[str, Tensor]:
        """Whole tensors by name, on the main process."""
        if self.fsdp:
            state: Any = get_model_state_dict(model, options=_WHOLE)
            return state
        return {k: v for k, v in self.plain(model).state_dict().items() if torch.is_tensor(v)}

    def load_model(self, model: nn.Module, state: Mapping[str, Tensor]) -> None:
        """The reverse of :meth:`model_state`, on every process."""
        if self.fsdp:
            set_model_state_dict(model, dict(state), options=_WHOLE)
        else:
            self.plain(model).load_state_dict(state, strict=True)

    def optimizer_state(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> dict[str, Tensor]:
        """``parameter:entry`` to whole tensor. What is no tensor (lr, betas) is the recipe's."""
        if not optimizer.state:  # torch would make one by a step, and Adam would count it
            return {}
        state = get_optimizer_state_dict(self.plain(model), optimizer, options=_WHOLE)
        entries = state.get("state", {}).items()
        return {
            f"{name}:{key}": torch.as_tensor(value)
            for name, items in entries
            for key, value in items.items()
            if value is not None
        }

    def load_optimizer(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> None:
        """The reverse of :meth:`optimizer_state`, on every process."""
        if not state:
            return
        plain = self.plain(model)
        own: Any = get_optimizer_state_dict(plain, optimizer)
        nested: dict[str, dict[str, Tensor]] = {}
        for key, value in state.items():
            name, _, entry = key.rpartition(":")
            nested.setdefault(name, {})[entry] = value
        whole = {"state": nested, "param_groups": own["param_groups"]}
        options = StateDictOptions(full_state_dict=True)
        set_optimizer_state_dict(plain, optimizer, optim_state_dict=whole, options=options)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Shards put together; every process takes part."""
        return {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in tensors.items()}

    def share_into(self, targets: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> None:
        """Copy whole tensors into ``targets``, of which each may be a shard."""
        for name, target in targets.items():
            value = whole[name].to(self.device)
            if isinstance(target, DTensor):
                value = distribute_tensor(value, target.device_mesh, target.placements)
            target.copy_(value)


def _leave() -> None:
    """Shut the process group down cleanly; gloo aborts otherwise."""
    if torch.distributed.is_initialized():
        gc.collect()  # an object that still holds a group would destroy it while threads run
        torch.distributed.destroy_process_group()


def _on_cpu(device: str | None) -> bool:
    """Return whether to stay on the CPU; picks the GPU that was named."""
    chosen = device_of(device)
    if chosen.type == "cuda" and chosen.index is not None:
        torch.cuda.set_device(chosen)
    return chosen.type == "cpu"


def device_of(name: str | None) -> torch.device:
    """The device called ``name``; the best there is for None.

    >>> device_of("cpu")
    device(type='cpu')

    Raises:
        UserError: If there is no such device here, or it cannot compute ("meta").
    """
    gpus, mps = torch.cuda.device_count(), torch.backends.mps.is_available()
    if name is None:
        return torch.device("cuda" if gpus else "mps" if mps else "cpu")
    devices = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in range(gpus))]
    devices += ["mps"] if mps else []
    if name not in devices:
        raise UserError(f"no device {name!r} here; there is {', '.join(devices)}")
    return torch.device(name)


def check_bfloat16() -> None:
    """A product in bfloat16 on the CPU, tried in a process of its own.

    Some virtual machines announce AMX, Intel's instructions for it, and do not run them: the first
    product ends the process.

    Raises:
        UserError: If it does.
    """
    if not _survives():
        raise UserError(
            "this machine announces instructions for bfloat16 that it does not run: set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment, or use mixed_precision=no"
        )


@cache
def _survives() -> bool:
    if not hasattr(os, "fork"):
        return True
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # a crash is an expected result: print no traceback
        torch.set_num_threads(1)
        ones = torch.ones(64, 64, dtype=torch.bfloat16)
        torch.nn.functional.linear(ones, ones)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
