"""Masked patch prediction: which colour has what is hidden?

Dosovitskiy et al. 2021, appendix B.1.2, "Self-supervision".
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import constant, device_of
from tinyvit.functional.tokens import rows_of
from tinyvit.models.masked_patches import MaskedPatches
from tinyvit.models.vit_config import without_classes
from tinyvit.training.tasks.mae import Masking, random_order
from tinyvit.training.tasks.task import Options, register
from tinyvit.validation import Share

LEVELS = 8  # of each colour channel, where it is a class
REPLACED_SHARE, SWAPPED_SHARE = 0.8, 0.1  # of the chosen patches, by the mask token and by another patch


@dataclass(frozen=True)
class MaskedPatchesOptions(Options):
    """The share of patches to guess, and what is guessed of them."""

    share: Share = 0.5
    """Share of each image's patches whose colour is guessed: 80 % of them are replaced by a mask token, 10 % by another
    patch of the image, and 10 % are left as they are; all rounded to whole patches."""
    target: Literal["classes", "colour"] = "classes"
    """The target: the mean colour with three bits for each channel, as one of 512 classes; or as numbers, by their
    squared error."""


@register("masked-patches")
class MaskedPatchPrediction(Masking):
    """Cross-entropy of the hidden patches' mean colours, or their mean squared error. Labels aren't used.

    What is evaluated, exported and fine-tuned is the ViT, without a head.
    """

    options = MaskedPatchesOptions
    needs_training_set = True  # whose mean and std say what colours are

    def build(self, seed=0, device="cpu", precision=None):
        channels = self.config.model.in_chans
        outputs = LEVELS**channels if self.config.objective.target == "classes" else channels
        return MaskedPatches(without_classes(self.config.model), outputs, seed, device=device, precision=precision)

    def batch(self, images, targets, key):
        xp, rows_first = array_module(images), random_order(images, self.config.model.patch_size, key)
        rows, (B, N) = rows_of(rows_first), rows_first.shape
        chosen = round(self.config.objective.share * N)
        replaced, swapped = round(REPLACED_SHARE * chosen), round(SWAPPED_SHARE * chosen)
        patches, _ = F.patchify(images, self.config.model.patch_size)          # (B, N, C·P·Q)
        mask = xp.zeros((B, N), bool)
        mask[rows, rows_first[:, :replaced]] = True
        # Each swapped patch is overwritten by the one behind it in the random order.
        behind = xp.roll(rows_first, -1, 1)[:, replaced : replaced + swapped]
        corrupted = patches.copy()
        corrupted[rows, rows_first[:, replaced : replaced + swapped]] = patches[rows, behind]
        seen, _ = F.unpatchify(corrupted, self.config.model.patch_size, images.shape[2:])
        where = rows_first[:, :chosen]
        return {"images": seen, "mask": mask, "where": where, "targets": self.targets(patches[rows, where])}

    def targets(self, patches):
        """The mean colours of patches (B, n, C·P·Q): their classes (B, n), or the colours (B, n, C) as normalised."""
        channels = self.config.model.in_chans
        colours = patches.reshape(*patches.shape[:2], channels, -1).mean(-1)   # (B, n, C)
        if self.config.objective.target == "colour":
            return colours
        xp, device = array_module(colours), device_of(colours)
        mean, std = (constant(np.array(x), device, colours.dtype) for x in (self.train.mean, self.train.std))
        levels = xp.clip(xp.floor((colours * std + mean) * LEVELS), 0, LEVELS - 1).astype("int64")
        return (levels * constant(LEVELS ** np.arange(channels)[::-1], device, "int64")).sum(-1)

    def predictions(self, model, batch, ctx):
        """The predictions for the chosen patches, (B, n, K) or (B, n, C), their targets, and the model's cache."""
        predicted, cache = model(batch["images"], batch["mask"], batch["where"], ctx)
        return predicted, batch["targets"], cache

    def error(self, predicted, targets):
        """(the mean loss of predictions, the function dloss -> dpredicted)."""
        if self.config.objective.target == "colour":
            return super().error(predicted, targets)
        loss, cache = F.cross_entropy(predicted.reshape(-1, predicted.shape[-1]), targets.reshape(-1))
        return loss, lambda dloss: F.cross_entropy_backward(dloss, cache).reshape(predicted.shape)
