"""Networks with attention that were not chosen by hand, and what must hold of each.

timm: of every module file that computes a softmax or calls ``scaled_dot_product_attention``, itself
or through the layers that it imports, a small registered model that computes attention.
torchvision and Hugging Face: small configurations of their vision models. All have random weights.

Used by ``scripts/make_attention_networks.py`` and ``tests/test_attention_networks.py``.
"""

import ast
import re
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from math import ceil, floor, pi
from pathlib import Path
from typing import Any

import vitascope  # first: it completes a CPU-only torchvision

# isort: split
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vitascope import capture
from vitascope.capture.attention.recorder import record_attention
from vitascope.capture.coordinates.operators import fills_a_grid, spacing
from vitascope.measure.attention.nonlocality import (
    attention_distance,
    distances_of,
    without_patches,
)
from vitascope.measure.features.per_unit import no_grid
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import one_pass, streaming_instruments

CALLS = re.compile(r"(?<!log_)softmax\(|scaled_dot_product_attention")
TIMM = Path(timm.__file__).parent
# one more model of files whose smallest has another kind of attention than its larger ones
MORE = ("botnet26t_256", "halonet_h1", "resnet50_clip", "vit_base_patch16_siglip_224")


@dataclass(frozen=True)
class Network:
    """A network and the images it takes."""

    name: str
    make: Callable[[], nn.Module]
    size: tuple[int, ...] = (3, 224, 224)


# ------------------------------------------------------------------------------- which networks


def _classes(source: str) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}


def _imported(source: str) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes for alias in node.names}


@cache
def timm_files() -> tuple[str, ...]:
    """timm's model files that compute attention, or import a layer or block that does."""
    layers = [path.read_text(encoding="utf-8") for path in sorted((TIMM / "layers").glob("*.py"))]
    files = {path.stem: path.read_text("utf-8") for path in sorted((TIMM / "models").glob("*.py"))}
    registered = set(timm.list_modules())
    files = {name: text for name, text in files.items() if name in registered}
    calling = {name for name, text in files.items() if CALLS.search(text)}
    having = set().union(*(_classes(text) for text in layers if CALLS.search(text)))
    having |= set().union(*(_classes(files[name]) for name in calling))
    having = {name for name in having if re.search("Att|Block", name)}
    return tuple(n for n, text in files.items() if n in calling or _imported(text) & having)


def parameters(name: str) -> int:
    """Parameters of a timm model, counted on the meta device."""
    with torch.device("meta"):
        return sum(p.numel() for p in timm.create_model(name).parameters())


def _attends(name: str) -> bool:
    """Whether a timm model computes attention; run on the meta device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _computes_attention(partial(timm.create_model, name), of_timm(name).size, "meta")
        except Exception:  # what needs values cannot run there: it is tried for real
            return True


def _computes_attention(
    make: Callable[[], nn.Module], size: tuple[int, ...], device: str = "cpu"
) -> bool:
    """Whether any map has more than one key; of one, all rows are 1."""
    seen: list[bool] = []
    with torch.device(device), torch.no_grad():
        model = make().eval()
        with record_attention(model, lambda e: seen.append(e.own_weights().shape[-1] > 1)):
            model(torch.zeros(1, *size))
    return any(seen)


SIZE_WORDS = ("test", "nano", "pico", "xx", "_xs|_xt", "tiny|_ti?(?![a-z])", r"small|(?<!\d{3})_s")


def _size(name: str) -> tuple[int, int]:
    """A model's size as its name has it: the first size word, then the side of its images."""
    rank = next((i for i, word in enumerate(SIZE_WORDS) if re.search(word, name)), len(SIZE_WORDS))
    side = re.search(r"_(\d{3})(?!\d)", name)
    return rank, int(side[1]) if side else 0


def timm_networks() -> Iterator[Network]:
    """The first model with attention of each file, smallest name first; of one without, the first.

    Names are sorted by their size words: building all 900 models takes two minutes.
    """
    there = timm.list_models()
    for file in timm_files():
        names = sorted(timm.list_models(module=file), key=_size)[:6]
        yield made_small(of_timm(next(filter(_attends, names), names[0])))
    yield from (made_small(of_timm(name)) for name in MORE if name in there)


def of_timm(name: str, size: tuple[int, ...] | None = None, **options: Any) -> Network:
    """A timm model, in its own image size unless another is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = timm.get_pretrained_cfg(name).input_size if size is None else size
    return Network(f"timm {name}", partial(timm.create_model, name, **options), tuple(own))


def made_small(network: Network) -> Network:
    """A network of a timm model with smaller images, fewer blocks or channels, if it has one."""
    name, size = network.name.removeprefix("timm "), network.size
    if size[1] <= 160:
        return network
    options: dict[str, Any] = {"depth": 2}
    narrow = {"embed_dim": 96, "num_heads": 4}
    sides = [{"img_size": side} for side in (128, 126, 144)]
    choices = [{**side, **narrow} for side in sides] + [*sides, {}]
    for device in ("meta", "cpu"):  # some compute with values, which the first does not have
        for given in (each for more in choices for each in ({**options, **more}, more)):
            side = given.get("img_size", min(size[1], 256))
            smaller = of_timm(name, (size[0], side, side), **given)
            try:
                with torch.device(device), torch.no_grad():
                    smaller.make().eval()(torch.zeros(1, *smaller.size))
            except Exception:  # whatever its constructor says
                continue
            return smaller
    return network


def torchvision_networks() -> tuple[Network, ...]:
    """torchvision's classifiers with attention."""
    from torchvision.models import MaxVit, VisionTransformer
    from torchvision.models.swin_transformer import (
        PatchMergingV2,
        SwinTransformer,
        SwinTransformerBlockV2,
    )

    swin = {"patch_size": [4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [1, 2]}
    v2 = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}
    vit = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    maxvit = {"block_channels": [16, 32], "block_layers": [1, 1], "head_dim": 8}
    maxvit |= {"stem_channels": 16, "partition_size": 4, "stochastic_depth_prob": 0.0}
    small = (3, 64, 64)
    return (
        Network("torchvision ViT", lambda: VisionTransformer(64, 8, **vit), small),
        Network("torchvision Swin", lambda: SwinTransformer(**swin, window_size=[4, 4]), small),
        Network(
            "torchvision Swin v2", lambda: SwinTransformer(**swin, window_size=[4, 4], **v2), small
        ),
        Network("torchvision MaxViT", lambda: MaxVit((64, 64), **maxvit), small),
    )


SIDE = 64
SIZES = {  # what a small configuration has, where the config knows the setting
    "hidden_size": 32,
    "embed_dim": 16,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "image_size": 64,
    "patch_size": 8,
    "drop_path_rate": 0.0,
}
STAGES = {"embed_dim": 16, "image_size": 64, "drop_path_rate": 0.0}


def _configured(config: Any, sizes: dict[str, Any]) -> Any:
    """A configuration with small sizes for the settings that it has."""
    own = config().to_dict()
    given = {key: value for key, value in sizes.items() if isinstance(own.get(key), (int, float))}
    if isinstance(own.get("image_size"), (list, tuple)):
        given["image_size"] = [64, 64]
    if isinstance(own.get("depths"), (list, tuple)):
        given["depths"] = [min(2, depth) for depth in own["depths"]]
    return config(**given)


def hub_networks() -> Iterator[Network]:
    """Hugging Face's image models that build from a small configuration and compute attention."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    names = dict(auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)
    names |= dict(auto.MODEL_FOR_IMAGE_MAPPING_NAMES)
    seen: set[str] = set()
    for kind in sorted(names):
        each = names[kind] if isinstance(names[kind], str) else names[kind][0]
        config = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES.get(kind)
        for sizes in (SIZES, STAGES, {}):
            try:
                settings = _configured(getattr(transformers, config), sizes)
                make = partial(getattr(transformers, each), settings)
                side = getattr(settings, "image_size", None) or 224
                side = side if isinstance(side, int) else max(side)
                size = (getattr(settings, "num_channels", 3), side, side)
                if not _runs_with_attention(make, size):
                    continue
            except Exception:  # its sizes do not go together
                continue
            if each not in seen:
                yield Network(f"Hugging Face {each}", make, size)
            seen.add(each)
            break


def _runs_with_attention(make: Callable[[], nn.Module], size: tuple[int, ...]) -> bool:
    with torch.device("meta"):
        if sum(p.numel() for p in make().parameters()) > 30e6:
            return False
    try:
        return _computes_attention(make, size, "meta")
    except Exception:  # it needs values, or its sizes do not go together
        return _computes_attention(make, size)


# ------------------------------------------------------------------------------- what must hold


HEADS = ("num_heads", "num_attention_heads", "n_heads", "heads")
EXACT = 2e-5  # of values about 1, in single precision


def logits(output: Any) -> Tensor:
    """A tensor of a network's output: its logits, or the first one."""
    if isinstance(output, Tensor):
        return output
    values = output.values() if hasattr(output, "values") else output
    return logits(next(value for value in values if value is not None))


def run(model: nn.Module, images: Tensor) -> Tensor:
    """The output, with the random numbers of a masked autoencoder drawn alike in every run."""
    torch.manual_seed(5)
    with torch.no_grad():
        return logits(model(images))


def captured(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """All attention maps of a batch."""
    with capture.attention(model) as maps:
        run(model, images)
    return maps


class _Enough(Exception):
    """Raised in a network that need not run any further."""


def captured_alone(model: nn.Module, images: Tensor, name: str) -> Tensor:
    """The map of one layer; the network does not run any further."""
    maps: list[Tensor] = []

    def stop(_name: str, weights: Tensor) -> None:
        maps.append(weights)
        raise _Enough

    with suppress(_Enough), capture.attention(model, name, reduce=stop):
        run(model, images)
    return maps[0]


class Products(TorchFunctionMode):
    """Record matrix products and fused attention, independently of ``vitascope.capture``."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.products: list[tuple[list[Tensor], Tensor]] = []  # possible maps, result
        self.entered: list[tuple[int, Tensor]] = []  # after which product, what a layer is given
        self.handles = [
            module.register_forward_pre_hook(self._entering)
            for module in model.modules()
            if isinstance(module, (nn.Linear, nn.Conv2d))
        ]
        self.handles += [
            module.register_forward_hook(self._multihead, with_kwargs=True)
            for module in model.modules()
            if isinstance(module, nn.MultiheadAttention)
        ]

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()
        super().__exit__(*error)

    def _entering(self, _module: nn.Module, args: Any) -> None:
        if args:
            self.entered.append((len(self.products), args[0].detach().clone()))

    def _multihead(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        """``nn.MultiheadAttention`` by hand: what its output projection is given."""
        given = {**dict(zip(("query", "key", "value"), args, strict=False)), **kwargs}
        projected = [
            F.linear(given[name], weight, bias)
            for name, weight, bias in zip(
                ("query", "key", "value"),
                module.in_proj_weight.chunk(3),
                module.in_proj_bias.chunk(3),
                strict=True,
            )
        ]
        if not module.batch_first:
            projected = [part.transpose(0, 1) for part in projected]
        q, k, v = (p.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for p in projected)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        result = (weights @ v).transpose(1, 2).flatten(2)
        out = module.out_proj(result)
        expected = output[0] if module.batch_first else output[0].transpose(0, 1)
        if torch.allclose(out, expected, atol=EXACT):
            self.products.append(([weights], result))
            self.entered.append((len(self.products), result))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if func is F.scaled_dot_product_attention:
            weights, values = by_hand(*args, **kwargs)
            if torch.allclose((weights @ values).float(), out.float(), atol=EXACT):
                self.products.append(([weights], out))
        elif name in ("matmul", "__matmul__", "bmm", "einsum"):
            tensors = [a for a in args if isinstance(a, Tensor) and a.ndim > 1]
            maps = [m.detach().clone() for tensor in tensors for m in (tensor, tensor.mT)]
            self.products.append((maps, out.detach().clone()))
        return out


def is_mixed(weights: Tensor, used: Tensor) -> bool:
    """Whether each head of ``used`` is a linear combination of the heads of ``weights``."""
    if used.shape != weights.shape or weights.shape[1] < 2:
        return False
    before, after = (m.double().movedim(1, -1).flatten(0, 2) for m in (weights, used))
    some = torch.linspace(0, len(before) - 1, 2000).long()
    before, after = F.pad(before[some], (0, 1), value=1.0), after[some]
    solution = torch.linalg.lstsq(before, after).solution
    return bool((before @ solution - after).abs().max() < 1e-4)


def by_hand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """Map and values of fused attention, in double precision."""
    query, key, value = (tensor.double() for tensor in (query, key, value))
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (tensor.repeat_interleave(repeats, -3) for tensor in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        scores = scores + (attn_mask.double().log() if boolean else attn_mask)
    assert not is_causal
    return scores.softmax(-1).nan_to_num(0.0), value


def fingerprints(maps: Tensor) -> Tensor:
    """One number for each (T, S) matrix, sorted: the same whatever the axes before them."""
    flat = maps.double().reshape(-1, *maps.shape[-2:])
    generator = torch.Generator().manual_seed(1)
    mark = torch.rand(flat.shape[1:], generator=generator, dtype=torch.float64)
    return (flat * mark).sum((1, 2)).sort().values


@dataclass
class Findings:
    """What a network shows and which of the identities it breaks."""

    network: Network
    layers: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of one image
    direct: set[str] = field(default_factory=set)  # the product enters the output projection
    notes: dict[str, list[str]] = field(default_factory=dict)  # what is particular -> layers
    problems: list[str] = field(default_factory=list)
    measured: dict[str, list[str]] = field(default_factory=dict)  # instrument -> layers
    refused: dict[str, dict[str, str]] = field(default_factory=dict)  # instrument -> layer -> why

    def expect(self, holds: bool, problem: str) -> None:
        """Note a problem unless ``holds``."""
        if not holds:
            self.problems.append(problem)


def built(network: Network) -> nn.Module:
    """The network with random weights, none of them constant, for inference."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = network.make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    calibrate(model, random_images(network, 4))
    return model


def calibrate(model: nn.Module, images: Tensor) -> None:
    """Give batch norms the statistics of some images: else signals of random weights die out."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
        nn.Module.train(norm, True)
    with suppress(ValueError):  # one value a channel is left
        run(model, images)
    for norm in norms:
        nn.Module.train(norm, False)


def random_images(network: Network, number: int = 2) -> Tensor:
    """Images of noise that is smooth over some pixels."""
    generator = torch.Generator().manual_seed(3)
    side = network.size[1] // 4
    coarse = torch.randn(number, network.size[0], side, side, generator=generator)
    return F.interpolate(coarse, size=network.size[1:], mode="bilinear")


LIMIT = 120  # seconds of processor time for one network


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise :class:`TimeoutError` after so many seconds of processor time."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"takes more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def examine(network: Network, seconds: int = LIMIT) -> Findings:
    """Check all identities of one network; one that takes longer than ``seconds`` has a problem."""
    found = Findings(network)
    try:
        with limited(seconds):
            return _examine(network, found)
    except TimeoutError as error:
        found.problems.append(str(error))
    except Exception as error:
        found.problems.append(f"ends in {error!r}")
    return found


def _examine(network: Network, found: Findings) -> Findings:
    model, images = built(network), random_images(network)
    expected = run(model, images)
    structure = ModelStructure(model, images)
    check_instruments(found, structure, images)
    try:
        maps = captured(model, images)
    except vitascope.errors.UserError as error:
        found.refused["capture"] = {"": str(error)}
        maps = {}
    found.layers = {name: (len(m) // 2, *m.shape[1:]) for name, m in maps.items()}
    if maps:
        check_output(found, model, images, expected, maps)
        check_axes(found, model, images, maps)
        check_products(found, model, images, maps)
        check_coordinates(found, structure, images, maps)
    check_reasons(found, structure, images)
    with_centred_kernels(model)
    if found.measured.get("nonlocality"):
        check_patch(found, structure, images)
    without_activations(model.float())
    check_gratings(found, structure)
    return found


INSTRUMENTS = ("fourier", "variance", "norms", "cka")


def measured(
    structure: ModelStructure, images: Tensor, names: Iterable[str], **options: Any
) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Results of instruments, and why others have none, by unit."""
    refused: dict[str, Any] = {}
    gave_up: dict[str, str] = {}
    instruments = {}
    for name in names:
        try:
            instruments[name] = streaming_instruments()[name](structure, **options)
        except vitascope.errors.UserError as error:
            refused[name] = {u.name: why for u in structure.units if (why := no_grid(u))}
            refused[name] = refused[name] or {"": str(error)}
    torch.manual_seed(5)
    results = one_pass(structure, [images], instruments, refused=gave_up)
    return results, refused | {name: {"": why} for name, why in gave_up.items()}


def check_instruments(found: Findings, structure: ModelStructure, images: Tensor) -> None:
    """What must hold of the instruments that need no attention.

    They give finite numbers or refuse; a layer's CKA with itself is one; the network without a unit
    that adds nothing is the network as it is.
    """
    results, refused = measured(structure, torch.cat([images, images.flip(-1)]), INSTRUMENTS)
    found.refused |= refused
    for name, each in results.items():
        record = each.to_record()
        finite = all(
            bool(torch.as_tensor(array).isfinite().all()) for array in record.arrays.values()
        )
        found.expect(finite, f"{name}: not finite")
        found.measured[name] = list(record.values.get("units", record.values.get("rows", ())))
        found.refused[name] = dict(record.values.get("left_out", {}))
    if "cka" in results:
        own = torch.as_tensor(results["cka"].similarity).diagonal().float()
        found.expect(torch.allclose(own, torch.ones_like(own), atol=1e-5), "CKA with itself")
    check_lesions(found, structure, images)


def check_gratings(found: Findings, structure: ModelStructure) -> None:
    """Images of a grating: its frequency is the strongest after the first unit on a grid.

    In the network with centred kernels, whose first layers do not filter it out, and without
    activations, which give it overtones.
    """
    units = [unit for unit in structure.units if unit.name in found.measured.get("fourier", ())]
    if not units or min(units[0].grid) < 4:
        return
    channels, height, width = found.network.size
    cycles = 2 if min(units[0].grid) >= 8 else 1
    y, x = torch.arange(height) / height, torch.arange(width) / width
    phase = 2 * pi * (cycles * (y[:, None] + x) + torch.tensor([0.1, 0.35])[:, None, None])
    images = 30 * phase.cos().unsqueeze(1).expand(-1, channels, -1, -1)
    name = units[0].name
    spectrum = measured(structure, images, ["fourier"], units=name)[0]["fourier"]
    frequency, amplitude = spectrum.frequency[name], spectrum.amplitude[name]
    strongest = frequency[1:][amplitude[1:].argmax()]
    planted = 2 * cycles / max(units[0].grid)
    found.expect(
        abs(strongest - planted) <= frequency[1] / 2 + 1e-6,
        f"{name}: a grating of {planted:.3f} pi is strongest at {strongest:.3f} pi",
    )


def check_lesions(found: Findings, structure: ModelStructure, images: Tensor) -> None:
    """The network without a unit that adds nothing is the network as it is."""
    model = structure.model
    biases = [
        (tensor, tensor.detach().clone())
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
        if name.rpartition(".")[2] in ("bias", "running_mean")
    ]
    for bias, _ in biases:  # a layer behind the unit makes zeros of zeros then
        bias.data.zero_()
    units = structure.units
    summed = ("attention", "mlp")
    branches = {unit.kind: unit for unit in units if unit.branch and unit.kind in summed}
    for unit in branches.values():
        module = model.get_submodule(unit.name.partition("@")[0])
        with capture.without(model, units, unit.name):
            dropped = run(model, images)
        same = False
        for idle in (nothing, unchanged):  # x + f(x), or x + a * (f(x) - x)
            handle = module.register_forward_hook(idle)
            try:
                same = same or torch.allclose(run(model, images), dropped, atol=1e-5)
            finally:
                handle.remove()
        found.expect(same, f"{unit.name} adds nothing, and the network without it differs")
    for bias, before in biases:
        bias.data.copy_(before)


def nothing(_module: nn.Module, _inputs: Any, output: Any) -> Any:
    """A module's output with zeros in place of its first tensor."""
    if isinstance(output, Tensor):
        return torch.zeros_like(output)
    return (torch.zeros_like(output[0]), *output[1:])


def unchanged(_module: nn.Module, inputs: Any, output: Any) -> Any:
    """A module's output with its input in place of its first tensor, where the shapes agree."""
    first = output if isinstance(output, Tensor) else output[0]
    if not inputs or inputs[0].shape != first.shape:
        return output
    return inputs[0] if isinstance(output, Tensor) else (inputs[0], *output[1:])


def check_output(
    found: Findings, model: nn.Module, images: Tensor, expected: Tensor, maps: dict[str, Tensor]
) -> None:
    """Rows sum to one; the output has the same bits while maps are recorded."""
    with capture.attention(model):
        found.expect(torch.equal(run(model, images), expected), "capture changes the output")
    for name, weights in maps.items():
        off = float((weights.double().sum(-1) - 1).abs().max())
        found.expect(off < EXACT, f"{name}: rows are off 1 by {off:.1g}")


def check_axes(found: Findings, model: nn.Module, images: Tensor, maps: dict[str, Tensor]) -> None:
    """Heads are the layer's own; images together and apart have the same maps, in their order."""
    apart = [captured(model, image[None]) for image in images]
    alone = torch.cat([run(model, image[None]) for image in images])
    expected = run(model, images)
    scale = expected.std()
    independent = torch.allclose(alone, expected, atol=1e-4)
    if not independent:
        other = run(model, torch.cat([images[:1], images[1:].flip(-1)]))
        torch.manual_seed(6)
        with torch.no_grad():
            drawn_anew = logits(model(images))
        why = {
            "its output for an image depends on the batch": other[0] - expected[0],
            "its output depends on chance": drawn_anew - expected,
        }
        why = {note: change.abs().max() for note, change in why.items()}
        why = {note: list(maps) for note, change in why.items() if change > 1e-2 * scale}
        found.expect(bool(why), "an image alone has another output, not for chance or the batch")
        found.notes |= why
    heads: dict[str, int] = {}
    for name, weights in maps.items():
        module = name.partition("@")[0]
        heads[module] = heads.get(module, 0) + weights.shape[1]
    for module, count in heads.items():
        layer = model.get_submodule(module)
        stated = next((v for h in HEADS if isinstance(v := getattr(layer, h, None), int)), count)
        calls = sum(name.partition("@")[0] == module for name in maps)
        fits = count in (stated, stated * calls)
        found.expect(fits, f"{module}: {count} heads in {calls} calls, not {stated}")
    for name, weights in maps.items():
        both = torch.cat([one[name] for one in apart])
        same = both.shape == weights.shape and torch.allclose(both, weights, atol=1e-5)
        found.expect(same or not independent, f"{name}: images together have other maps than apart")


def check_products(
    found: Findings, model: nn.Module, images: Tensor, maps: dict[str, Tensor]
) -> None:
    """The map times the layer's values is the layer's result."""
    with Products(model) as spy:
        run(model, images)
    prints = [
        [(m.shape[-2:], m.numel(), fingerprints(m)) for m in candidates if m.shape[-1] > 0]
        for candidates, _ in spy.products
    ]
    used: set[int] = set()
    for name, weights in maps.items():
        mine = fingerprints(weights)
        for number, candidates in enumerate(prints):
            if number not in used and any(
                shape == weights.shape[-2:]
                and size == weights.numel()
                and torch.allclose(mark, mine, atol=1e-4)
                for shape, size, mark in candidates
            ):
                break
        else:
            mixed = any(is_mixed(weights, each) for maps, _ in spy.products for each in maps)
            found.expect(mixed, f"{name}: no product of the network uses this map")
            found.notes.setdefault("softmax before its heads are mixed", []).append(name)
            continue
        used.add(number)
        result = spy.products[number][1].flatten().sort().values
        for after, tensor in spy.entered:
            if after == number + 1 and tensor.numel() == result.numel():
                if torch.allclose(tensor.flatten().sort().values, result, atol=EXACT):
                    found.direct.add(name)
                break


def check_coordinates(
    found: Findings, structure: ModelStructure, images: Tensor, maps: dict[str, Tensor]
) -> None:
    """Coordinates of tokens: hand-set attention and bounds."""
    places, untraced = structure.coordinates, structure.untraced
    found.expect({*places, *untraced} == set(maps), "traced layers are not the captured ones")
    results, refused = measured(structure, images, ["nonlocality"])
    if refused:
        found.refused["nonlocality"] = {**untraced, **without_patches(structure)}
        return
    result = results["nonlocality"]
    found.measured["nonlocality"] = list(result.layers)
    found.refused["nonlocality"] = dict(result.left_out)
    for name in result.layers:
        tokens, shape = places[name], found.layers[name]
        found.expect(
            (*tokens.query.shape[:2], tokens.key.shape[1]) == (shape[0], *shape[2:]),
            f"{name}: coordinates {tuple(tokens.query.shape)} of a map {shape}",
        )
        distances = distances_of(tokens)
        farthest = float(distances.nan_to_num(0).max())
        found.expect(
            bool((result.distance[name] <= farthest + 1e-6).all()), f"{name}: beyond its grid"
        )
        grid = torch.tensor(tokens.grid)
        if max(tokens.step) == min(tokens.step):
            side = torch.tensor(images.shape[-2:]) / torch.tensor(tokens.step)
            possible = float((side.double() - 1).clamp(min=0).norm()) + 1
            found.expect(farthest <= possible, f"{name}: {farthest:.1f} patches on {grid.tolist()}")
        for k in (1, 2):
            aimed = to_the_right(tokens, k)
            if aimed is not None:
                value = float(attention_distance(aimed, distances)[0, 0])
                found.expect(abs(value - k) < 1e-3, f"{name}: {k} to the right is {value:.3f}")
        uniform = uniform_distance(tokens)
        if uniform is not None:
            found.expect(
                abs(result.uniform[name] - uniform) < 1e-3,
                f"{name}: uniform {result.uniform[name]:.3f}, {uniform:.3f} by its grid",
            )


def to_the_right(tokens: capture.TokenCoordinates, k: int) -> Tensor | None:
    """A map in which each query attends to the key ``k`` steps to its right, if any has one."""
    target = tokens.query + torch.tensor([0.0, k * tokens.step[1]])
    away = (target.unsqueeze(2) - tokens.key.unsqueeze(1)).norm(dim=-1).nan_to_num(1e9)
    hit = away < 1e-2 * min(tokens.step)
    weights = torch.zeros_like(away).scatter_(2, away.argmin(2, keepdim=True), 1.0)
    weights = weights * hit.any(-1, keepdim=True)
    return weights.unsqueeze(1) if bool(hit.any()) else None


def uniform_distance(tokens: capture.TokenCoordinates) -> float | None:
    """Mean distance on a grid of its own rows and columns, for attention over the whole image."""
    if len(tokens.query) > 1:
        return None
    query, key = (side[0][~side[0, :, 0].isnan()].double() for side in (tokens.query, tokens.key))
    sides = []
    for points in (query, key):
        down, across = (points[:, axis].unique() for axis in (0, 1))
        if len(down) * len(across) != len(points):
            return None
        sides.append(torch.cartesian_prod(down, across))
    step = torch.tensor(tokens.step, dtype=torch.float64)
    return float(torch.cdist(sides[0] / step, sides[1] / step).mean())


def with_centred_kernels(model: nn.Module) -> nn.Module:
    """Convolutions read the middle of their windows alone: one pixel, or two of an even kernel.

    A random kernel is heaviest somewhere in its window. After this, what a token is computed of has
    its middle in the middle of the windows, whatever the weights.
    """
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MaxPool2d):  # a maximum lies anywhere in its window
                pool = nn.AvgPool2d(child.kernel_size, child.stride, child.padding, child.ceil_mode)
                setattr(module, name, pool)
        if not isinstance(module, nn.Conv2d):
            continue
        with torch.no_grad():
            for axis in (2, 3):
                weight, size = module.weight, module.kernel_size[axis - 2]
                count = 2 - size % 2
                middle = weight.narrow(axis, (size - count) // 2, count)
                middle = middle.mean(axis, keepdim=True).expand_as(middle) * (size / count) ** 0.5
                weight.zero_()
                weight.narrow(axis, (size - count) // 2, count).copy_(middle)
    return model


def without_activations(model: nn.Module) -> None:
    """Replace the modules that are functions of each value alone."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            activation = "activations" in type(child).__module__ or isinstance(child, ACTIVATIONS)
            if activation and not list(child.parameters()):
                setattr(module, name, nn.Identity())


ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid)
PLACES = ((0.4, 0.4), (0.1, 0.8))  # parts of the image's height and width


def change_of_scores(before: Tensor, after: Tensor) -> Tensor:
    """How scores change, from two maps, up to a constant for each row. (W, T, S)

    Where one weight grows, the others of its row shrink; most scores are the same.
    """
    change = (after.clamp(min=1e-30).log() - before.clamp(min=1e-30).log()).sum(1)
    return change - change.median(-1, keepdim=True).values


def of_rows(change: Tensor) -> Tensor:
    """How much each row of (3, W, T, S) changes beyond what the columns do to all. (W, T)"""
    return (change - change.median(2, keepdim=True).values).abs().sum((0, 3))


def of_columns(change: Tensor) -> Tensor:
    """How much each column of (3, W, T, S) changes in most rows. (W, S)"""
    return change.median(2).values.abs().sum(0)


def check_patch(found: Findings, structure: ModelStructure, images: Tensor) -> None:
    """Other pixels at a query's coordinates change its row most; at a key's, its column.

    In the first layer of the network with centred kernels. The square of pixels around the
    coordinates is the smallest that changes the map a twentieth as much as one patch does: a pooled
    token need not read the pixel in its middle.
    """
    model, name = structure.model, next(iter(found.layers))
    if name not in found.measured["nonlocality"]:
        return
    tokens = structure.coordinates[name]
    try:
        before = captured_alone(model.double(), images[:1].double(), name)
        images = images.double()
    except RuntimeError:  # it computes some tensors in single precision
        before = captured_alone(model.float(), images[:1], name).double()
    generator = torch.Generator().manual_seed(7)

    def change(centre: Tensor, half: float) -> Tensor:
        """How the map changes with the pixels up to ``half`` from a point. (3, W, T, S)"""
        rows, columns = (
            slice(max(0, ceil(c - half)), floor(c + half) + 1) for c in centre.tolist()
        )
        changes = []
        for colour in torch.randn(3, images.shape[1], 1, 1, generator=generator):
            changed = images[:1].clone()
            changed[:, :, rows, columns] += 0.1 * colour  # so little that layers are about linear
            after = captured_alone(model, changed, name).double()
            changes.append(change_of_scores(before, after))
        return torch.stack(changes)

    sides = {"row": (tokens.query, of_rows)}
    if fills_a_grid(tokens.key):  # else pooled in raster order: no square of pixels is one key's
        sides["column"] = (tokens.key, of_columns)
    for side, (coordinates, strength) in sides.items():
        points, step = coordinates.reshape(-1, 2), torch.tensor(spacing(coordinates)).max()
        for place in PLACES:
            aim = torch.tensor(images.shape[-2:]) * torch.tensor(place)
            chosen = points[int((points - aim).norm(dim=-1).nan_to_num(1e9).argmin())]
            moved = strength(change(chosen, float(step) / 2))
            if float(moved.max()) < 1e-13:
                found.expect(False, f"{name}: no pixel at {chosen.tolist()} changes any {side}")
                continue
            for half in (0.5, *(h for h in (1, 2, 3, 4, 6, 8, 12, 16) if h < step / 2)):
                smaller = strength(change(chosen, half))
                if smaller.max() > moved.max() / 20:
                    moved = smaller
                    break
            moved = moved.flatten().masked_fill(points[:, 0].isnan(), -1)
            most = points[int(moved.argmax())]
            found.expect(
                bool(((most - chosen).abs() < 0.5).all()),
                f"{name}: pixels at {chosen.tolist()} change the {side} of {most.tolist()} most",
            )


# ------------------------------------------------------------------------------- why not


def check_reasons(found: Findings, structure: ModelStructure, images: Tensor) -> None:
    """Every reason of a refusal is confirmed by an experiment of its own, or is a problem."""
    reasons = {
        (instrument, why, name)
        for instrument, each in found.refused.items()
        for name, why in each.items()
    }
    for instrument, why in sorted({pair[:2] for pair in reasons}):
        experiment = next((test for part, test in EXPERIMENTS.items() if part in why), None)
        if experiment is None:
            found.expect(False, f"{instrument}: no experiment for the reason {why!r}")
            continue
        names = sorted(name for *pair, name in reasons if pair == [instrument, why])
        for name in dict.fromkeys((names[0], names[-1])):
            torch.manual_seed(5)
            true = experiment(structure, images, name, why)
            found.expect(true, f"{instrument}: not confirmed of {name}: {why}")


def inputs_and_output(model: nn.Module, images: Tensor, name: str) -> tuple[Any, Tensor]:
    """What one run of a module is given, and the tensor that it gives."""
    module, _, number = name.partition("@")
    runs: list[tuple[Any, Tensor]] = []
    handle = model.get_submodule(module).register_forward_hook(
        lambda _module, args, output: runs.append((args, logits(output)))
    )
    try:
        run(model, images)
    finally:
        handle.remove()
    return runs[int(number or 1) - 1]


def has_no_map(structure: ModelStructure, images: Tensor, _name: str, _why: str) -> bool:
    """No softmax over the last axis multiplies anything."""
    with SoftmaxProducts() as spy:
        run(structure.model, images[:1])
    return spy.number == 0


class SoftmaxProducts(TorchFunctionMode):
    """Count products of a softmax over the last axis with something, and fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.softmaxes: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name == "softmax":
            axis = (kwargs or {}).get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, out.ndim - 1):
                self.softmaxes.append(out.detach().clone())
        elif name == "scaled_dot_product_attention":
            self.number += 1
        elif name in ("matmul", "__matmul__", "bmm", "einsum"):
            tensors = [a for a in args if isinstance(a, Tensor) and a.ndim > 1]
            self.number += any(
                each.numel() == soft.numel()
                and torch.equal(each.flatten().sort().values, soft.flatten().sort().values)
                for each in tensors
                for soft in self.softmaxes
            )
        return out


def over_channels(structure: ModelStructure, images: Tensor, name: str, _why: str) -> bool:
    """The map of the layer alone is as large for half of its tokens."""
    layer = structure.model.get_submodule(name.partition("@")[0])
    (first, *rest), _ = inputs_and_output(structure.model, images, name)
    shapes = []
    for tokens in (first, first.narrow(1 if first.ndim == 3 else 2, 0, first.shape[-2] // 2)):
        with torch.no_grad(), capture.attention(layer) as maps, suppress(RuntimeError):
            layer(tokens, *rest)  # a size that it also is given may not fit what it adds
        shapes.append({each.shape[-2:] for each in maps.values()})
    return shapes[0] == shapes[1]


def by_chance(structure: ModelStructure, images: Tensor, name: str, _why: str) -> bool:
    """The features of one image are other ones with other random numbers."""
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with torch.no_grad(), capture.features(structure.model, name) as seen:
            structure.model(images[:1])
        outputs.append(seen[name])
    return not torch.equal(*outputs)


def share_of_one(structure: ModelStructure, images: Tensor, read: Callable[..., Tensor]) -> float:
    """How much more than the others one element of ``read()`` changes with some pixels.

    0 if the same ones change wherever the pixels are; the number of elements if each has a patch.
    """
    before = read(images[:1])
    changes = []
    for row, column in ((0.2, 0.2), (0.2, 0.7), (0.7, 0.2), (0.7, 0.7)):
        y, x = int(row * images.shape[-2]), int(column * images.shape[-1])
        changed = images[:1].clone()
        changed[:, :, y : y + 2, x : x + 2] += 3.0
        changes.append((read(changed) - before).double())
    shares = torch.stack([change / change.sum().clamp(min=1e-30) for change in changes])
    own = shares - shares.mean(0)  # beyond what the change of any pixel does to the element
    return float(own.amax(1).mean() * shares.shape[1])


def queries_are_no_patches(structure: ModelStructure, images: Tensor, name: str, _why: str) -> bool:
    """Changed pixels change no row more than the others, wherever they are."""
    rows = captured_alone(structure.model, images[:1], name).shape[-2]
    return rows == 1 or not follows_pixels(structure, images, name)


def cannot_be_followed(structure: ModelStructure, images: Tensor, name: str, why: str) -> bool:
    """Changed pixels change no token more than the others, wherever they are."""
    if "grid of" not in why:
        return not follows_pixels(structure, images, name)
    before = inputs_and_output(structure.model, images[:1], name)[1]

    def tokens(changed: Tensor) -> Tensor:
        after = inputs_and_output(structure.model, changed, name)[1]
        return (after - before).abs().sum(-1).flatten()

    return share_of_one(structure, images, tokens) < LOCAL


LOCAL = 1.0  # patches have 2 and more, queries for objects below 0.5


def follows_pixels(structure: ModelStructure, images: Tensor, name: str) -> bool:
    """Whether a row of the map has most of the change of a patch's pixels, each patch another."""
    before = captured_alone(structure.model, images[:1], name)

    def rows(changed: Tensor) -> Tensor:
        after = captured_alone(structure.model, changed, name)
        return of_rows(change_of_scores(before.double(), after.double())[None]).flatten()

    return share_of_one(structure, images, rows) > LOCAL


def keys_are_no_tokens(structure: ModelStructure, images: Tensor, name: str, _why: str) -> bool:
    """One changed token changes one window, though windows overlap, or one row of the map."""
    layer = structure.model.get_submodule(name.partition("@")[0])
    (first, *rest), _ = inputs_and_output(structure.model, images[:1], name)
    changed = first.clone()
    changed.flatten(1, -2)[:, first[0, ..., 0].numel() // 2] += 1.0
    with torch.no_grad(), capture.attention(layer) as before:
        layer(first, *rest)
    with torch.no_grad(), capture.attention(layer) as after:
        layer(changed, *rest)
    (one,), (other,) = before.values(), after.values()
    moved = (other - one).abs().amax(1) > 0  # (W, T, S)
    overlap = one.shape[0] * one.shape[-1] > 2 * first[0, ..., 0].numel()
    return (overlap and int(moved.any(2).any(1).sum()) == 1) or int(moved.any(2).sum()) == 1


def no_feature_map(structure: ModelStructure, images: Tensor, name: str, why: str) -> bool:
    """The shape of the unit's own output: one vector, one place, windows in the batch."""
    output = inputs_and_output(structure.model, images, name)[1]
    if "windows" in why:
        return output.shape[0] > len(images)
    places = [size for size in output.shape[1:] if size > 1]
    unit = next(unit for unit in structure.units if unit.name == name)
    if "single place" in why:  # channels, and perhaps tokens before it
        return len(places) <= 1 or output.shape[1] == 1 + unit.num_prefix_tokens
    return len(places) <= 1 and output.shape[0] == len(images)


def same_for_all(structure: ModelStructure, images: Tensor, name: str, _why: str) -> bool:
    """Nothing of the unit's output differs between two images, as far as single precision goes."""
    output = inputs_and_output(structure.model, images, name)[1].double()
    return bool((output[0] - output[1]).norm() < 1e-5 * output.norm())


def rows_in_the_batch(structure: ModelStructure, images: Tensor, name: str, _why: str) -> bool:
    """The unit's output has more rows than there are images."""
    return len(inputs_and_output(structure.model, images, name)[1]) > len(images)


EXPERIMENTS: dict[str, Callable[[ModelStructure, Tensor, str, str], bool]] = {
    "no attention map was seen": has_no_map,
    "attends over channels": over_channels,
    "depends on the image or on chance": by_chance,
    "no patch attends, only": queries_are_no_patches,
    "its keys are no patches": keys_are_no_tokens,
    "cannot be followed back": cannot_be_followed,
    "one vector an image": no_feature_map,
    "a single place is left": no_feature_map,
    "windows an image": no_feature_map,
    "the same for all images": same_for_all,
    "rows for": rows_in_the_batch,
}


# ------------------------------------------------------------------------------- all


def all_networks() -> Iterator[Network]:
    """Every network of the sweep, each found when it is asked for."""
    yield from timm_networks()
    yield from torchvision_networks()
    yield from hub_networks()
