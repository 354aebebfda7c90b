"""A contrastive task: find an image's mirror image among those of the batch. Importing this file registers "mirrored".

Zᵢ are the model's outputs for the images, Mⱼ those for their mirror images:
L = −mean log softmax(Z Mᵀ / √K) at i = j. Rows Z are this rank's, M those of all ranks.
"""

import numpy as np

from tinyvit import Key, nn
from tinyvit import functional as F
from tinyvit.training.inference import sum_over
from tinyvit.training.tasks import Task, register


@register("mirrored")
class Mirrored(Task):
    mixes_samples = gathers = True

    def begin(self, model, total_steps, dataset):
        super().begin(model, total_steps, dataset)
        weight = model.head.weight  # which starts at zero: all outputs would be alike, and so would remain
        weight.data = Key(0).at("head").generator().standard_normal(weight.shape)

    def loss(self, model, batch, ctx):
        images = batch["images"]
        z, c_images = model(images, ctx)                                       # (b, K)
        mirrored, c_mirrored = model(images[:, :, :, ::-1], ctx)
        keys, c_keys = F.gather_batch(mirrored, ctx and ctx.join)               # (B, K)
        scale = z.shape[1] ** -0.5
        own = np.arange(len(keys))[c_keys.where]
        loss, c_loss = F.cross_entropy(z @ keys.T * scale, own)

        def backward(dloss=1.0):
            dscores = F.cross_entropy_backward(dloss, c_loss) * scale
            dmirrored = F.gather_batch_backward(dscores.T @ z, c_keys)
            model.backward(dmirrored, c_mirrored)
            return model.backward(dscores @ keys, c_images)

        return loss, backward, {}, nn.buffer_updates((c_images, c_mirrored))

    def evaluate(self, model, dataset, threads=None, stop=None):
        images = dataset.normalise(dataset.images, model.dtype.name)
        total = sum_over(images, lambda images, where: (model(images[where])[0] ** 2).mean(1).sum())
        return {self.headline: float(total) / len(images)}
