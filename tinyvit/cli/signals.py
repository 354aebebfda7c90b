"""What SIGTERM and a closed terminal do to a command that writes something whole."""

import signal
import sys
from contextlib import contextmanager

ENDING = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # Windows has no terminal to close


@contextmanager
def ended_in_order():
    """Inside this these signals raise SystemExit with 128 + their number, so that what was half-made is taken away;
    a second one ends the process at once. What was to be ignored, as by nohup, still is."""
    before = {number: signal.getsignal(number) for number in ENDING}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler)

    def end(number, frame):
        restore()
        sys.exit(128 + number)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()
