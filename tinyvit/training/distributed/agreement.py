"""Checks that all ranks agree: before the first step on what they train, at every checkpoint on the weights."""

import json
from dataclasses import asdict

import numpy as np

import tinyvit
from tinyvit.backend import to_numpy
from tinyvit.files import digest

# What may differ: where files are, and how many threads compute.
MAY_DIFFER = ("out", "data_dir", "threads", "device", "distributed")


def check_same(ranks, facts, when=""):
    """Raise ValueError, in all ranks, unless they have the same `facts`, values by name: with the first that differs.

    when   begins the message
    """
    found = ranks.gather(facts)
    for name in dict.fromkeys(name for facts in found for name in facts):
        values = [facts.get(name, "absent") for facts in found]
        other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise ValueError(
                f"{when}{ranks.names[other]} has {name} {values[other]}, and {ranks.names[0]} has {values[0]}; all "
                "ranks must train the same model on the same data, with the same versions"
            )


def facts_of(config, kernels, data):
    """The properties that must be equal in all ranks: versions, configuration, kernels, checksums of `data` by name."""
    return {
        "tinyvit": tinyvit.__version__,
        "numpy": np.__version__,
        "kernels": kernels,
        **flat({name: value for name, value in asdict(config).items() if name not in MAY_DIFFER}),
        **{f"SHA256 of the {name} images": checksum for name, checksum in data.items()},
    }


def flat(values, prefix=""):
    """A nested dict as one of JSON texts by dotted names."""
    found = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: json.dumps(value)}
    return found


def digests(tensors):
    """The SHA256 of each of the tensors, by name."""
    arrays = {name: np.ascontiguousarray(to_numpy(tensor)) for name, tensor in tensors.items()}
    return {f"SHA256 of {name}": digest(array) for name, array in arrays.items()}
