"""tinyvit sample"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import UseAppendAction, arg

from tinyvit.cli.model_options import ModelOptions, class_number, computing
from tinyvit.cli.parsing import parse
from tinyvit.files import expanded
from tinyvit.text import printable

ENDINGS = (".npy", ".png", ".gif")
FRAMES = 40  # of a GIF, at most
STEPS = 50  # by default
STRIP = 10  # states on the way that a strip shows


@dataclass(frozen=True, kw_only=True)
class SampleOptions(ModelOptions):
    """Images of a trained diffusion model's own, of the classes that are asked for."""

    class_: Annotated[UseAppendAction[tuple[tuple[str, ...], ...]], arg(name="class", metavar="NAME…")] = ()
    """Classes by name or number, from 0; by default all of them."""
    count: int = 8
    """Images of each class."""
    guidance: float = 1.0
    """How often the class counts: above 1 the images are clearer and more alike, 0 leaves the class out. It needs a
    model that was trained with label dropout."""
    steps: int | None = None
    """Steps from noise to an image, at most as many as the model was trained with; by default 50, or that many."""
    sampler: Literal["ddim", "ddpm"] = "ddim"
    """How a step goes: without new noise (ddim), which needs few steps, or with it (ddpm)."""
    seed: int = 0
    """Seed of all noise. The same seed gives the same images, on any number of threads."""
    out: str = "samples.png"
    """File to write: .npy for an array (n, C, H, W) of float32 from 0 to 1, .png for a picture of all images, .gif
    for one that moves from noise to the images."""
    strip: bool = False
    """Whether the .png shows what each image was on its way, a row an image."""


def sample(rest):
    """tinyvit sample RUN"""
    options = parse(SampleOptions, rest, "tinyvit sample")
    if () in options.class_:
        raise ValueError("expected names or numbers after --class, got none")
    ending = check(options)

    import numpy as np

    from tinyvit.files import write
    from tinyvit.progress import tqdm
    from tinyvit.training.sampling import sample as draw

    trained = options.load()
    if trained.config.task != "diffusion":
        raise ValueError(
            f"{trained.folder.path}: the task {trained.config.task!r} makes no images; sample needs a run of the task "
            "'diffusion', such as tinyvit train dit-digits makes"
        )
    prepared, classes = trained.preprocessing, trained.preprocessing.classes
    numbers = [class_number(name, classes) for name in sum(options.class_, ()) or classes]
    labels = np.repeat(numbers, options.count)
    mean, std = (np.array(values)[:, None, None] for values in (prepared.mean, prepared.std))
    levels = trained.task.levels
    steps = min(STEPS, len(levels)) if options.steps is None else options.steps
    keep = min(steps + 1, {".gif": FRAMES, ".png": STRIP * options.strip}.get(ending, 0))
    with (
        computing(trained, options),
        tqdm(total=len(labels) * steps, unit="step", desc=f"{len(labels)} images", disable=None, leave=False) as bar,
    ):
        made = draw(
            trained.learner, levels, labels, steps=steps, guidance=options.guidance, method=options.sampler,
            seed=options.seed, limits=(-mean / std, (1 - mean) / std), threads=options.threads, keep=keep,
            progress=bar.update,
        )  # fmt: skip
    shown = [np.clip(images * std + mean, 0, 1).astype("float32") for images in (made.images, made.steps)]
    path = Path(expanded(options.out))
    write(path, content(ending, *shown, options))
    if options.json:
        print(json.dumps({
            "out": str(path), "images": len(labels), "classes": [classes[number] for number in numbers],
            "shape": list(made.images.shape), "steps": steps, "guidance": options.guidance,
            "sampler": options.sampler, "seed": options.seed,
        }))  # fmt: skip
    else:
        print(f"{len(labels)} images, {options.count} of each of {', '.join(printable(classes[n]) for n in numbers)}: "
              f"{printable(path)}")  # fmt: skip


def check(options):
    """The ending of the file to write; ValueError for options that can't be used, whatever the run."""
    ending = Path(options.out).suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"out must end in {', '.join(ENDINGS)}, got --out {options.out!r}")
    if options.count < 1:
        raise ValueError(f"count must be at least 1, got {options.count}")
    if options.seed < 0:
        raise ValueError(f"seed must be at least 0, got {options.seed}")
    path = Path(expanded(options.out))
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for --out {options.out!r}; make it first")
    if path.is_dir():
        raise ValueError(f"--out {options.out!r} is a folder; give a file")
    if options.strip and ending != ".png":
        raise ValueError(f"--strip is a picture: expected --out with the ending .png, got {options.out!r}")
    return ending


def content(ending, images, steps, options):
    """The bytes of the file."""
    import io

    import numpy as np

    from tinyvit.data.pictures import gif, grid, png

    if ending == ".npy":
        buffer = io.BytesIO()
        np.save(buffer, images)
        return buffer.getvalue()
    if options.strip:
        return png(grid(np.concatenate(steps.swapaxes(0, 1)), len(steps)))
    columns = options.count if len(images) > options.count and options.count <= 20 else round(len(images) ** 0.5 + 0.49)
    if ending == ".png":
        return png(grid(images, columns))
    return gif([grid(state, columns) for state in steps])
