"""Ctrl-C, SIGTERM and a closed terminal end a training after the step at hand, so that nothing is left half-done."""

import signal
import threading
from contextlib import contextmanager

EXIT_STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
HANGUP = getattr(signal, "SIGHUP", None)  # what closing a terminal sends; Windows has none
if HANGUP is not None:
    EXIT_STATUS[HANGUP] = 129


class Stop:
    """Which signal asked to stop, if any."""

    signal = None

    def __bool__(self):
        return self.signal is not None

    @property
    def exit_status(self):
        return EXIT_STATUS[self.signal]


@contextmanager
def stop_on_signals():
    """Inside this, the first of these signals only sets the flag that is yielded; a second one acts at once.

    A closed terminal that was to be ignored, as by nohup, still is.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield stop
        return
    before = {number: signal.getsignal(number) for number in EXIT_STATUS}
    if before.get(HANGUP) is signal.SIG_IGN:
        del before[HANGUP]

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler)

    def remember(number, frame):
        stop.signal = signal.Signals(number)
        restore()

    for number in before:
        signal.signal(number, remember)
    try:
        yield stop
    finally:
        restore()
