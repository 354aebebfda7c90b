"""What a masked autoencoder makes of an image of which it sees a part."""

from tinyvit.probe.pictures import new_figure, show_image


def draw_reconstructions(originals, visible, guessed):
    """A matplotlib Figure of images (n, C, H, W), pixels from 0 to 1: a column an image, and below one another the
    original, the patches that the encoder sees, and the same with the decoder's guesses in the gaps.

    He et al. 2022, "Masked autoencoders are scalable vision learners", figures 2 and 3.
    """
    figure, panels = new_figure(1.05 * len(originals) + 0.5, 3.4, 3, len(originals), squeeze=False)
    for row, name, images in zip(panels, ("original", "seen", "guessed"), (originals, visible, guessed)):
        row[0].set_ylabel(name, fontsize=8)
        for ax, image in zip(row, images):
            show_image(ax, image)
    return figure
