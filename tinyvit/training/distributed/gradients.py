"""The gradients of all ranks, added up a stretch at a time while backwards still run."""

import threading

from tinyvit.functional.sums import finish_sums
from tinyvit.nn.buffers import BufferUpdate

BUCKET = 4 << 20  # bytes of a stretch, about


class Reduction:
    """Adds up the gradients of the parts of a batch, over the threads of this rank and over all ranks.

    A bucket is a stretch of the flat gradients. As soon as all of its gradients are there, its sum over the ranks
    begins, while the backward goes on with the layers below. When that is, is known from the step before: from how
    often gradients were added. The first step adds up all buckets at its end, and a step in which a bucket got more
    than was expected adds up all of them once more.

    Buckets begin in a fixed order, the last layers first, so that all ranks make the same calls.
    """

    def __init__(self, link, model, bucket=BUCKET):
        self.link, self.storage, self.bucket = link, model.storage, bucket
        self.defined = {id(parameter): place for place, parameter in enumerate(model.parameters())}
        self.modules = [module for _, module in model.named_modules()]
        self.numbers = {id(module): number for number, module in enumerate(self.modules)}
        self.lock, self.trainable, self.expected = threading.Lock(), None, {}

    def lay_out(self):
        """Cut what is trained into buckets; again where that is another part of the model than before."""
        parameters, found, self.bucket_of = self.storage.parameters, [], {}
        largest = self.bucket // self.storage.dtype.itemsize
        for parameter, stop in zip(parameters, [*self.storage.offsets[1:], self.storage.size]):
            if parameter.trainable:
                start = parameter.offset
                if not found or found[-1].stop != start or found[-1].stop - found[-1].start >= largest:
                    found.append(slice(start, start))
                found[-1] = slice(found[-1].start, stop)
                self.bucket_of[id(parameter)] = len(found) - 1
        # The backward ends with a bucket where it comes to the first of its layers.
        first = [len(self.defined)] * len(found)
        for parameter, number in self.bucket_of.items():
            first[number] = min(first[number], self.defined[parameter])
        self.buckets = [found[number] for number in sorted(range(len(found)), key=first.__getitem__, reverse=True)]
        places = {where.start: place for place, where in enumerate(self.buckets)}
        self.bucket_of = {parameter: places[found[number].start] for parameter, number in self.bucket_of.items()}
        self.expected = {}

    def begin(self, parts, accumulate):
        """The gradient buffers of the parts of a step that begins, all zero."""
        self.total, *self.buffers = self.storage.grads.take(parts + 1)
        for buffer in self.buffers:
            buffer[:] = 0
        trainable = [parameter.trainable for parameter in self.storage.parameters]
        if trainable != self.trainable:
            self.trainable = trainable
            self.lay_out()
            self.total[:] = 0
        self.kind, self.counts = (parts, accumulate), [0] * len(self.buckets)
        self.awaited = self.expected.get(self.kind)
        self.pending, self.late = [], False
        self.storage.grads.listener = self.added
        return self.buffers

    def added(self, parameters):
        """Gradients of these parameters were added to the buffer of a part, in its thread."""
        with self.lock:
            for parameter in parameters:
                if parameter.trainable:
                    place = self.bucket_of[id(parameter)]
                    self.counts[place] += 1
                    self.late |= place < len(self.pending)  # its sum is on its way
            if self.awaited is not None:
                while len(self.pending) < len(self.buckets) and self.is_complete(len(self.pending)):
                    self.launch()
            if self.pending:
                self.pending[-1].poke()
        self.link.got_further()

    def is_complete(self, place):
        return self.counts[place] >= self.awaited[place]

    def launch(self):
        """Begin the sum of the next bucket."""
        finish_sums()
        where = self.buckets[len(self.pending)]
        total, own, *others = self.total[where], *(buffer[where] for buffer in self.buffers)
        if others:
            total[:] = own
            for other in others:
                total += other
            own = total
        self.pending.append(self.link.begin_sum(own, total))

    def finish(self, results):
        """The results of the parts of all ranks. Afterwards the model's own gradients are the sums."""
        self.storage.grads.listener = None
        self.add_up_the_rest()
        sent = [part._replace(updates=[(self.numbers[id(m)], s) for m, s in part.updates]) for part in results]
        found = self.link.results((self.late, sent))
        for pending in self.pending:
            pending.finish()
        if any(late for late, _ in found):
            self.pending = []
            self.add_up_the_rest()
            for pending in self.pending:
                pending.finish()
        self.expected[self.kind], self.pending = self.counts, []
        return [
            part._replace(updates=[BufferUpdate(self.modules[number], values) for number, values in part.updates])
            for _, parts in found
            for part in parts
        ]

    def add_up_the_rest(self):
        while len(self.pending) < len(self.buckets):
            self.launch()
