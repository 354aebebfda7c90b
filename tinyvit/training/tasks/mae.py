"""The masked autoencoder: a ViT that sees a quarter of an image's patches and guesses the pixels of the others.

He et al. 2022, "Masked autoencoders are scalable vision learners".
"""

from dataclasses import dataclass
from math import prod

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.functional.patches import as_pair, grid_of
from tinyvit.functional.tokens import rows_of
from tinyvit.keys import Key
from tinyvit.models.mae import MaskedAutoencoder
from tinyvit.models.vit_config import without_classes
from tinyvit.training.tasks.task import Options, Task, register
from tinyvit.validation import PositiveInt, Share, require

EPS = 1e-6  # of the variance of a patch's pixels


@dataclass(frozen=True)
class MaskedAutoencoderOptions(Options):
    """The share of hidden patches, what is guessed of them, and the decoder."""

    share: Share = 0.75
    """Share of each image's patches that are hidden, rounded to whole patches."""
    normalise: bool = True
    """Whether the pixels of each patch are normalised, to mean 0 and variance 1, before they are compared."""
    decoder_dim: PositiveInt = 64
    """Width of the decoder; a multiple of 4, for its sines and cosines, and of decoder-heads."""
    decoder_depth: PositiveInt = 2
    """Blocks of the decoder."""
    decoder_heads: PositiveInt = 4
    """Attention heads of the decoder."""

    def __post_init__(self):
        super().__post_init__()
        require(self.decoder_dim % 4 == self.decoder_dim % self.decoder_heads == 0, "objective.decoder-dim must be a "
                f"multiple of 4 and of the {self.decoder_heads} objective.decoder-heads", self.decoder_dim)  # fmt: skip


class Masking(Task):
    """A share of each image's patches is hidden. What is kept of the module that learns is its ViT, `encoder`."""

    static, labels_pixels = True, None
    only = {"architecture": "vit", "optim.keep_patches": 1}  # noqa: RUF012 (only read)

    @classmethod
    def check(cls, config):
        super().check(config)
        for size in (as_pair(config.model.img_size), *((side, side) for side in config.optim.small_sizes)):
            rows, columns = grid_of(size, as_pair(config.model.patch_size))
            visible_patches(config.objective.share, rows * columns)

    def backbone(self, model):
        return model.encoder


@register("mae")
class MaskedAutoencoding(Masking):
    """Mean squared error of the guessed pixels of hidden patches, section 3. Lower is better; labels aren't used.

    What is evaluated, exported and fine-tuned is the encoder, a ViT without a head.
    """

    options = MaskedAutoencoderOptions

    @classmethod
    def check(cls, config):
        super().check(config)
        numbers = config.model.in_chans * prod(as_pair(config.model.patch_size))
        require(numbers > 1 or not config.objective.normalise, "objective.normalise makes 0 of a patch that is a single"
                " number; expected more numbers in a patch, or --objective.no-normalise", numbers)  # fmt: skip

    def build(self, seed=0, device="cpu", precision=None):
        o = self.config.objective
        return MaskedAutoencoder(without_classes(self.config.model), o.decoder_dim, o.decoder_depth, o.decoder_heads,
                                 seed, device=device, precision=precision)  # fmt: skip

    def batch(self, images, targets, key):
        return {"images": images, "order": random_order(images, self.config.model.patch_size, key)}

    def predictions(self, model, batch, ctx):
        """The predicted pixels of the hidden patches, their targets, and the model's cache."""
        images, order = batch["images"], batch["order"]
        visible = visible_patches(self.config.objective.share, order.shape[1])
        pixels, cache = model(images, order, visible, ctx)
        return pixels, self.targets(images, order[:, visible:]), cache

    def targets(self, images, hidden):
        """The pixels (B, n, C·P·Q) of the hidden patches (B, n)."""
        patches, _ = F.patchify(images, self.config.model.patch_size)
        patches, _ = F.take_tokens(patches, hidden)
        return normalise_patches(patches) if self.config.objective.normalise else patches

    def reconstruct(self, model, images):
        """`images` with the hidden patches 0, the mean colour, and with guesses in their places.

        The decoder that has learned normalised pixels says nothing about a patch's mean and variance; these are the
        original's, as in the paper's figures. The same patches of an image are hidden each time.
        """
        order = self.batch(images, None, Key(0))["order"]
        visible = visible_patches(self.config.objective.share, order.shape[1])
        guessed, _ = model(images, order, visible)
        patches, _ = F.patchify(images, self.config.model.patch_size)
        hidden = rows_of(order), order[:, visible:]
        if self.config.objective.normalise:
            mean, deviation = mean_and_deviation(patches[hidden])
            guessed = guessed * deviation + mean
        found = []
        for pixels in (0, guessed):
            filled = patches.copy()
            filled[hidden] = pixels
            found.append(F.unpatchify(filled, self.config.model.patch_size, images.shape[2:])[0])
        return tuple(found)


def normalise_patches(patches):
    """Each patch (B, N, C·P·Q) with mean 0 and variance 1: (x − μ) / √(σ² + 1e-6)."""
    mean, deviation = mean_and_deviation(patches)
    return (patches - mean) / deviation


def mean_and_deviation(patches):
    """μ and √(σ² + 1e-6) of each patch, (B, N, 1) each; σ² is a sum divided by one less than the number of pixels."""
    mean = patches.mean(-1, keepdims=True)
    variance = ((patches - mean) ** 2).sum(-1, keepdims=True) / max(1, patches.shape[-1] - 1)
    return mean, (variance + EPS) ** 0.5


def visible_patches(share, patches):
    """How many of an image's patches stay visible when a share of them is hidden; ValueError if that is none or all."""
    visible = patches - round(share * patches)
    if not 0 < visible < patches:
        raise ValueError(f"objective.share {share} hides {patches - visible} of {patches} patches; hide some, not all")
    return visible


def random_order(images, patch_size, key):
    """The numbers of each image's patches in an order of its own, (B, N)."""
    rows, columns = grid_of(images.shape[2:], as_pair(patch_size))
    return key.at("mask").uniform((len(images), rows * columns), array_module(images)).argsort(1)
