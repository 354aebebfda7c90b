"""What a masked autoencoder makes of an image of which it sees a part."""

from tinyvit.probe.pictures import image_rows


def draw_reconstructions(originals, visible, guessed):
    """A matplotlib Figure of images (n, C, H, W), pixels from 0 to 1: a column an image, and below one another the
    original, the patches that the encoder sees, and the same with the decoder's guesses in the gaps.

    He et al. 2022, "Masked autoencoders are scalable vision learners", figures 2 and 3.
    """
    return image_rows([("original", originals), ("seen", visible), ("guessed", guessed)])
