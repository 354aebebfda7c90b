"""Runs a solution in a process of its own, and talks to it over a pipe."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tinyvit.exercises.grading import exchange, worker

FORGED = "writes to the grader's pipe"
START = 60.0  # seconds in which Python must have started and loaded NumPy


class Ended(Exception):
    """The solution gave no answer: `status` is refused, error, time or memory, and the message says what happened."""

    def __init__(self, status, message, line=0):
        super().__init__(message)
        self.status, self.line = status, line


class Solution:
    """A solution that runs elsewhere; calling it calls the learner's function there. Use it in a `with` block.

    order                the message that the process gets first, a dict:
        source, expression   the code, and the expression in it that gives the function
        names                of the arguments that it is called with
        example              arrays by name, handed out as `tinyvit.models.worked_example`; None
        backward             whether complex numbers and finite differences are refused
    seconds, megabytes   limits of all calls together

    Raises `Ended` where the code doesn't run, in `with` and in each call.
    """

    def __init__(self, order, seconds, megabytes):
        self.order, self.seconds, self.megabytes, self.after = order, seconds, megabytes, ()

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tinyvit-grade-")
        numpys = str(Path(np.__file__).parents[1])
        command = [sys.executable, "-I", "-S", worker.__file__, numpys, str(self.megabytes), str(int(self.seconds) + 1)]
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.folder.name,
            env={"PATH": "", "LANG": "C.UTF-8", **threads}, start_new_session=True, bufsize=0,
        )  # fmt: skip
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.deadline = time.monotonic() + START
        try:
            self.send(self.order)
            self.receive()  # it is ready
            self.deadline = time.monotonic() + self.seconds
            loaded = self.receive()
            if not loaded.get("callable"):
                raise Ended("error", "is no function")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *rest):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        self.process.wait()
        self.selector.close()
        self.folder.cleanup()

    def __call__(self, *arguments):
        self.send({"call": ["<function>" if callable(one) else one for one in arguments]})
        while True:
            answer = self.receive()
            if "asks" not in answer:
                break
            self.send({"value": self.asked(arguments, answer)})
        after = answer.get("after")
        if "value" not in answer or type(after) is not list or len(after) != len(arguments):
            raise Ended("refused", FORGED)
        self.after = tuple(own if callable(own) else one for own, one in zip(arguments, after, strict=True))
        return answer["value"]

    def asked(self, arguments, answer):
        """The value of an argument that is a function."""
        place, values = answer["asks"], answer.get("arguments")
        if type(place) is not int or not 0 <= place < len(arguments) or not callable(arguments[place]):
            raise Ended("refused", FORGED)
        numbers = (int, float, complex, np.ndarray, np.number)
        if type(values) is not list or len(values) != 1 or not isinstance(values[0], numbers):
            raise Ended("error", "calls the function it was given with something other than one number")
        try:
            with np.errstate(all="ignore"):
                return arguments[place](values[0])
        except (ArithmeticError, ValueError, TypeError) as error:
            raise Ended("error", f"calls the function it was given in a way that raises {error!r}") from None

    def send(self, message):
        with contextlib.suppress(BrokenPipeError):  # it has ended; why is read next
            self.process.stdin.write(exchange.pack(message))

    def receive(self):
        """The next message; raises Ended if there is none, or if it says that something went wrong."""
        self.budget = 2 * exchange.LARGEST  # bytes of this message
        try:
            size = int.from_bytes(self.read(8), "little")
            if size > exchange.LARGEST:
                raise exchange.Unreadable("what came back can't be read")
            message = exchange.unpack(self.read(size), self.read)
            if not isinstance(message, dict):
                raise exchange.Unreadable("what came back can't be read")
        except exchange.Unreadable as error:
            raise Ended("refused", str(error)) from None
        if "refused" in message:
            raise Ended("refused", str(message["refused"])[:200])
        if "memory" in message:
            raise Ended("memory", f"needs more than {self.megabytes} MB")
        if "raised" in message:
            line = message.get("line")
            said = f"raised {message['raised']}: {message.get('said')}"
            raise Ended("error", " ".join(said.split())[:300], line if type(line) is int else 0)
        return message

    def read(self, count):
        """The next bytes of the pipe; raises Ended at its end and when time is up."""
        parts = []
        self.budget -= count
        if self.budget < 0:
            raise exchange.Unreadable("what came back can't be read")
        while count > 0:
            left = self.deadline - time.monotonic()
            if left <= 0 or not self.selector.select(left):
                raise Ended("time", f"was not done after {self.seconds:g} seconds")
            part = os.read(self.process.stdout.fileno(), min(count, 1 << 20))
            if not part:
                raise self.end_of_process()
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def end_of_process(self):
        code = self.process.wait()
        if code == -signal.SIGXCPU:
            return Ended("time", f"was not done after {self.seconds:g} seconds of a processor")
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        return Ended("error", f"ended its process {how} before it answered")
