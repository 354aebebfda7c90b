"""Notices a rank that has died, hangs or has failed, and ends the job with a message that says which and why.

A thread in every rank sends a sign of life to rank 0, and rank 0 one to all. A process that was stopped, or whose
machine is gone, sends none; one that hangs sends that it gets no further.
"""

import os
import pickle
import threading
import time
from typing import NamedTuple

import numpy as np

BEAT = 2.0        # seconds from one sign of life to the next
LOOK = 0.2        # seconds from one look at what has come to the next
SILENT = 20.0     # seconds without a sign of life after which a rank counts as dead
STANDSTILL = 40.0  # seconds without progress in a step after which it counts as hanging, while others wait
FIRST = 300.0     # the same before the first step is finished, when code is still compiled
SLOWER = 4        # or so many times the longest standstill before
GATHERING = 3.0   # seconds in which the errors of several ranks count as one
LEAD = 5.0        # seconds that the first rank has to say what was wrong before the others leave
LONGEST = 2000    # characters of an error


class JobEnded(ValueError):
    """Another rank has failed, or this job was ended."""


class Life(NamedTuple):
    """What a rank says of itself. count: how often it got further; waiting: whether for other ranks"""

    doing: str = "starting"
    count: int = 0
    waiting: bool = False


class Watch:
    """The signs of life of all ranks, and the end of the job.

    names    of the ranks, for messages: "rank 1 (process 77 on host)"
    """

    def __init__(self, MPI, world, guardian):
        self.MPI, self.world, self.comm = MPI, world, world.Dup()
        self.rank, self.size = world.rank, world.size
        self.names = world.allgather(guardian.name)  # before anything can hang: the only exchange that nobody watches
        self.doing, self.count, self.waiting, self.advice = "starting", 0, False, ""
        now = time.monotonic()
        self.seen = {rank: now for rank in range(self.size)}   # when each was last heard of
        self.moved = {rank: now for rank in range(self.size)}  # when each last got further
        self.lives = {rank: Life() for rank in range(self.size)}
        self.longest, self.errors, self.first_error = 0.0, {}, None
        self.ended = self.failed = None
        self.announced = False
        self.sent, self.stopping = [], threading.Event()
        self.stderr = os.dup(2)
        self.guardian = guardian
        guardian.joined(world.bcast(os.urandom(8).hex()))
        self.thread = threading.Thread(target=self.run, name="tinyvit-watch", daemon=True)
        self.thread.start()

    # -- what the main thread calls --------------------------------------------------------------------------------

    def check(self):
        """Raise JobEnded if the job has ended."""
        if self.ended is not None:
            raise JobEnded(self.ended[0])

    def got_further(self):
        self.count += 1

    def fail(self, text, status):
        """Tell all ranks that this one has failed; returns the error and the status that the whole job ends with, and
        whether all ranks have failed, so that they can leave MPI together."""
        self.failed = text, status
        if self.rank == 0:
            self.note(0, text, status)
        else:
            self.send(0, "error", text[:LONGEST], status)
        deadline = time.monotonic() + 4 * GATHERING
        while self.ended is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.ended or (text, status, False)

    def advise(self, text):
        """What to do after an error."""
        self.advice = text
        self.guardian.advise(text)

    def stop(self):
        """End the thread."""
        self.stopping.set()
        self.thread.join()

    def close(self):
        """Receive what all ranks have sent before they stopped."""
        deadline = time.monotonic() + LOOK
        while self.sent or time.monotonic() < deadline:
            self.receive()

    # -- the thread ------------------------------------------------------------------------------------------------

    def run(self):
        beat, before = 0.0, time.monotonic()
        while not self.stopping.wait(LOOK):
            now = time.monotonic()
            if now - before > SILENT / 2:  # this process was stopped and continued, perhaps with all others
                self.seen, self.moved = dict.fromkeys(self.seen, now), dict.fromkeys(self.moved, now)
            before = now
            self.receive()
            if now - beat > BEAT:
                beat = now
                life = Life(self.doing, self.count, self.waiting)
                self.hear(self.rank, life)
                for rank in range(1, self.size) if self.rank == 0 else [0]:
                    self.send(rank, "life", life)
            if self.ended is None:
                self.judge(now)
            elif not self.ended[2] and now - self.ended_at > GATHERING + LEAD * (self.rank > 0):
                # The main thread can't leave by itself.
                if self.rank == 0:
                    self.say(self.ended[0])
                self.guardian.leave()
                os._exit(self.ended[1])

    def receive(self):
        status = self.MPI.Status()
        while self.comm.Iprobe(self.MPI.ANY_SOURCE, 0, status):
            source, message = status.Get_source(), np.empty(status.Get_count(self.MPI.BYTE), "uint8")
            self.comm.Recv([message, self.MPI.BYTE], source, 0)
            kind, *content = pickle.loads(message.tobytes())
            if kind == "life":
                self.hear(source, *content)
            elif kind == "error":
                self.note(source, *content)
            else:
                self.end(*content)
        self.sent = [(request, content) for request, content in self.sent if not request.Test()]

    def send(self, rank, *content):
        content = np.frombuffer(pickle.dumps(content), "uint8")
        self.sent.append((self.comm.Isend([content, self.MPI.BYTE], rank, 0), content))

    def hear(self, rank, life):
        now = time.monotonic()
        self.seen[rank] = now
        if life.count != self.lives[rank].count or life.doing != self.lives[rank].doing:
            if self.lives[rank].doing == life.doing == "training":
                self.longest = max(self.longest, now - self.moved[rank])
            self.moved[rank] = now
        self.lives[rank] = life

    def note(self, rank, text, status):
        """A rank has failed: rank 0 waits a moment for the others, which may have failed alike."""
        self.errors[rank] = text, status
        self.first_error = self.first_error or time.monotonic()

    def judge(self, now):
        """End the job if a rank has failed, is silent or hangs."""
        if self.rank > 0:
            if now - self.seen[0] > SILENT + 0.3 * min(self.rank, 10):  # the lowest of those left says it
                self.kill(self.silent(0))
            return
        if self.errors and not self.announced and (len(self.errors) == self.size or now - self.first_error > GATHERING):
            self.announce(*self.what_failed(), len(self.errors) == self.size)
            return
        for rank in range(1, self.size):
            if now - self.seen[rank] > SILENT and rank not in self.errors:
                self.kill(self.silent(rank))
        patience = max(STANDSTILL, SLOWER * self.longest) if self.longest else FIRST
        still = [rank for rank, since in self.moved.items() if now - since > patience]
        still = [rank for rank in still if self.lives[rank].doing == "training"]
        guilty = [rank for rank in still if not self.lives[rank].waiting]
        if guilty and len(still) == self.size:
            self.kill(f"{self.names[guilty[0]]} hangs: it has made no progress for {patience:.0f} s, and the others "
                      "wait for it")  # fmt: skip
        elif len(still) == self.size:
            self.kill(f"all ranks have waited for each other for {patience:.0f} s: they didn't make the same calls")

    def what_failed(self):
        """(text, status) of the errors that have come: that of the lowest rank, which is named unless all failed."""
        rank = min(self.errors, key=lambda rank: ("everything is finite" in self.errors[rank][0], rank))
        text, status = self.errors[rank]
        return (text if len(self.errors) == self.size else f"{self.names[rank]}: {text}"), status

    def silent(self, rank):
        return (
            f"{self.names[rank]} has given no sign of life for {SILENT:.0f} s: it was stopped or killed, or its "
            "machine can't be reached"
        )

    def announce(self, *ended):
        """End the job: all ranks leave by themselves."""
        self.announced = True
        for rank in range(1, self.size):
            self.send(rank, "end", *ended)
        self.end(*ended)

    def end(self, *ended):
        if self.ended is None:
            self.ended_at = time.monotonic()
            self.ended = ended

    def kill(self, text):
        """End the job by force: a rank can't leave by itself."""
        self.say(text)
        self.guardian.leave()
        self.world.Abort(2)
        os._exit(2)

    def say(self, text):
        advice = f"; {self.advice}" if self.advice else ""
        os.write(self.stderr, f"tinyvit: error: {text}{advice}\n".encode())
