"""Damage checkpoints, runs and data files in thousands of ways: each must be refused clearly or be harmless.

    python tests/mutations.py --count 10000

Every truncation of a small file, flipped bits, huge length fields, and parts that are repeated, removed or
replaced. Anything but a ValueError that names the file, a hang, or memory beyond twice the file is a failure.
"""

import argparse
import random
import signal
import struct
import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
from small_cifar import archive, small

from tinyvit.data import cifar, cifar_files
from tinyvit.tensors import load_tensors, tensor_bytes
from tinyvit.training import PRESETS, train
from tinyvit.training.checkpoints import Checkpoints
from tinyvit.training.display import Display
from tinyvit.training.trained import load_trained

SECONDS = 20            # seconds that reading a file of some kilobytes may take on a busy machine
ROOM = 4 << 20          # bytes that reading needs for a file of any size: libraries, messages, a model
CONFIG = replace(
    PRESETS["digits"], model=replace(PRESETS["digits"].model, embed_dim=4, depth=1, num_heads=1),
    epochs=1, batch_size=1024, device="cpu", threads=1,
)  # fmt: skip


def mutated(content, draw):
    """Randomly damaged bytes of a file."""
    content, kind = bytearray(content), draw.choice(("cut", "flip", "flip", "huge", "insert", "remove", "noise"))
    place = draw.randrange(len(content))
    if kind == "cut":
        del content[place:]
    elif kind == "flip":
        content[place] ^= 1 << draw.randrange(8)
    elif kind == "huge":  # a length field, at the start or anywhere
        place = draw.choice((0, place))
        content[place : place + 8] = struct.pack("<Q", draw.choice((2**31, 2**63 - 1, 2**64 - 1, 10**8, len(content))))
    elif kind == "insert":
        content[place:place] = content[: draw.randrange(1, 64)]
    elif kind == "remove":
        del content[place : place + draw.randrange(1, 64)]
    else:
        content[place : place + 16] = draw.randbytes(16)
    return bytes(content)


class Target:
    """A file to damage and its reader. `read` may raise ValueError; otherwise `accept` judges its result."""

    def __init__(self, name, file, read, accept):
        self.name, self.file, self.read, self.accept = name, file, read, accept
        self.content = file.read_bytes()

    def attempt(self, content):
        """Whether damaged content was refused; AssertionError if it was neither refused nor harmless."""
        if content == self.content:
            return False
        self.file.write_bytes(content)
        most = 2 * max(len(content), len(self.content)) + ROOM
        try:
            found, refused, peak = self.measured_read()
            if peak > most:  # tables of the whole process, such as Python's of interned strings, grow once
                found, refused, peak = self.measured_read()
        finally:
            self.file.write_bytes(self.content)
        assert peak <= most, f"{self.name}: {peak:,} bytes"
        assert refused or self.accept(found), f"{self.name}: damage that changes the result was not noticed"
        return refused

    def measured_read(self):
        """(what was read, whether it was refused instead, bytes that it took at most)."""
        tracemalloc.start()
        signal.alarm(SECONDS)
        try:
            return self.read(), False, tracemalloc.get_traced_memory()[1]
        except ValueError as error:
            assert self.file.name in str(error) or self.file.parent.name in str(error), f"unnamed: {error}"
            return None, True, tracemalloc.get_traced_memory()[1]
        finally:
            signal.alarm(0)
            tracemalloc.stop()


class Silent(Display):
    def print(self, text):
        pass


def unnoticed(message):
    """For checkpoints: a damaged newest one may be skipped if it is reported."""


def targets(folder):
    """Every kind of file that is read back, once per reader."""
    run = folder / "run"
    train(CONFIG, run, Silent())
    tensors = {"model.w": np.arange(6, dtype="float32").reshape(2, 3), "t": np.array(3)}
    (folder / "tensors.safetensors").write_bytes(tensor_bytes(tensors))
    checkpoints = Checkpoints(folder / "checkpoints")
    checkpoints.path.mkdir()
    checkpoints.save(1, 0, tensors, {"step": 1})
    newest = folder / "checkpoints" / "step-00000001-epoch-0"
    spec, contents = small(cifar.CIFAR10, images=1)
    (folder / "data").mkdir()
    (folder / "data" / spec.archive).write_bytes(archive(spec, contents))
    weights = load_trained(run, "cpu").model.state_dict()

    def same_weights(trained):
        state = trained.model.state_dict()
        return all(np.array_equal(state[name], weights[name]) for name in weights)

    def whole_checkpoint(found):
        return found is None or (found[0]["step"] == 1 and np.array_equal(found[1]["model.w"], tensors["model.w"]))

    def same_data(rows):
        return all(np.array_equal(rows[name].ravel(), np.frombuffer(contents[name], "uint8")) for name in spec.names)

    def read_checkpoint():
        return checkpoints.newest(unnoticed)

    def read_run():
        return load_trained(run, "cpu")

    anything, never = (lambda found: True), (lambda found: False)
    return [
        Target("a state", newest.with_suffix(".safetensors"), read_checkpoint, never),
        Target("its manifest", newest.with_suffix(".json"), read_checkpoint, whole_checkpoint),
        # There is no manifest, so other numbers go unnoticed; but nothing may crash.
        Target("bare tensors", folder / "tensors.safetensors", lambda: load_tensors(folder / "tensors.safetensors"),
               anything),
        Target("final weights", run / "model.safetensors", read_run, never),
        Target("their manifest", run / "model.json", read_run, same_weights),
        Target("a configuration", run / "config.json", read_run, anything),
        Target("a preprocessing", run / "preprocessing.json", read_run, anything),
        Target("an archive", folder / "data" / spec.archive, lambda: cifar_files.read(spec, folder / "data"),
               same_data),
    ]  # fmt: skip


def mutate(count, seed=0, report=lambda line: None):
    """Try all truncations of the smallest files and `count` spread-out mutations; returns how many were refused."""
    draw, tried, refused = random.Random(seed), 0, 0
    signal.signal(signal.SIGALRM, timed_out)
    with tempfile.TemporaryDirectory() as folder:
        found = targets(Path(folder))
        for target in found:
            share = count // len(found)
            lengths = range(len(target.content)) if len(target.content) < share // 2 else ()
            damaged = [target.content[:length] for length in lengths]
            damaged += [mutated(target.content, draw) for _ in range(share - len(damaged))]
            number = sum(target.attempt(content) for content in damaged)
            size, tries = len(target.content), len(damaged)
            report(f"{target.name:<16} {size:>8,} bytes {tries:>7,} mutations {number:>7,} refused")
            tried, refused = tried + len(damaged), refused + number
    return tried, refused


def timed_out(number, frame):
    raise AssertionError(f"reading took more than {SECONDS} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tried, refused = mutate(options.count, options.seed, lambda line: print(line, flush=True))
    print(f"{tried:,} mutations: {refused:,} refused with a clear error, the others changed nothing; no crash, no hang")


if __name__ == "__main__":
    main()
