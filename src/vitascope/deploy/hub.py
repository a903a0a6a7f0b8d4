"""A trained run for the Hugging Face hub: weights, ``config.json`` and a model card.

    model = HubModel.of_run("runs/a")
    model.save_pretrained("folder")  # or model.push_to_hub("user/name")
    again = HubModel.from_pretrained("folder")  # or a name on the hub
    again(again.transform("photo.jpg")[None]), again.classes

The three methods are huggingface_hub's ``PyTorchModelHubMixin``. ``config.json`` has the model's
name and arguments, its classes, how images are prepared, and what the card says; the card is made
from the run's record, so that every number in it has its seed, recipe and commit next to it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData, PyTorchModelHubMixin
from torch import Tensor, nn

from vitascope import record
from vitascope.capture import logits_of
from vitascope.errors import listed
from vitascope.loading import load
from vitascope.loading.model import Preprocessing
from vitascope.loading.opening import rebuilt

SHOWN = 50  # class names in the card


class HubModel(
    nn.Module,
    PyTorchModelHubMixin,
    library_name="vitascope",
    pipeline_tag="image-classification",
    tags=["vitascope", "image-classification"],
):
    """A classifier with its class names and image transform; logits come out.

    Args:
        model: Its name and arguments, as a run's ``config.yaml`` has them.
        preprocessing: The fields of :class:`vitascope.loading.model.Preprocessing`, and the
            classes.
        facts: What the card says of the training.
    """

    def __init__(
        self,
        model: dict[str, Any],
        preprocessing: dict[str, Any],
        facts: dict[str, Any] | None = None,
    ):
        super().__init__()
        self.network = rebuilt(model)
        self.facts = facts or {}
        self.network.eval()
        fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in preprocessing.items()}
        self._classes: tuple[str, ...] = fields.pop("classes")
        self._preprocessing = Preprocessing(**fields)

    @classmethod
    def of_run(cls, run: str | Path) -> "HubModel":
        """The model of a finished run.

        Raises:
            UserError: If there is none.
        """
        loaded = load(run, device="cpu")
        config = record.load_config(run)
        made = cls(
            model=record.plain(config["model"]),
            preprocessing={
                "classes": list(loaded.classes or ()),
                **loaded.preprocessing.to_record(),
            },
            facts=_facts(record.load(Path(run) / "record"), config),
        )
        made.network.load_state_dict(loaded.model.state_dict())
        return made.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, in the order of the outputs."""
        return self._classes

    def transform(self, image: Any) -> Tensor:
        """Decode, resize and normalise an image or its file. (C, H, W)"""
        return self._preprocessing.transform(image)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of normalised images. (B, K)"""
        return logits_of(self.network(images))

    @classmethod
    def _from_pretrained(cls, *, strict: bool = True, **how: Any) -> Any:
        """Load as the mixin does, but refuse missing tensors instead of leaving them random."""
        return super()._from_pretrained(strict=strict, **how)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Write the model card from the run's record: architecture, training and accuracy."""
        data = ModelCardData(
            library_name="vitascope",
            pipeline_tag="image-classification",
            tags=["vitascope", "image-classification"],
        )
        return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{self._card()}")

    def _card(self) -> str:
        facts, stated = self.facts, self._preprocessing
        size = " x ".join(map(str, stated.size or ()))
        rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
        return f"""# {facts.get("model", "An image classifier")}

Tells {len(self.classes)} classes apart: {listed(self.classes, SHOWN)}.

| | |
|---|---|
{rows}

Images: {size}, mean {_numbers(stated.mean)}, std {_numbers(stated.std)}, {stated.interpolation}
interpolation, the centre {100 * (stated.crop_pct or 1):g} % of the resized image.

```python
from vitascope.deploy.hub import HubModel

model = HubModel.from_pretrained("this folder or its name on the hub")
logits = model(model.transform("photo.jpg")[None])
print(model.classes[logits.argmax()])
```
"""


def _numbers(values: tuple[float, ...] | None) -> str:
    return ", ".join(f"{value:.4g}" for value in values or ())


def _facts(run: record.Record, config: Mapping[str, Any]) -> dict[str, str]:
    """The card's table, in words."""
    final, data, recipe = run.values["final"], config["data"], config["recipe"]
    facts = {
        "model": str(config["model"].get("name")),
        "started from": str(config["model"].get("origin", "random weights")),
        "images": f"{data['name']}, {data.get('train_images', '?')} to train on",
        "recipe": f"{recipe['name']}, {run.values['epochs']} epochs, lr {recipe['lr']:g}",
        "seed": str(run.seed),
        "commit": str(run.made.get("commit")),
        "made": f"{run.made.get('time')} in {run.seconds or 0:.0f} s",
    }
    shares = {"top-1": final.get("top1"), "top-5": final.get("top5")}
    tested = f"of {data['test_images']:,} test images" if data.get("test_images") else ""
    facts |= {
        name: f"{100 * value:.2f} % {tested}".strip()
        for name, value in shares.items()
        if value is not None
    }
    scores = {"NLL": final.get("test_nll"), "ECE": final.get("ece")}
    facts |= {name: f"{value:.4f}" for name, value in scores.items() if value is not None}
    return facts
