import inspect
import re
import threading
from contextlib import nullcontext

import numpy as np
import pytest

import tinyvit
from tinyvit import functional as F
from tinyvit import levels
from tinyvit.dispatch import backward_of, operation


@pytest.fixture
def doubling(monkeypatch):
    """An operation whose kernel adds 1, so that it can be recognised."""
    monkeypatch.setattr(levels, "process_level", lambda: "numpy")

    @operation
    def double(x):
        return 2 * x, ()

    class KernelCache(tuple):
        pass

    @backward_of(double, result=lambda cache: ())
    def double_backward(dy, cache):
        return 2 * dy

    double.register(("numpy", "float32"), lambda x: (2 * x + 1, KernelCache()))
    double_backward.register_cache(KernelCache, lambda dy, cache, into=None: "kernel")
    return double


def test_a_kernel_runs_for_its_dtype_only_and_outside_of_reference(doubling):
    x = np.float32([3])
    assert doubling(x)[0] == 7 and doubling.reference(x)[0] == doubling(x.astype("float64"))[0] == 6
    with pytest.raises(RuntimeError), tinyvit.reference():
        assert doubling(x)[0] == 6
        raise RuntimeError
    assert doubling(x)[0] == 7


def test_a_backward_follows_its_cache_not_the_setting(doubling):
    _, cache = doubling(np.float32([3]))
    with tinyvit.reference():
        assert doubling.backward(1.0, cache) == "kernel"
    assert doubling.backward(1.0, ()) == 2


def test_another_thread_is_not_affected_by_reference(doubling):
    seen = []
    with tinyvit.reference():
        thread = threading.Thread(target=lambda: seen.append(doubling(np.float32([3]))[0]))
        thread.start()
        thread.join()
    assert seen[0] == 7


def backward_for(operation, *shapes):
    """The backward of an operation with parameters of these shapes, as a function of `into`."""
    def backward(into, **options):
        y, cache = operation(np.random.default_rng(0).standard_normal((2, 5, 12)), *map(np.ones, shapes))
        return operation.backward(np.cos(y), cache, into=into, **options)

    return pytest.param(backward, id=operation.__name__)


@pytest.fixture(params=[backward_for(F.layernorm, 12, 12), backward_for(F.linear, (7, 12), 7)])
def backward(request):
    return request.param


def test_into_adds_to_an_array_or_leaves_a_gradient_out(backward):
    dx, dweight, dbias = backward(None)
    destination = np.full_like(dweight, 3)
    results = backward((destination, False))
    np.testing.assert_array_equal(results[0], dx)
    assert results[1] is destination and results[2] is None
    np.testing.assert_array_equal(destination, 3 + dweight)
    np.testing.assert_array_equal(backward((None, None))[2], dbias)


@pytest.mark.parametrize("reference", [True, False])
def test_without_inputs_their_gradient_is_none_and_those_of_parameters_are_the_same(backward, reference):
    with tinyvit.reference() if reference else nullcontext():
        _, dweight, dbias = backward(None)
        nothing, *same = backward(None, inputs=False)
        assert nothing is None
        np.testing.assert_array_equal(same[0], dweight)
        np.testing.assert_array_equal(same[1], dbias)
        assert backward((False, False), inputs=False) == (None, None, None)


@pytest.mark.parametrize("into, message", [
    ((), "into= has 0 entries for 2 parameter gradients"),
    ((False,) * 3, "into= has 3 entries for 2 parameter gradients"),
    ((np.zeros((3, 12)), False), "into=: expected a writeable floating-point array"),  # it isn't broadcast
])  # fmt: skip
def test_another_number_or_shape_of_destinations_is_refused(backward, into, message):
    with pytest.raises(ValueError, match=message):
        backward(into)
    with pytest.raises(ValueError, match="into= has 1 entries for 0 parameter gradients"):
        F.gelu_backward(np.ones(3), F.gelu(np.ones(3))[1], into=(False,))


@pytest.mark.parametrize("call", [
    lambda x: F.layernorm(x, x[0], x[0], np.float64(1e-6)),
    lambda x: F.attention(*[x[None, None]] * 3, scale=np.float64(0.5)),
    lambda x: F.dropout(x, np.float64(0.5), key=np.int64(3)),
    lambda x: F.cross_entropy(x, np.array([0, 1]), np.float64(0.1)),
])  # fmt: skip
def test_numpy_numbers_among_the_arguments_do_not_change_the_dtype(call):
    assert call(np.ones((2, 3), "float32"))[0].dtype == "float32"


OPERATIONS = [name for name in dir(F) if hasattr(F, f"{name}_backward")]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_shows_its_own_source_and_its_backward_stands_right_below(name):
    op, backward = getattr(F, name), getattr(F, f"{name}_backward")
    assert op.__doc__ and backward.__doc__
    assert re.match(rf"@operation(\(.*\))?\ndef {name}\(", inspect.getsource(op))
    assert list(inspect.signature(op.backward).parameters) == ["dy", "cache"]
    assert inspect.getsourcefile(op) == inspect.getsourcefile(backward)
    lines, first = inspect.getsourcelines(op)
    assert inspect.getsourcelines(backward)[1] == first + len(lines) + 2


def test_a_call_like_an_earlier_one_looks_for_no_kernel_and_converts_nothing(monkeypatch):
    from tinyvit import dispatch

    x, weight, into = np.ones((5, 4), "float32"), np.ones((3, 4), "float32"), (np.zeros((3, 4), "float32"), False)

    def run():
        y, cache = F.linear(x, weight, weight[:, 0])
        return F.linear_backward(y, cache, into=into)

    run()
    for module, name in ((dispatch, "as_operand"), (dispatch, "as_gradient"), (levels, "kind")):
        monkeypatch.delattr(module, name)
    run()
    with pytest.raises(NameError):
        F.linear(x.astype("float64"), weight)


def test_every_part_of_a_gradient_is_checked_each_time():
    heads, cache = F.split_heads(np.ones((2, 5, 12)), 2)
    F.split_heads_backward(heads, cache)
    with pytest.raises(ValueError, match="split_heads_backward: expected dy as an array of numbers, got object"):
        F.split_heads_backward((heads[0], np.full(heads[1].shape, None), heads[2]), cache)
    with pytest.raises(ValueError, match="split_heads_backward: expected dy as a tuple of 3 arrays, got 1 entries"):
        F.split_heads_backward(heads[:1], cache)


def scale(x, gain):
    return x * gain, ()


def test_an_argument_that_was_not_declared_takes_no_array():
    with pytest.raises(ValueError, match=r"scale: expected gain as a number or a tuple, got an array \(3,\)"):
        operation(scale)(np.ones(3), np.ones(3))
    np.testing.assert_array_equal(operation(scale, arrays="x gain")(np.ones(3), [1, 2, 3])[0], [1, 2, 3])


@pytest.mark.parametrize("declaration", [{"arrays": "x gian"}, {"arrays": "gain"}, {"in_place": "gain"}])
def test_a_declaration_of_anything_but_the_arguments_is_refused(declaration):
    with pytest.raises(ValueError, match=r"scale: expected names of \(x, gain\), the first among them, got"):
        operation(**declaration)(scale)


def test_missing_and_unknown_arguments_are_named_in_one_line():
    with pytest.raises(TypeError, match="layernorm: missing a required argument: 'weight'"):
        F.layernorm(np.ones((2, 3)))
    with pytest.raises(TypeError, match="softmax: got an unexpected keyword argument 'axis'"):
        F.softmax(np.ones((2, 3)), axis=0)
    with pytest.raises(ValueError, match=r"expected logits as an array, got it with a cache: y, cache = model\(x\)"):
        F.cross_entropy(F.softmax(np.ones((2, 3))), np.arange(2))
