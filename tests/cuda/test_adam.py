import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import numbers, to

from tinyvit import ViT, ViTConfig
from tinyvit.functional.adam import adam_step
from tinyvit.optim import AdamW


def checked(cupy, size, t, betas=(0.9, 0.999), start=0, lie=lambda x: x, seed=0, **options):
    """Compare θ, m and v after a step with the reference implementation; returns them."""
    theta, g, m, v = numbers(4, size, seed=seed)
    arrays = [theta, g, m, np.float32(v * v).astype("float64")]
    device = [lie(to(cupy, np.concatenate([np.zeros(start), array]))[start:]) for array in arrays]
    adam_step(*device, t, 1e-3, betas, 1e-8, 0.05, **options)
    if options.get("where", True) is True or bool(options["where"]):
        adam_step.reference(*arrays, int(t), 1e-3, betas, 1e-8, 0.05)
    for i in (0, 2, 3):
        np.testing.assert_allclose(device[i].get(), arrays[i], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("on_device", [False, True])
@given(
    size=st.integers(0, 40) | st.sampled_from([1023, 1024, 1029, 4096]), start=st.integers(0, 4),
    t=st.integers(1, 3) | st.integers(1, 10**6), seed=st.integers(0, 99),
    betas=st.sampled_from([(0.9, 0.999), (0.0, 0.0), (0.9, 0.99999), (0.0, 0.999)]),
)  # fmt: skip
def test_a_step_is_that_of_the_reference(cupy, on_device, size, start, t, seed, betas):
    checked(cupy, size, cupy.asarray(np.int64(t)) if on_device else t, betas, start, seed=seed)


def test_a_boolean_on_the_device_decides_and_arrays_of_other_strides_are_changed_in_place_too(cupy):
    for where in (False, True):
        checked(cupy, 40, cupy.asarray(np.int64(3)), where=cupy.asarray(np.bool_(where)))
        checked(cupy, 40, 3, where=where)
    checked(cupy, 40, 2, lie=lambda x: cupy.stack([x, x], 1)[:, 0])


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
