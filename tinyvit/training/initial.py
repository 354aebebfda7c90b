"""The weights of another run, to start a training from: all but the head, which starts at zero.

Dosovitskiy et al. 2021, section 3.2: the pre-trained head is removed, and a zero-initialised linear layer takes its
place; positions are interpolated where the images are larger.
"""

from dataclasses import fields, replace

from tinyvit.files import digest
from tinyvit.functional.patches import as_pair
from tinyvit.tensors import tensor_bytes
from tinyvit.training.trained import load_trained

HEAD = ("head.", "pre_logits.")
# What the model may have otherwise than the one whose weights it takes.
FREE = {
    "img_size", "num_classes", "head_hidden", "drop_rate", "attn_drop_rate", "drop_path_rate", "dynamic_img_size",
    "resize_positions",
}  # fmt: skip


def take_over(model, init):
    """Copy the weights that an `InitConfig` names into a ViT; returns the InitConfig with their SHA256.

    Raises ValueError for a run that can't be read, for weights other than those of the SHA256 that it states already,
    and for a model of another shape.
    """
    source = load_trained(init.run, "cpu", init.best)
    state, shape = source.model.state_dict(), source.config.model
    found = digest(tensor_bytes(state))
    if init.sha256 not in (None, found):
        raise ValueError(
            f"{init.run} holds other weights than those that this training began with (SHA256 {found}, not "
            f"{init.sha256}); start a new run"
        )
    differing = [
        f"{field.name} {getattr(shape, field.name)!r}, and not {getattr(model.config, field.name)!r}"
        for field in fields(shape)
        if field.name not in FREE and getattr(shape, field.name) != getattr(model.config, field.name)
    ]
    if differing:
        raise ValueError(f"the weights of {init.run} don't fit the model: they are for {'; '.join(differing)}")
    if as_pair(shape.img_size) != as_pair(model.config.img_size):
        state = source.model.at_img_size(model.config.img_size, init.resize_positions).state_dict()
    trunk = {name: array for name, array in state.items() if not name.startswith(HEAD)}
    model.load_state_dict({**model.state_dict(), **trunk})
    return replace(init, sha256=found)
