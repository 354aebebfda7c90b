import numpy as np

from tinyvit import gradcheck
from tinyvit.models import worked_example as example

Z0 = [[0.1, 0.1, 0.1, 0.1], [0.9, -0.3, 0.4, 1.2], [1.1, 0.3, -0.4, 0.6], [-0.3, 0.9, 0.7, -0.1], [0.5, -0.8, 1, 0.4]]


def test_the_tokens_are_those_of_the_textbook():
    _, steps = example.forward()
    np.testing.assert_allclose(steps["z0"][0], Z0, atol=1e-15)


def test_the_class_tokens_scores_and_attention_are_those_of_the_textbook():
    _, steps = example.forward()
    cache = steps["c_attention"]
    scores = (cache.q @ cache.k.mT * cache.scale)[0, 0, 0]
    np.testing.assert_allclose(scores, [0.02, 0.11, 0.08, 0.06, 0.055], atol=1e-15)
    np.testing.assert_allclose(cache.probs[0, 0, 0], [0.19, 0.21, 0.20, 0.20, 0.20], atol=0.005)


def test_every_gradient_that_is_printed_matches_the_complex_step():
    inputs = (example.PATCHES, example.CLS_TOKEN, example.POSITIONS, example.NORM_WEIGHT, example.NORM_BIAS,
              example.HEAD_WEIGHT, example.HEAD_BIAS)  # fmt: skip

    def backward(dy, steps):
        gradients = example.backward(steps)
        names = ("dpatches", "dcls_token", "dpositions", "dnorm_weight", "dnorm_bias", "dhead_weight", "dhead_bias")
        return tuple(dy * gradients[name] for name in names)

    report = gradcheck.check(example.forward, backward, inputs)
    assert report.max_error < 1e-14, report


def test_the_printed_numbers_stay_as_they_are(capsys):
    example.main()
    printed = capsys.readouterr().out
    for row in (
        "class      0.0200   0.1100   0.0800   0.0600   0.0550",
        "class      0.1911   0.2091   0.2029   0.1989   0.1979",
        "class      0.4698   0.0379   0.3587   0.4511",
        "loss: −log of the probability of class 0 = 0.1369",
        "class     -0.2848  -0.0804   0.3103   0.0374",
        "patch 3   -0.0404  -0.0103   0.0465   0.0107",
    ):
        assert row in printed
