"""`tinyvit` with a fault in rank 1.

    python tests/distributed/faulty.py FAULT COMMAND …
"""

import sys

import numpy as np

from tinyvit.cli import main
from tinyvit.launcher import rank_and_size
from tinyvit.training import trainer
from tinyvit.training.tasks.classification import Classification

FAULT, *COMMAND = sys.argv[1:]
AT = 5  # the step in which it happens

rank, _ = rank_and_size()


def at_fault(self, model, step, applied):
    if step == AT and rank == 1:
        if FAULT == "error":
            raise OSError(28, "No space left on device", "/somewhere")
        elif FAULT == "bug":
            raise KeyError("a bug")
        elif FAULT == "stray":
            dict(model.named_parameters())["patch_embed.proj.bias"].data += 1e-9
    if step == AT and FAULT == "diverge":
        model.storage.data[:] = np.inf


Classification.after_step = at_fault
if FAULT == "other-data" and rank == 1:
    load = trainer.load_split

    def load_split(config):
        split = load(config)
        images = split.train.images.copy()
        images[0, 0, 0, 0] += 1
        return split._replace(train=type(split.train)(**{**vars(split.train), "images": images}))

    trainer.load_split = load_split
if FAULT == "no-mpi4py":
    sys.modules["mpi4py"] = None
if FAULT == "no-mpi":
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "mpi4py.MPI":
                raise RuntimeError("cannot load MPI library\nlibmpi.so: cannot open shared object file")

    sys.meta_path.insert(0, Broken())
main(COMMAND)
