"""How a model computes on a GPU: on its device, and in its precision."""

from contextlib import contextmanager, nullcontext

from tinyvit.backend import current, library, products_in, scope_owner
from tinyvit.functional.cast import cast


class Compute:
    """What a model computes with: a storage's device and precision, and its matrices in that precision.

    On a CPU, which has one device and no other precision, none of this does anything.
    """

    def __init__(self, storage):
        self.storage, self.rounded = storage, None

    def is_active(self):
        """Whether this is inside `scope`, or needs none."""
        return self.storage.device == "cpu" or scope_owner() is self

    def scope(self):
        """The context manager in which every call of the model runs; inside itself it does nothing.

        After changing parameters inside it, call `round` before the next forward; a training step has its own scope.
        """
        return nullcontext() if self.is_active() else self._enter()

    @contextmanager
    def _enter(self):
        with current(self.storage.device), products_in(self.storage.precision.products, owner=self):
            self.round()
            yield

    def round(self):
        """Round all parameters to the compute dtype, if that is another than theirs."""
        storage = self.storage
        if storage.precision.is_low:
            if self.rounded is None:
                self.rounded = library(storage.device).empty(storage.size, storage.compute_dtype)
            cast(storage.data, storage.compute_dtype, out=self.rounded)

    def matrices(self):
        """All parameters as a flat array in the compute dtype."""
        if not self.is_active():
            with current(self.storage.device):
                self.round()
        return self.rounded if self.storage.precision.is_low else self.storage.data

    def __getstate__(self):
        return {"storage": self.storage, "rounded": None}
