"""Starts worker processes, sends them commands, reads their answers, and kills them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile


class WorkerFailed(Exception):
    """The reason why a worker can't continue, in one line. `died`: whether the process has ended."""

    def __init__(self, reason, died):
        super().__init__(reason)
        self.died = died


class Worker:
    """A worker process. Leaving the `with` block ends it at once, whatever it is doing.

    It is in a group of its own: Ctrl-C reaches only the process that started it, which ends it and all that it
    started itself, such as a compiler.
    """

    def __init__(self, environment):
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by `kill`
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tinyvit.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            encoding="utf-8",
            env=environment,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def tell(self, do, **command):
        """Send a command; `answer` waits for its result."""
        with contextlib.suppress(BrokenPipeError):  # `answer` says how it ended
            print(json.dumps({"do": do, **command}), file=self.process.stdin, flush=True)

    def answer(self):
        """The answer to a command; WorkerFailed if the command failed or the process has ended."""
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise WorkerFailed(self.how_it_ended(), died=True)
        answer = json.loads(line)
        if "problem" in answer:
            raise WorkerFailed(answer["problem"], died=False)
        return answer

    def ask(self, do, **command):
        self.tell(do, **command)
        return self.answer()

    def how_it_ended(self):
        status = self.process.wait()
        if status == -9:  # SIGKILL, which Windows doesn't have
            return "its process was killed, as the system does when memory runs out; take a smaller --batch-size"
        if status < 0:
            return f"its process was ended by {signal.Signals(-status).name}"
        return f"its process ended with status {status}: {self.last_words() or 'it said nothing'}"

    def last_words(self):
        """The last line of its stderr."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        return next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")

    def kill(self):
        """Kill the process and its children."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                if hasattr(os, "killpg"):
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(OSError):
                file.close()
