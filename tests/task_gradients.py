"""The gradient of a task's loss against the complex step."""

import numpy as np


def assert_gradient_is_that_of_the_complex_step(task, model, batch, learner="", prepare=lambda exact: None):
    """Compare the gradients of all parameters whose names begin with `learner`, each in a random direction.

    prepare   changes the complex model before its loss is computed
    """
    _, backward, *_ = task.loss(model, batch, None)
    backward()
    directions = {}
    for number, (name, parameter) in enumerate(model.named_parameters()):
        if name.startswith(learner):
            assert parameter.grad.any(), name
            directions[name] = np.random.default_rng(number).standard_normal(parameter.grad.shape)
    state, exact = model.state_dict(), task.build(device="cpu").to("complex128")
    exact.load_state_dict({name: array + 1e-20j * directions.get(name, 0) for name, array in state.items()})
    prepare(exact)
    moved, *_ = task.loss(exact, batch, None)
    found = sum((p.grad * directions[name]).sum() for name, p in model.named_parameters() if name in directions)
    np.testing.assert_allclose(found, moved.imag / 1e-20, rtol=1e-9)
