import numpy as np
from strategies import redrawn

from tinyvit import functional as F
from tinyvit import gradcheck, nn
from tinyvit.nn.chain import Chain, Operation, TransparentChain

RNG = np.random.default_rng(0)


def test_a_chain_is_its_parts_one_after_the_other_and_so_is_its_gradient():
    chain = redrawn(Chain(nn.Linear(4, 5), act=Operation(F.tanh), out=nn.Linear(5, 3)).materialize(dtype="float64"))
    x, weight = RNG.standard_normal((2, 4)), chain.out.weight.data
    y, cache = chain(x)
    hidden = np.tanh(x @ chain[0].weight.data.T + chain[0].bias.data)
    np.testing.assert_allclose(y, hidden @ weight.T + chain.out.bias.data, atol=1e-14)
    np.testing.assert_allclose(cache.out.x, hidden, atol=1e-14)
    assert cache._fields == ("_0", "act", "out")
    assert gradcheck.check_model(chain, x).max_error < 1e-12


def test_an_empty_chain_returns_its_input():
    x = RNG.standard_normal((2, 4))
    y, cache = Chain()(x)
    assert y is x and Chain().backward(x, cache) is x


def test_the_parts_of_a_branch_are_named_as_those_of_the_module_that_has_it():
    class Residual(nn.Module):
        def __init__(self):
            self.branch, self.other = TransparentChain(fc=nn.Linear(2, 3)), Chain(fc=nn.Linear(2, 3))

    model = Residual().materialize()
    names = [name for name, _ in model.named_parameters()]
    assert names == ["fc.weight", "fc.bias", "other.fc.weight", "other.fc.bias"]
