"""JSON of unknown origin, parsed strictly."""

import json

from tinyvit.text import short

LARGEST = 1 << 24  # bytes; the names of 21,000 classes take one sixteenth of it


def read_object(path):
    """The object (a dict) in a JSON file; ValueError, naming the file, if it holds anything else."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; expected JSON of at most {LARGEST:,}")
    return parse_object(path.read_bytes(), path)


def parse_object(content, source):
    """The object in JSON bytes. ValueError, naming `source`, for anything else, and for what readers disagree on:
    repeated keys, NaN and infinity."""
    try:
        value = json.loads(content.decode(), object_pairs_hook=without_repetition, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise ValueError(f"{source} is damaged or not JSON: {short(error)}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{source} holds JSON of another kind: expected an object {{…}}, got {short(value)}")
    return value


def without_repetition(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {short(repr(twice))} occurs twice")
    return found


def refuse_constant(name):
    raise ValueError(f"{name} is not a number in JSON")
