"""Says that a rank has died, where nobody else could: a launcher kills all ranks as soon as one is gone."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

TOGETHER = 50  # seconds in which all ranks must begin, and end, once the first has

# Reads lines from its rank until that has ended: "file PATH"; "died TEXT", to print if it ends without another word;
# "wait SECONDS TEXT", to print, and to kill it, if nothing more comes in time; "left", after which nothing is printed.
# Of several ranks on a machine the first one that makes the file prints.
PROGRAM = """
import os, select, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
file, text, limit, rest, rank = None, None, None, b"", os.getppid()
def say(text):
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.write(2, b"tinyvit: error: " + text + b"\\n")
while True:
    if not select.select([0], [], [], limit)[0]:
        say(late)
        os.kill(rank, signal.SIGKILL)
        break
    chunk = os.read(0, 65536)
    if not chunk:
        break
    *lines, rest = (rest + chunk).split(b"\\n")
    for line in lines:
        kind, _, content = line.partition(b" ")
        limit = None
        if kind == b"file":
            file = content
        elif kind == b"wait":
            seconds, _, late = content.partition(b" ")
            limit = float(seconds)
        else:
            text = content
if text and limit is None:
    say(text)
os.close(2)  # which the launcher may wait for
time.sleep(3)
try:
    os.unlink(file)
except FileNotFoundError:
    pass
"""


class Guardian:
    """A small process beside a rank that outlives it.

    name   of the rank
    """

    def __init__(self, rank, size):
        self.name = f"rank {rank} (process {os.getpid()} on {socket.gethostname()})"
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=os.dup(sys.__stderr__.fileno()), start_new_session=True, bufsize=0,
        )  # fmt: skip
        self.use(f"{os.getppid()}")  # ranks of a job mostly have one parent; `joined` knows better
        self.advise("")
        self.write(
            f"wait {TOGETHER} not all {size} ranks have come together within {TOGETHER} s: one was stopped, or its "
            "machine can't be reached"
        )

    def use(self, job):
        self.file = Path(tempfile.gettempdir()) / f"tinyvit-{job}"
        self.write(f"file {self.file}")

    def joined(self, job):
        """All ranks have come together."""
        self.use(job)

    def advise(self, text):
        """What to do if this rank has died."""
        self.write(f"died {self.name} has died: it was killed, ran out of memory or crashed{'; ' * bool(text)}{text}")

    def leave(self):
        """This rank ends, and it has been said why."""
        with suppress(OSError):
            self.file.touch()
        self.write("left")

    def ending(self):
        """The job has ended well, and its ranks leave together."""
        self.write("left")
        self.write(f"wait {TOGETHER} the ranks of a finished job have not ended together within {TOGETHER} s")

    def end(self):
        with suppress(OSError):
            self.process.stdin.close()

    def write(self, line):
        with suppress(OSError):
            self.process.stdin.write(line.encode() + b"\n")
