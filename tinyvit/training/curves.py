"""Loss and accuracy by epoch, as a picture."""

import io
from math import nan


def draw_curves(history, part):
    """The rows of metrics.jsonl, with what was evaluated (`part`, as test), as the bytes of a PNG file."""
    from matplotlib.figure import Figure

    epochs = [row["epoch"] for row in history]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    marker = "o" if len(epochs) < 30 else None
    for axes, what, scale in ((loss, "loss", 1), (accuracy, "accuracy", 100)):
        for name, label, color in (("train", "train, as augmented", "tab:gray"), (part, part, "tab:blue")):
            values = [row[f"{name}_{what}"] for row in history]
            values = [nan if value is None else scale * value for value in values]
            axes.plot(epochs, values, color=color, marker=marker, markersize=3, label=label)
        axes.set_xlabel("epoch")
        axes.set_xlim(0, max(epochs) + 1)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        axes.xaxis.get_major_locator().set_params(integer=True)
    loss.set_title("loss")
    accuracy.set_title(f"accuracy in %, {part} {100 * history[-1][f'{part}_accuracy']:.2f} at the end")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
