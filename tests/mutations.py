"""Damage checkpoints, runs and data files in thousands of ways: each must be refused clearly or be harmless.

    python tests/mutations.py --count 10000

Truncations, flipped bits, huge length fields, and parts that are removed or replaced. Anything but a ValueError that
names the file, a hang, or memory beyond twice the file is a failure.
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
    content, place = bytearray(content), draw.randrange(len(content))
    kind = draw.choice(("cut", "flip", "flip", "huge", "remove", "noise"))
    if kind == "cut":
        del content[place:]
    elif kind == "flip":
        content[place] ^= 1 << draw.randrange(8)
    elif kind == "huge":  # a length field, at the start or anywhere
        place = draw.choice((0, place))
        content[place : place + 8] = struct.pack("<Q", draw.choice((2**31, 2**63 - 1, 2**64 - 1, 10**8, len(content))))
    elif kind == "remove":
        del content[place : place + draw.randrange(1, 64)]
    else:
        content[place : place + 16] = draw.randbytes(16)
    return bytes(content)


def refused(file, read, is_harmless, content):
    """Whether the damaged content of a file was refused; AssertionError if it was neither refused nor harmless."""
    whole = file.read_bytes()
    if content == whole:
        return False
    file.write_bytes(content)
    tracemalloc.start()
    signal.alarm(SECONDS)
    try:
        assert is_harmless(read()), f"{file}: damage that changes the result was not noticed"
        return False
    except ValueError as error:
        assert file.name in str(error) or file.parent.name in str(error), f"unnamed: {error}"
        return True
    finally:
        signal.alarm(0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        file.write_bytes(whole)
        assert peak <= 2 * max(len(content), len(whole)) + ROOM, f"{file}: {peak:,} bytes"


class Silent(Display):
    def print(self, text):
        pass


def targets(folder):
    """(name, file, how it is read, whether what was read of a damaged one is harmless) of every kind of file."""
    run = folder / "run"
    train(CONFIG, run, Silent())
    tensors = {"model.w": np.arange(6, dtype="float32").reshape(2, 3), "t": np.array(3)}
    bare = folder / "tensors.safetensors"
    bare.write_bytes(tensor_bytes(tensors))
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
        return checkpoints.newest(lambda message: None)  # which says that a damaged one is left out

    def read_run():
        return load_trained(run, "cpu")

    anything, never = (lambda found: True), (lambda found: False)
    return [
        ("a state", newest.with_suffix(".safetensors"), read_checkpoint, never),
        ("its manifest", newest.with_suffix(".json"), read_checkpoint, whole_checkpoint),
        # There is no manifest, so other numbers go unnoticed; but nothing may crash.
        ("bare tensors", bare, lambda: load_tensors(bare), anything),
        ("final weights", run / "model.safetensors", read_run, never),
        ("their manifest", run / "model.json", read_run, same_weights),
        ("a configuration", run / "config.json", read_run, anything),
        ("a preprocessing", run / "preprocessing.json", read_run, anything),
        ("an archive", folder / "data" / spec.archive, lambda: cifar_files.read(spec, folder / "data"), same_data),
    ]


def mutate(count, seed=0):
    """Try all truncations of the smallest files and `count` mutations in all; returns how many were refused."""
    draw, refusals = random.Random(seed), 0
    signal.signal(signal.SIGALRM, timed_out)
    with tempfile.TemporaryDirectory() as folder:
        found = targets(Path(folder))
        for name, file, read, is_harmless in found:
            content, share = file.read_bytes(), count // len(found)
            damaged = [content[:length] for length in range(len(content)) if len(content) < share // 2]
            damaged += [mutated(content, draw) for _ in range(share - len(damaged))]
            number = sum(refused(file, read, is_harmless, each) for each in damaged)
            print(f"{name:<16} {len(content):>8,} bytes {share:>7,} mutations {number:>7,} refused", flush=True)
            refusals += number
    return refusals


def timed_out(number, frame):
    raise AssertionError(f"reading took more than {SECONDS} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{mutate(options.count, options.seed):,} refused, the others changed nothing; no crash, no hang")
