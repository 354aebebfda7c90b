"""tinyvit summary"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.cli.model_options import model_and_task


@dataclass(frozen=True)
class Summary:
    """A model by its name, or that of a run or a preset, layer by layer; without one, a line for each model that has a
    name. Multiply-adds count the matrix products of a forward; activations are what its backward needs, in float32."""

    model: Annotated[Positional[str], arg(metavar="[MODEL]")] = "*"
    """The name of a model or a preset, or a run folder, or the name of a run that comes with tinyvit, such as
    cifar10-cpu; or a pattern such as "swin*", whose models are listed."""
    batch_size: int = 1
    """Images in a batch."""
    img_size: int | None = None
    """Side of the images; by default the model's."""
    num_classes: int | None = None
    """Classes; by default the model's."""
    recompute: bool = False
    """Whether activations are those of a training with --recompute."""

    def __call__(self):
        from tinyvit.models import create_model, list_models
        from tinyvit.models.summary import format_summary, summarize

        fields = {"img_size": self.img_size, "num_classes": self.num_classes}
        fields = {name: value for name, value in fields.items() if value is not None}
        names = list_models(self.model) if "*" in self.model else []
        for name in names:
            rows = summarize(create_model(name, device="meta", **fields), self.batch_size)
            parameters, multiply_adds = sum(row.parameters for row in rows), sum(row.multiply_adds for row in rows)
            print(f"{name:<36}{parameters:>15,} parameters{multiply_adds:>20,} multiply-adds", flush=True)
        if names:
            return
        model, task = model_and_task(self.model, "meta", **fields)
        print(format_summary(summarize(model, self.batch_size, self.recompute)))
        if task is not None:
            learner = task.build(device="meta")
            more = learner.num_parameters() - task.backbone(learner).num_parameters()
            if more:
                print(f"\nthe task {task.name!r} trains {more:,} more parameters around this model")
