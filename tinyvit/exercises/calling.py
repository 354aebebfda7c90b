"""Call a learner's function with a time limit, whatever it does.

The function runs in a daemon thread, since that works wherever notebooks do. `signal.setitimer` interrupts the main
thread alone, and Windows has none. A second process could be killed for certain, but functions that were typed into a
notebook can't be pickled to it, and the fork of a kernel with threads can hang. When the time is up, an exception is
raised in the thread, at the next line of Python that it comes to: an endless loop ends, and takes no processor
afterwards. A call of C that blocks is abandoned, and ends with the process. A call of C that holds the interpreter's
lock, as 10**10**9 does, can't be interrupted at all.
"""

import contextvars
import ctypes
import inspect
import io
import os
import sys
import sysconfig
import threading
import time
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np

STOP_SECONDS = 1.0  # seconds given to a thread to end when it was told to
MAX_PRINTED_CHARACTERS = 1000  # characters of a function's output that are kept: an endless loop may print, too
FOLDERS = [os.path.dirname(os.path.dirname(module)) for module in (__file__, np.__file__)]
FOLDERS += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
LIBRARY_FOLDERS = tuple(os.path.realpath(folder) + os.sep for folder in FOLDERS)


class TimeLimitExceeded(BaseException):
    """Raised in a thread that has run for too long. No Exception, so that `except Exception` lets it through."""


@dataclass
class Call:
    """How a call ended."""

    value: Any = None
    exception: BaseException | None = None
    line: str = ""           # of the learner's code: where the exception was raised, or where it was when time was up
    printed: str = ""
    out_of_time: bool = False


def call(function, arguments, time_limit):
    """Call `function` and return a `Call`, after `time_limit` seconds at the latest."""
    ended = Call()
    context = contextvars.copy_context()  # so that `with tinyvit.reference():` reaches the thread

    def quietly():
        with np.errstate(all="ignore"):  # what overflows is seen in the result
            return function(*arguments)

    def run():
        try:
            ended.value = context.run(quietly)
        except TimeLimitExceeded:
            pass
        except BaseException as error:  # SystemExit as well: an answer, not the end of the kernel
            ended.exception = error

    thread = threading.Thread(target=run, name="tinyvit exercise", daemon=True)
    printed, frame = OutputCapture(), None
    try:
        with redirect_stdout(printed):
            thread.start()
            thread.join(time_limit)
            frame = sys._current_frames().get(thread.ident) if thread.is_alive() else None
    finally:  # after Ctrl-C as well
        stop_thread(thread, quietly)
    if frame is not None:
        return Call(out_of_time=True, line=learners_line(traceback.extract_stack(frame)), printed=printed.text)
    if ended.exception is not None:
        ended.line = learners_line(traceback.extract_tb(ended.exception.__traceback__))
    ended.printed = printed.text
    return ended


def stop_thread(thread, function):
    """Raise `TimeLimitExceeded` in a thread until it leaves `function`, several times if a bare `except:` catches it.

    It isn't raised after that: while the thread itself ends, nothing would catch it.
    """
    deadline = time.monotonic() + STOP_SECONDS
    while thread.is_alive() and time.monotonic() < deadline:
        if is_running(function, sys._current_frames().get(thread.ident)):
            raised = ctypes.py_object(TimeLimitExceeded)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), raised)
        thread.join(0.02)


def is_running(function, frame):
    """Whether a frame, or a caller of it, is a call of a Python function."""
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


class OutputCapture(io.TextIOBase):
    """Captures what is printed, up to `MAX_PRINTED_CHARACTERS` characters."""

    text = ""

    def write(self, text):
        self.text += text[: MAX_PRINTED_CHARACTERS - len(self.text)]
        return len(text)


def call_by_position(function, names):
    """A function that is called by position: its keyword-only arguments go to it by name.

    names   of the arguments, in their order
    """
    try:
        own = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # written in C, or no function
        return function
    only = [one.name for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY]

    def call(*arguments):
        given = dict(zip(names, arguments))
        named = {name: given.pop(name) for name in names if name in only}
        return function(*given.values(), **named)

    return call if only else function


def learners_line(frames):
    """The innermost line of the learner's code in a traceback, as `line 3 (return x / n)`; empty if there is none."""
    own = [frame for frame in frames if is_learners_file(frame.filename)]
    if not own:
        return ""
    return f"line {own[-1].lineno}" + (f" ({own[-1].line})" if own[-1].line else "")


def is_learners_file(file):
    return not file.startswith("<frozen") and not os.path.realpath(file).startswith(LIBRARY_FOLDERS)
