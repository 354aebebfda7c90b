"""tinyvit gradcheck"""

import time
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from tinyvit.cli.model_options import model_and_task
from tinyvit.cli.parsing import parse


@dataclass(frozen=True)
class GradcheckOptions:
    """Compare every hand-written gradient with the complex step and with central differences, in float64: those of the
    operations, and of a model by its name or of the shape of a run's."""

    model: Annotated[Positional[str], arg(metavar="MODEL")] = "(small)"
    """The name of a model, or a run folder; by default a small ViT."""
    directions: int = 20
    """Random directions through all parameters and the input of the model."""
    batch_size: int = 2
    """Images that the model is checked with."""
    seed: int = 0
    """Seed of the random inputs."""


def gradcheck(rest):
    """tinyvit gradcheck [MODEL], tinyvit gradcheck RUN; status 1 if a gradient is wrong."""
    options = parse(GradcheckOptions, rest, "tinyvit gradcheck")
    name = options.model
    for option in ("directions", "batch_size"):
        if getattr(options, option) < 1:
            raise ValueError(f"{option.replace('_', '-')} must be at least 1, got {getattr(options, option)}")
    if options.seed < 0:
        raise ValueError(f"seed must be at least 0, got {options.seed}")

    import numpy as np

    from tinyvit.gradcheck import BOUNDS, MODEL_BOUNDS, check, check_model, operation_cases

    model = small_model() if name == "(small)" else model_and_task(name)[0]
    shape = (options.batch_size, *model.image_shape)
    images = np.random.default_rng(options.seed).standard_normal(shape)

    def checks():
        for operation, *case in operation_cases(options.seed):
            yield operation, BOUNDS, lambda method, case=case: check(*case, method, seed=options.seed)
        title = f"{type(model).__name__ if name == '(small)' else name} ({model.num_parameters():,} parameters)"
        yield (
            title,
            MODEL_BOUNDS,
            lambda method: check_model(model, images, method=method, directions=options.directions, seed=options.seed),
        )

    width = max(24, len(name) + 28)  # the widest line is the model's
    print(f"{'gradient of':<{width}}  {'complex step':>13}  {'central diff.':>13}  {'time':>7}")
    wrong = []
    for title, bounds, run_check in checks():
        started = time.perf_counter()
        reports = {method: run_check(method) for method in ("complex", "central")}
        right = all(report.max_error < bounds[method] for method, report in reports.items())
        wrong += [] if right else [(title, reports)]
        errors = "  ".join(f"{report.max_error:>13.1e}" for report in reports.values())
        print(f"{title:<{width}}  {errors}  {time.perf_counter() - started:5.1f} s  {'right' if right else 'WRONG'}")
    print(
        "\nlargest |backward − derivative| / max(1, |derivative|); "
        f"right is below {BOUNDS['complex']:.0e} and {BOUNDS['central']:.0e} "
        f"(the whole model: {MODEL_BOUNDS['complex']:.0e} and {MODEL_BOUNDS['central']:.0e})"
    )
    for title, reports in wrong:
        print(f"\n{title}", *reports.values(), sep="\n")
    return 1 if wrong else 0


def small_model():
    """A model with distinct sizes everywhere, so that no two axes can be mixed up unnoticed."""
    from tinyvit.models import create_model

    sizes = dict(img_size=(8, 12), patch_size=(4, 3), in_chans=2, num_classes=5, embed_dim=24, depth=3, mlp_ratio=2.0)
    return create_model("vit_tiny_patch16_224", **sizes)
