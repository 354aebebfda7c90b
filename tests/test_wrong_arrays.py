"""Operations refuse arrays that don't fit with one line, at every level, and never end the process."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest
import wrong_arrays
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS

from tinyvit import functional as F
from tinyvit import gradcheck, kernels, levels
from tinyvit.functional.adam import adam_step

LEVELS = levels.available()
OPERATIONS = {name: case for name, *case in gradcheck.operation_cases() if name not in gradcheck.MULTIPLE_RESULTS}
DTYPES = [
    "float64", "complex64", "complex128", "float16", "longdouble", ">f4", "int8", "int64", "uint8", "bool",
    "object", "U3", "S2", "M8[s]", "structured",
]  # fmt: skip
LENGTHS = st.integers(0, 9) | st.just(500)
HUGE = 30_000_000


@st.composite
def examples(draw, case):
    """An array of an operation's and how it is changed, mostly in one respect: what `wrong_arrays.wrong` takes."""
    place, which = draw(st.sampled_from(wrong_arrays.PLACES)), draw(st.integers(0, 5))
    aspects = draw(st.sampled_from(["shape", "shape", "dtype", "layout", "all"]))
    dtype = draw(st.sampled_from(DTYPES)) if aspects in ("dtype", "all") else "float32"
    layout = draw(st.sampled_from([*LAYOUTS, "broadcast", "list"])) if aspects in ("layout", "all") else "contiguous"
    start, removed, new = 0, 0, []
    if aspects in ("shape", "all"):
        start, removed = draw(st.integers(0, 4)), draw(st.sampled_from([0, 1, 1, 9]))
        new = draw(st.lists(LENGTHS, max_size=2).filter(lambda new: new != [500, 500]))  # a gigabyte
    if place in ("dy", "into"):  # never computed with
        new = [HUGE if length == 500 else length for length in new]
    return case, place, which, (dtype, layout, start, removed, new)


class Worker:
    """Runs examples in a process of its own, which is started again where one has ended it."""

    pool = None

    def ask(self, *case):
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), wrong_arrays.begin)
        try:
            return self.pool.submit(wrong_arrays.wrong, *case).result()
        except BrokenProcessPool:
            self.pool = None
            return "ended the process"


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    if worker.pool is not None:
        worker.pool.shutdown()


@pytest.mark.end_to_end
@pytest.mark.parametrize("case", wrong_arrays.CASES)
@given(data=st.data())
def test_wrong_arrays_are_refused_in_one_line_or_have_the_result_of_the_reference(worker, case, data):
    assert worker.ask(*data.draw(examples(case))) is None


@pytest.mark.end_to_end
@pytest.mark.parametrize("case", wrong_arrays.CASES)
def test_numbers_and_rows_in_place_of_arrays_are_refused_or_computed_like_the_reference(worker, case):
    for place in ("operand", "dy"):
        for axes in range(3):
            assert worker.ask(case, place, 0, ("float32", "contiguous", 0, 9, [1] * axes)) is None


def levelled(function):
    return pytest.mark.parametrize("level", LEVELS)(function)


@levelled
def test_another_operations_cache_is_refused(level):
    x = np.ones((5, 4), "float32")
    with kernels.using(level), pytest.raises(ValueError, match="expected a cache of its forward, got SoftmaxCache"):
        F.linear_backward(x, F.softmax(x)[1])


@levelled
@pytest.mark.parametrize("dtype", ["int64", "int8", "bool"])
@pytest.mark.parametrize("case", ["softmax", "gelu", "gelu_tanh", "tanh", "layernorm", "linear", "attention", "rope",
                                  "tiled_attention", "pool_mean", "prepend_token"])  # fmt: skip
def test_ints_and_bools_count_as_floating_point_numbers(level, case, dtype):
    forward, backward, inputs = OPERATIONS[case]
    whole = [np.abs(x * 3).astype(dtype) for x in inputs]
    with kernels.using(level):
        y, cache = forward(*whole)
        expected, c = forward(*(x.astype("float64") for x in whole))
        np.testing.assert_allclose(y, expected, rtol=1e-12)
        ones = np.ones(y.shape, "int64")
        got, want = backward(ones, cache), backward(ones.astype("float64"), c)
        for a, b in zip(*((g if isinstance(g, tuple) else (g,)) for g in (got, want))):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@levelled
def test_lists_count_as_arrays_and_everything_else_is_refused_in_one_line(level):
    with kernels.using(level):
        np.testing.assert_allclose(F.layernorm([[1.0, 3.0]], [1, 1], [0, 0])[0], [[-1, 1]], rtol=1e-5)
        masked, matrix = np.ma.masked_less([[1.0, 3.0]], 2), np.ones((1, 2)).view(np.matrix)
        for wrong in (None, "text", {}, np.array(["a"]), np.array([None]), masked, matrix):
            with pytest.raises(ValueError, match="softmax: expected x as an array"):
                F.softmax(wrong)
        with pytest.raises(ValueError, match="layernorm: expected weight as an array of numbers"):
            F.layernorm(np.ones((2, 3)), np.full(3, "a"), np.ones(3))


@levelled
@pytest.mark.parametrize("place", [0, 2, 3])
def test_adam_refuses_a_read_only_array_and_changes_none(level, place):
    arrays = [np.full(5, value, "float32") for value in (1, 2, 3, 4)]
    arrays[place].flags.writeable = False
    name = ("theta", "g", "m", "v")[place]
    with kernels.using(level), pytest.raises(ValueError, match=f"adam_step: expected {name} as an array to update"):
        adam_step(*arrays, 1, 0.1, (0.9, 0.99), 1e-8, 0.1)
    for array, value in zip(arrays, (1, 2, 3, 4)):
        np.testing.assert_array_equal(array, value)


@levelled
def test_a_number_may_come_as_an_array_without_axes_but_not_with(level):
    x = np.arange(12, dtype="float32").reshape(3, 4)
    with kernels.using(level):
        y = F.layernorm(x, x[0], x[1], np.asarray(0.5))[0]
        np.testing.assert_array_equal(y, F.layernorm(x, x[0], x[1], 0.5)[0], strict=True)
        with pytest.raises(ValueError, match=r"layernorm: expected eps as a number or a tuple, got an array \(4,\)"):
            F.layernorm(x, x[0], x[1], x[0])
        for where in (True, np.asarray(True)):  # the same kinds of arguments again go the short way
            adam_step(*np.ones((4, 5), "float32"), 1, 0.1, (0.9, 0.99), 1e-8, 0.1, where)
            with pytest.raises(ValueError, match=r"adam_step: expected where as a number .*, got an array \(5,\)"):
                adam_step(*np.ones((4, 5), "float32"), 1, 0.1, (0.9, 0.99), 1e-8, 0.1, np.ones(5, bool))


@levelled
@pytest.mark.parametrize("index", [
    [[-1, 0], [0, 1]], [[0, 3], [0, 1]], [[0.0, 1.0], [1.0, 2.0]], [[1, 1], [0, 1]], [[0, 1]], [0, 1],
])  # fmt: skip
def test_tokens_are_taken_at_distinct_integers_in_range(level, index):
    x = np.ones((2, 3, 4), "float32")
    with kernels.using(level):
        for wrong in (np.array(index), index):
            with pytest.raises(ValueError, match="take_tokens: expected"):
                F.take_tokens(x, wrong)


@pytest.mark.skipif("fast" not in LEVELS, reason="needs numba")
def test_compiled_functions_refuse_unequal_lengths():
    from tinyvit.kernels.fast.softmax import softmax_backward_rows

    rows = np.ones((3, 4), "float32")
    for others in (
        (rows[:2], rows.copy()), (rows, rows[:1].copy()), (np.ones((3, 5), "float32"), rows.copy()), (rows, rows[0])
    ):  # fmt: skip
        with pytest.raises(ValueError, match="softmax_backward_rows: expected arrays"):
            softmax_backward_rows(rows, *others)


# -- what is kept and what runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "reference"])
@pytest.mark.parametrize("case", OPERATIONS)
def test_the_cache_of_a_kernel_has_every_field_of_the_references(level, case):
    forward, _, inputs = OPERATIONS[case]
    inputs = [x.astype("float32") for x in inputs]
    with kernels.using("reference"):
        expected = forward(*inputs)[1]
    with kernels.using(level):
        cache = forward(*inputs)[1]
    for name in expected._fields:
        got, want = getattr(cache, name), getattr(expected, name)
        if isinstance(want, np.ndarray):
            assert got.shape == want.shape, name
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)
        elif not isinstance(want, tuple) and name != "tile":  # every kernel has its own
            assert got == want, name


@levelled
def test_which_says_what_would_run_and_where_it_is_written(level):
    x = np.ones((2, 3), "float32")
    with kernels.using(level):
        _, cache = F.layernorm(x, x[0], x[0])
        for said in (F.layernorm.which(x), F.layernorm_backward.which(x, cache)):
            name, place = said.split()
            file, line = place.split(":")
            folder = {"reference": "functional", "numpy": "kernels", "fast": "kernels/fast"}[level]
            assert file == f"tinyvit/{folder}/layernorm.py"
            source = Path(F.__file__).parents[2].joinpath(file).read_text(encoding="utf-8").splitlines()
            assert any(f"def {name}(" in text for text in source[int(line) - 1 : int(line) + 6])
