"""Ctrl-C, SIGTERM and a closed terminal in commands that write files."""

import signal
import sys
import threading
from contextlib import contextmanager

HANGUP = getattr(signal, "SIGHUP", None)  # what closing a terminal sends; Windows has none
SIGNALS = {signal.SIGINT, signal.SIGTERM, HANGUP} - {None}


class Stop:
    """Which signal asked to stop, if any."""

    signal = None

    def __bool__(self):
        return self.signal is not None


@contextmanager
def first_signal(handle, numbers=SIGNALS):
    """Inside this, the first of these signals is given to `handle`; a second one acts as it did before.

    A closed terminal that was to be ignored, as by nohup, still is.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    if before.get(HANGUP) is signal.SIG_IGN:
        del before[HANGUP]

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler)

    def once(number, frame):
        restore()
        handle(signal.Signals(number))

    for number in before:
        signal.signal(number, once)
    try:
        yield
    finally:
        restore()


@contextmanager
def stop_on_signals():
    """A `Stop` that the first signal inside this sets, so that a training ends after its step with everything saved."""
    stop = Stop()
    with first_signal(lambda number: setattr(stop, "signal", number)):
        yield stop


def exit_on_signals():
    """Inside this, SIGTERM and a closed terminal raise SystemExit with 128 + their number, so that half-made files are
    removed. Ctrl-C raises KeyboardInterrupt anyway."""
    return first_signal(lambda number: sys.exit(128 + number), SIGNALS - {signal.SIGINT})
