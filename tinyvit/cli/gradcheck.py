"""tinyvit gradcheck"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from tyro.conf import Positional, arg

from tinyvit.cli.model_options import model_and_task
from tinyvit.cli.parsing import check_least
from tinyvit.gradcheck import BOUNDS, MODEL_BOUNDS, check, check_model, operation_cases
from tinyvit.models import create_model

# Distinct sizes everywhere, so that no two axes can be mixed up unnoticed.
SMALL = dict(img_size=(8, 12), patch_size=(4, 3), in_chans=2, num_classes=5, embed_dim=24, depth=3, mlp_ratio=2.0)


@dataclass(frozen=True)
class Gradcheck:
    """Compare every hand-written gradient with the complex step and with central differences, in float64: those of the
    operations, and of a model by its name or of the shape of a run's."""

    model: Annotated[Positional[str], arg(metavar="[MODEL]")] = "(small)"
    """The name of a model, or a run folder; by default a small ViT."""
    directions: int = 20
    """Random directions through all parameters and the input of the model."""
    batch_size: int = 2
    """Images that the model is checked with."""
    seed: int = 0
    """Seed of the random inputs."""

    def __call__(self):
        check_least(self, directions=1, batch_size=1, seed=0)
        small, seed = self.model == "(small)", self.seed
        model = create_model("vit_tiny_patch16_224", **SMALL) if small else model_and_task(self.model)[0]
        images = np.random.default_rng(seed).standard_normal((self.batch_size, *model.image_shape))
        title = f"{type(model).__name__ if small else self.model} ({model.num_parameters():,} parameters)"
        whole = partial(check_model, model, images, directions=self.directions, seed=seed)
        checks = [(name, BOUNDS, partial(check, *case, seed=seed)) for name, *case in operation_cases(seed)]
        width = max(24, len(title))
        print(f"{'gradient of':<{width}}  {'complex step':>13}  {'central diff.':>13}  {'time':>7}")
        wrong = []
        for name, bounds, run_check in [*checks, (title, MODEL_BOUNDS, whole)]:
            started = time.perf_counter()
            reports = {method: run_check(method=method) for method in ("complex", "central")}
            right = all(report.max_error < bounds[method] for method, report in reports.items())
            wrong += [] if right else [(name, reports)]
            errors = "  ".join(f"{report.max_error:>13.1e}" for report in reports.values())
            print(f"{name:<{width}}  {errors}  {time.perf_counter() - started:5.1f} s  {'right' if right else 'WRONG'}")
        print(
            "\nlargest |backward − derivative| / max(1, |derivative|); "
            f"right is below {BOUNDS['complex']:.0e} and {BOUNDS['central']:.0e} "
            f"(the whole model: {MODEL_BOUNDS['complex']:.0e} and {MODEL_BOUNDS['central']:.0e})"
        )
        for name, reports in wrong:
            print(f"\n{name}", *reports.values(), sep="\n")
        return 1 if wrong else 0
