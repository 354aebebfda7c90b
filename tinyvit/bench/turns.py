"""Workers that take turns, so that the noise of a shared machine affects all alike."""

import time

from tinyvit.bench.cases import to_dict
from tinyvit.bench.processes import Worker, WorkerFailed


class Player:
    """A contestant with its worker process and its results.

    seconds   of a step, one entry a round; None where there was no turn any more
    values    what the step returned: a loss, or the rate of matrix products
    second    what the second step of all returned: a loss that depends on the gradients of the first
    before    bytes in use before the case was built; `peak` the most that was in use
    problem   why it could not go on, or None; `died` whether its process ended by itself
    """

    def __init__(self, contestant, threads, precision):
        self.contestant, self.threads, self.precision = contestant, threads, precision
        self.worker = Worker(contestant.environment(threads))
        self.problem, self.died = None, False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.worker.kill()

    def begin(self, case):
        """Tell it to build a case, without waiting for it."""
        self.case, self.seconds, self.values = case, [], []
        self.second = self.before = self.peak = None
        if self.problem is None:
            self.worker.tell(
                "prepare", work=self.contestant.work, case=to_dict(case), precision=self.precision, threads=self.threads
            )

    def warm(self, seconds):
        """Wait until the case is built, warm up, and measure how many steps fill a turn of `seconds`."""
        answer = self.guarded(self.worker.answer)
        self.before = answer.get("before")
        answer = self.guarded(lambda: self.worker.ask("warm", seconds=seconds))
        self.second = answer.get("value")
        self.repeats = max(1, round(seconds / max(answer.get("seconds", 0.0), 1e-9))) if answer else 1

    def turn(self):
        answer = self.guarded(lambda: self.worker.ask("turn", repeats=self.repeats))
        self.seconds.append(answer.get("seconds"))
        self.values.append(answer.get("value"))

    def finish(self):
        self.peak = self.guarded(lambda: self.worker.ask("peak")).get("peak")

    def guarded(self, ask):
        """The worker's answer, or {} after a problem."""
        if self.problem is not None:
            return {}
        try:
            return ask()
        except WorkerFailed as error:
            self.problem, self.died = str(error), error.died
            self.worker.kill()  # nothing more comes from it, and the others can have its memory
            return {}


def take_turns(players, rounds, pause=0.0, after_turn=lambda: None):
    """Give every player one turn per round; a different one starts each round.

    pause   seconds between turns, in which the last one's idle threads stop to look for work
    """
    for number in range(rounds):
        first = number % len(players)
        for player in players[first:] + players[:first]:
            player.turn()
            after_turn()
            time.sleep(pause)
