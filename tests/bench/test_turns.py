import pytest
from small_bench import TRAIN

from tinyvit.bench.contestants import TINYVIT
from tinyvit.bench.processes import WorkerFailed
from tinyvit.bench.turns import Player, take_turns


class Listed:
    """A player that only records its turns."""

    def __init__(self, name, order):
        self.name, self.order = name, order

    def turn(self):
        self.order.append(self.name)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_every_player_has_one_turn_per_round_and_they_take_turns_to_start(rounds):
    order, ticks = [], []
    take_turns([Listed(name, order) for name in "abc"], rounds, after_turn=lambda: ticks.append(len(order)))
    assert ["".join(order[i : i + 3]) for i in range(0, len(order), 3)] == ["abc", "bca", "cab", "abc", "bca"][:rounds]
    assert ticks == list(range(1, 3 * rounds + 1))


class Answers:
    """A worker with prepared answers; an exception among them is raised."""

    def __init__(self, environment):
        self.told, self.answers, self.killed = [], [], False

    def tell(self, do, **command):
        self.told.append({"do": do, **command})

    def answer(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, do, **command):
        self.tell(do, **command)
        return self.answer()

    def kill(self):
        self.killed = True


@pytest.fixture
def player(monkeypatch):
    monkeypatch.setattr("tinyvit.bench.turns.Worker", Answers)
    return Player(TINYVIT["numpy"], threads=2, precision="float32")


@pytest.mark.parametrize(("step", "repeats"), [(0.001, 200), (0.15, 1), (3.0, 1)])
def test_a_turn_has_as_many_steps_as_fill_it_and_at_least_one(player, step, repeats):
    warm, turn = {"seconds": step, "value": 2.5}, {"seconds": step, "value": 2.0}
    player.worker.answers = [{"before": 1}, warm, turn, {"peak": 9}]
    player.begin(TRAIN)
    player.warm(0.2)
    player.turn()
    player.finish()
    assert player.worker.told[2] == {"do": "turn", "repeats": repeats}
    assert (player.seconds, player.values, player.second) == ([step], [2.0], 2.5)
    assert (player.before, player.peak, player.problem) == (1, 9, None)


@pytest.mark.parametrize("died", [False, True])
@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_failed_player_gets_no_more_times_and_keeps_its_first_reason(player, good, died):
    answers = [{"before": 1}, {"seconds": 1.0, "value": 0.0}, {"seconds": 1.5, "value": 0.0}]
    player.worker.answers = [*answers[:good], WorkerFailed("the reason", died)]
    player.begin(TRAIN)
    player.warm(0.2)
    player.turn()
    player.finish()
    assert (player.seconds, player.problem, player.died) == ([None], "the reason", died)
    assert player.worker.killed and player.peak is None


def test_a_player_whose_worker_has_died_is_given_no_further_case(player):
    player.worker.answers = [WorkerFailed("the reason", True)]
    player.begin(TRAIN)
    player.warm(0.2)
    told = len(player.worker.told)
    player.begin(TRAIN)
    player.warm(0.2)
    player.turn()
    assert len(player.worker.told) == told and player.seconds == [None]
