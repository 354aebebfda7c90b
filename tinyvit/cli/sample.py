"""tinyvit sample"""

import io
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from tyro.conf import UseAppendAction, arg

from tinyvit.cli.model_options import ModelOptions, class_number, computing, file_to_write
from tinyvit.cli.parsing import check_least
from tinyvit.data.pictures import gif, grid, png
from tinyvit.files import write
from tinyvit.progress import tqdm
from tinyvit.text import printable
from tinyvit.training.sampling import sample

ENDINGS = (".npy", ".png", ".gif")
FRAMES = 40  # of a GIF, at most
STEPS = 50  # by default
STRIP = 10  # states on the way that a strip shows


@dataclass(frozen=True, kw_only=True)
class Sample(ModelOptions):
    """Generate images of the given classes with a trained diffusion model."""

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

    def __call__(self):
        if () in self.class_:
            raise ValueError("expected names or numbers after --class, got none")
        check_least(self, count=1, seed=0)
        path = file_to_write(self.out, "out", ENDINGS)
        ending = path.suffix.lower()
        if self.strip and ending != ".png":
            raise ValueError(f"--strip is a picture: expected --out with the ending .png, got {self.out!r}")
        trained = self.load()
        if trained.config.task != "diffusion":
            raise ValueError(f"{trained.folder.path}: the task {trained.config.task!r} makes no images; sample needs a "
                             "run of the task 'diffusion', such as tinyvit train dit-digits makes")  # fmt: skip
        prepared, classes = trained.preprocessing, trained.preprocessing.classes
        numbers = [class_number(name, classes) for name in sum(self.class_, ()) or classes]
        labels = np.repeat(numbers, self.count)
        mean, std = (np.array(values)[:, None, None] for values in (prepared.mean, prepared.std))
        levels = trained.task.levels
        steps = min(STEPS, len(levels)) if self.steps is None else self.steps
        keep = min(steps + 1, {".gif": FRAMES, ".png": STRIP * self.strip}.get(ending, 0))
        bar = tqdm(total=len(labels) * steps, unit="step", desc=f"{len(labels)} images", disable=None, leave=False)
        with computing(trained, self), bar:
            made = sample(
                trained.learner, levels, labels, steps=steps, guidance=self.guidance, method=self.sampler,
                seed=self.seed, limits=(-mean / std, (1 - mean) / std), threads=self.threads, keep=keep,
                progress=bar.update,
            )  # fmt: skip
        images, states = (np.clip(x * std + mean, 0, 1).astype("float32") for x in (made.images, made.steps))
        columns = self.count if len(images) > self.count <= 20 else round(len(images) ** 0.5 + 0.49)
        if ending == ".npy":
            np.save(content := io.BytesIO(), images)
            content = content.getvalue()
        elif ending == ".gif":
            content = gif([grid(state, columns) for state in states])
        elif self.strip:
            content = png(grid(np.concatenate(states.swapaxes(0, 1)), len(states)))
        else:
            content = png(grid(images, columns))
        write(path, content)
        names = [classes[number] for number in numbers]
        self.show(
            {"out": str(path), "images": len(labels), "classes": names, "shape": list(images.shape), "steps": steps,
             "guidance": self.guidance, "sampler": self.sampler, "seed": self.seed},
            f"{len(labels)} images, {self.count} per class ({', '.join(map(printable, names))}): {printable(path)}",
        )  # fmt: skip
