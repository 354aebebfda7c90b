"""What all ranks must have alike: before the first step what they train, and at every checkpoint the weights."""

import hashlib
import json
from dataclasses import asdict

import numpy as np

import tinyvit
from tinyvit.backend import to_numpy

# What may differ: where files are, and how many threads compute.
OWN = ("out", "data_dir", "threads", "device", "distributed")


def check_same_training(ranks, trainer):
    """Raise ValueError, with what differs, unless all ranks train the same: versions, configuration, kernels, data."""
    facts = {
        "tinyvit": tinyvit.__version__,
        "numpy": np.__version__,
        "kernels": trainer.kernels,
        **flat({name: value for name, value in asdict(trainer.config).items() if name not in OWN}),
        "SHA256 of the training images": trainer.data_digest,
        "SHA256 of the evaluated images": trainer.digest_of(trainer.split.test),
    }
    found = ranks.gather(facts)
    for name in dict.fromkeys(name for facts in found for name in facts):
        values = [facts.get(name, "absent") for facts in found]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise agreed(ValueError(
                f"{ranks.watch.names[other]} has {name} {values[other]}, and {ranks.watch.names[0]} has {values[0]}; "
                "all ranks must train the same model on the same data, with the same versions"
            ))  # fmt: skip


def flat(values, prefix=""):
    """A nested dict as one of JSON texts by dotted names."""
    found = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = json.dumps(value)
    return found


def check_same_state(ranks, step, tensors):
    """Raise ValueError, with both hashes and the first tensor that differs, unless all ranks have the same state.

    tensors   by name, as a checkpoint holds them
    """
    hashes = ranks.gather(digest_of(tensors.items()))
    other = next((rank for rank, found in enumerate(hashes) if found != hashes[0]), None)
    if other is None:
        return
    each = ranks.gather([(name, digest_of([(name, tensor)])) for name, tensor in tensors.items()])
    first = next(
        (own[0] for own, theirs in zip(each[0], each[other]) if own != theirs), "the number of tensors"
    )  # fmt: skip
    raise agreed(ValueError(
        f"after step {step} the weights of {ranks.watch.names[other]} differ from those of {ranks.watch.names[0]}: "
        f"SHA256 {hashes[other]} and {hashes[0]}; the first that differs is {first}"
    ))  # fmt: skip


def check_same_weights(ranks, model):
    """Raise ValueError, with both hashes, unless all ranks have read the same weights."""
    hashes = ranks.gather(digest_of(model.state_dict().items()))
    other = next((rank for rank, found in enumerate(hashes) if found != hashes[0]), None)
    if other is not None:
        raise agreed(ValueError(
            f"{ranks.watch.names[other]} has read other weights than {ranks.watch.names[0]}: SHA256 {hashes[other]} "
            f"and {hashes[0]}"
        ))  # fmt: skip


def digest_of(tensors):
    """The SHA256 of names and tensors."""
    found = hashlib.sha256()
    for name, tensor in tensors:
        found.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        found.update(np.ascontiguousarray(to_numpy(tensor)).reshape(-1).view("uint8"))
    return found.hexdigest()


def agreed(error):
    """An error that all ranks raise."""
    error.agreed = True
    return error
