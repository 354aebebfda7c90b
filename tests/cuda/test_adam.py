import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import numbers, to

from tinyvit import ViT, ViTConfig
from tinyvit.functional.adam import adam_step
from tinyvit.optim import AdamW

SIZES = st.integers(0, 40) | st.sampled_from([1023, 1024, 1029, 4096])


def state(size, seed):
    """θ, g, m, v as float64."""
    theta, g, m, v = numbers(4, size, seed=seed)
    return [theta, g, m, np.float32(v * v).astype("float64")]


def steps(cupy, arrays, t, betas=(0.9, 0.999), start=0, **options):
    """θ, m and v after a step on the device, and after a step of the reference implementation in float64."""
    device = [to(cupy, np.concatenate([np.zeros(start), array]))[start:] for array in arrays]
    expected = [array.copy() for array in arrays]
    adam_step(*device, t, 1e-3, betas, 1e-8, 0.05, **options)
    adam_step.reference(*expected, max(int(t), 1), 1e-3, betas, 1e-8, 0.05)
    return [[triple[i] for i in (0, 2, 3)] for triple in (device, expected)]


def assert_close(got, expected):
    for array, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(array.get(), wanted, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("on_device", [False, True])
@given(size=SIZES, start=st.integers(0, 4), t=st.integers(1, 10**6), seed=st.integers(0, 99))
def test_a_step_is_that_of_the_reference(cupy, on_device, size, start, t, seed):
    number = cupy.asarray(np.int64(t)) if on_device else t
    assert_close(*steps(cupy, state(size, seed), number, start=start))


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("betas", [(0.0, 0.0), (0.9, 0.99999), (0.0, 0.999)])
@pytest.mark.parametrize("t", [1, 2, 1000])
def test_the_first_steps_keep_their_digits_whatever_the_betas(cupy, on_device, betas, t):
    number = cupy.asarray(np.int64(t)) if on_device else t
    assert_close(*steps(cupy, state(40, 0), number, betas))


def test_a_boolean_on_the_device_decides_whether_the_step_is_taken(cupy):
    arrays = state(40, 0)
    for t in (0, 3):
        left, _ = steps(cupy, arrays, cupy.asarray(np.int64(t)), where=cupy.asarray(np.bool_(False)))
        for got, before in zip(left, (arrays[0], arrays[2], arrays[3])):
            np.testing.assert_array_equal(got.get(), np.float32(before))
    assert_close(*steps(cupy, arrays, 3, where=cupy.asarray(np.bool_(True))))
    left, _ = steps(cupy, arrays, 3, where=False)
    np.testing.assert_array_equal(left[0].get(), np.float32(arrays[0]))


def test_arrays_of_other_strides_are_changed_in_place_too(cupy):
    arrays = state(40, 1)
    device = [to(cupy, np.stack([array, array], 1))[:, 0] for array in arrays]
    adam_step(*device, 2, 1e-3, (0.9, 0.999), 1e-8, 0.05)
    adam_step.reference(*arrays, 2, 1e-3, (0.9, 0.999), 1e-8, 0.05)
    assert_close(device, arrays)


def test_the_order_of_the_threads_changes_no_bit(cupy, any_order):
    steps(cupy, state(4096, 0), 2)


@pytest.mark.parametrize("applied", [True, False])
def test_an_optimizer_lets_the_kernel_decide_and_copies_nothing(cupy, monkeypatch, applied):
    model = ViT(ViTConfig(img_size=8, patch_size=4, embed_dim=8, depth=1, num_heads=2), device="cuda")
    optimizer = AdamW(model)
    with model.storage.on_device():
        model.storage.gradients()[:] = 1.0
    before = model.storage.data.get().copy()
    monkeypatch.setattr(cupy, "copyto", None)
    optimizer.step(where=cupy.asarray(np.array(applied)))
    assert (model.storage.data.get() != before).any() == applied and optimizer.t.get() == applied
