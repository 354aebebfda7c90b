import numpy as np
import pytest
from batch_normed import SHAPE, Normed, batch

from tinyvit import Context, gradcheck, nn, optim
from tinyvit.nn import buffer_updates
from tinyvit.nn.context import as_one_of_two
from tinyvit.training import train_step

TRAINING = Context(training=True)


@pytest.mark.parametrize("ctx", [None, TRAINING], ids=["evaluation", "training"])
def test_gradients_through_batch_norms_match_the_complex_step(ctx):
    report = gradcheck.check_model(Normed(), batch(3)[0], ctx=ctx)
    assert report.max_error < 1e-9, report


def test_gradients_through_a_group_norm_match_the_complex_step():
    model = nn.GroupNorm(2, 6, eps=1e-3).materialize()
    report = gradcheck.check_model(model, np.random.default_rng(0).standard_normal((2, 6, 3, 5)))
    assert report.max_error < 1e-9, report


def test_running_statistics_move_towards_those_of_each_batch():
    model = nn.BatchNorm2d(SHAPE[0]).materialize(dtype="float64")
    images, _ = batch(7)
    y, cache = model(images, TRAINING)
    np.testing.assert_array_equal(model.running_mean.data, 0)  # a forward changes nothing
    (update,) = buffer_updates(cache)
    model.commit(update.statistics)
    np.testing.assert_allclose(model.running_mean.data, 0.1 * images.mean((0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(model.running_var.data, 0.9 + 0.1 * images.var((0, 2, 3), ddof=1), rtol=1e-13)
    np.testing.assert_allclose(y.mean((0, 2, 3)), 0, atol=1e-13)


def test_evaluation_takes_every_sample_alone_and_updates_nothing():
    model = Normed()
    train_step(model, optim.SGD(model, 0.1), *batch(7), TRAINING)
    images, _ = batch(5, seed=1)
    whole, cache = model(images)
    assert buffer_updates(cache) == []
    np.testing.assert_allclose(np.concatenate([model(image[None])[0] for image in images]), whole, rtol=1e-12)


def test_statistics_are_in_the_state_and_no_parameters():
    model = Normed()
    assert [name for name in model.state_dict() if "running" in name] == [
        "norm1.running_mean", "norm1.running_var", "norm2.running_mean", "norm2.running_var",
    ]  # fmt: skip
    assert model.num_parameters() == 2 * 2 * 3 + 3 * 4 + 4


def test_a_single_value_per_channel_is_refused_in_training_and_taken_where_only_shapes_count():
    model, x = nn.BatchNorm2d(3).materialize(), np.ones((1, 3, 1, 1), "float32")
    with pytest.raises(ValueError, match="more than one value per channel in training"):
        model(x, TRAINING)
    assert model(x)[0].shape == model(x, as_one_of_two(TRAINING))[0].shape == (1, 3, 1, 1)


def test_groups_that_do_not_divide_the_channels_are_refused_when_the_layer_is_made():
    with pytest.raises(ValueError, match="4 groups don't divide 6 channels"):
        nn.GroupNorm(4, 6)
