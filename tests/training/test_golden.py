"""Ten training steps with recorded losses: a change of any number is a change of the mathematics."""

import numpy as np
from strategies import images_for, redrawn

from tinyvit import ViT, ViTConfig, optim
from tinyvit.training import train_step

# The parity tests hold the same kind of trajectory to PyTorch's.
LOSSES = [
    1.640866063515,
    1.602801399175,
    1.582160782686,
    1.563866058469,
    1.545630463074,
    1.528321351750,
    1.510872935882,
    1.489041492720,
    1.457009710072,
    1.409436042896,
]


def test_ten_steps_of_adamw_have_the_recorded_losses():
    model = redrawn(ViT(ViTConfig(8, 4, 2, 5, embed_dim=12, depth=2, num_heads=3), dtype="float64"))
    optimizer = optim.AdamW(model, lr=1e-2, weight_decay=0.1)
    images, labels = images_for(model, 1, 8), np.arange(8) % 5
    losses = [train_step(model, optimizer, images, labels, clip_norm=1.0, threads=1).loss for _ in range(10)]
    np.testing.assert_allclose(losses, LOSSES, rtol=1e-9)
