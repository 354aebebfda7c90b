"""Run tests on an array module that has only what CuPy has: `TINYVIT_TEST_DEVICE=pretended python -m pytest tests/nn`.

`pretend_cupy` replaces CuPy. NumPy arrays that tests pass to the package are moved to the pretended device in their own
memory order, and what the package wrote into them is copied back; models, data loaders and trainings are on the GPU
unless a test says otherwise. Inside the package nothing is moved or converted: there, a host array mixed with device
arrays, a conversion to NumPy, or a step that waits for the GPU is an error. Float32 runs the CUDA sources in the
emulator, float64 and complex numbers the reference implementation.
"""

import functools
import inspect
import os
import pkgutil
import sys
from importlib import import_module

import numpy as np
import pretend_cupy

ASKED = os.environ.get("TINYVIT_TEST_DEVICE") == "pretended"

# Tests (with all their parameters) and files that are left out of what `.ci/full pretended` names.
LEFT_OUT = {
    # about the CPU: its threads, its kernels, kinds of arrays that CuPy lacks, or bits of its results
    "test_the_thread_is_two_batches_ahead_and_no_more", "test_no_thread_outlives_its_iterator",
    "test_the_cache_of_a_kernel_has_every_field_of_the_references",
    "test_adam_refuses_a_read_only_array_and_changes_none",
    "test_a_number_may_come_as_an_array_without_axes",
    "test_which_says_what_would_run_and_where_it_is_written", "test_equal_rows_in_other_parts_are_told_apart",
    "test_parts_that_gather_have_the_loss_and_the_gradients_of_the_whole_batch",
    "test_the_saved_weights_have_the_scores_in_the_summary",
    # counting what is moved on a stand-in of its own
    "test_on_a_device_the_data_set_is_moved_once_nothing_waits_and_there_is_no_thread",
    # indices and labels, which are not checked on a GPU, since that would wait for it
    "test_tokens_are_taken_at_distinct_integers_in_range", "test_labels_out_of_range_are_named",
    "test_labels_that_are_none_are_refused", "test_times_and_classes_that_do_not_fit_are_refused",
    "test_bad_arguments_are_refused_with_the_given_value_and_move_nothing",
    # measuring NumPy's memory, its products, or a file
    "test_a_kernel_makes_no_product_for_a_gradient_that_is_not_wanted", "test_summary.py",
    "test_memory_grows_linearly_with_the_number_of_tokens_and_that_of_attention_with_its_square",
    "test_no_more_than_a_tile_of_scores_is_in_memory_at_any_time", "test_nothing_is_cached_for_frozen_parts",
    "test_heads_of_windows_side_by_side_are_those_of_each_window",
    "test_a_recorded_page_of_9_layers_12_heads_and_65_tokens_stays_below_5_megabytes_and_has_several_images",
}  # fmt: skip
PACKAGES = ("tinyvit", "tiny_architecture")  # the latter's models compute where the package's do

# Functions that tests call with arrays: all that are public and whose full name begins like this. Nothing may wait for
# the device inside of them, except for those that are called between steps.
CALLED = tuple("tinyvit." + start for start in (
    "data.augment.", "data.colour.", "data.erasing.erase", "data.mixing.", "functional.", "gradcheck.check",
    "models.vit.some_tokens", "nn.module.backward_in_scope", "nn.recompute.with_recompute", "nn.watch.watched_backward",
    "optim.", "training.divergence.", "training.sampling.predicted", "training.step.train_step",
    "training.tasks.classification.classify", "training.tasks.classification.loss_of_classes",
))  # fmt: skip
ON_ANY_DEVICE = {"cast"}  # but this one, which layers of tests call on whatever they get
BETWEEN_STEPS = {"check", "check_model", "classify", "explain", "log_softmax", "where_first"}


def begin():
    """Replace CuPy by the stand-in and put a boundary around the package."""
    sys.modules.update(pretend_cupy.MODULES)
    import tinyvit

    assert tinyvit.backend.choose_device("auto")[1] is None  # once per process, since trying it waits for the device
    tinyvit.backend.library("cuda")
    for module in pkgutil.walk_packages(tinyvit.__path__, "tinyvit."):
        if not module.name.startswith(("tinyvit.bench", "tinyvit.kernels.fast", "tinyvit.__main__")):
            import_module(module.name)
    for function in functions_of("tinyvit"):
        on_the_device_by_default(function)
    called = {f for f in functions_of("tinyvit") if f"{f.__module__}.{f.__qualname__}".startswith(CALLED)}
    wrapped = {
        f: at_the_boundary(f, f.__name__ not in BETWEEN_STEPS) for f in called
        if f.__name__ == f.__qualname__ not in ON_ANY_DEVICE and not f.__name__.startswith("_")
    }  # fmt: skip
    for function in wrapped.values():
        if hasattr(function, "backward"):
            function.backward = wrapped[function.backward]
    replace(wrapped)
    from tinyvit.nn import module

    for kind in (module.Module, *subclasses(module.Module)):
        for name in (
            "__call__", "backward", "features", "forward_above", "backward_above", "compare", "compare_backward",
        ):  # fmt: skip
            if name in vars(kind):
                setattr(kind, name, at_the_boundary(vars(kind)[name], True))
        if "predict" in vars(kind):
            kind.predict = where_images_are_normalised(kind.predict)


def replace(wrapped):
    """Put wrapped functions in the place of those that they wrap, under every name that the package has for them."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tinyvit":
            for attribute, value in list(vars(module).items()):
                new = instead(value, wrapped)
                if new is not value:
                    setattr(module, attribute, new)


def instead(value, wrapped):
    """A module's attribute with the wrapped functions, also in tables of functions."""
    if type(value) in (dict, tuple):
        return inside(lambda item: instead(item, wrapped), value)
    return wrapped.get(value, value) if inspect.isfunction(value) else value


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def functions_of(package):
    """Every function and method that the package defines."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != package:
            continue
        for value in list(vars(module).values()):
            members = vars(value).values() if inspect.isclass(value) else (value,)
            yield from (f for f in members if inspect.isfunction(f) and f.__module__ == name)


def on_the_device_by_default(function):
    """Change default arguments `device="cpu"` to "cuda"."""
    parameters = inspect.signature(function).parameters
    if "device" not in parameters or parameters["device"].default != "cpu":
        return
    if parameters["device"].kind == inspect.Parameter.KEYWORD_ONLY:
        function.__kwdefaults__["device"] = "cuda"
    else:
        function.__defaults__ = tuple("cuda" if value == "cpu" else value for value in function.__defaults__)


def at_the_boundary(function, in_a_step):
    """Wrap `function` so that callers outside of the package may pass NumPy arrays."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        from_inside = caller.partition(".")[0] in PACKAGES and caller != "tinyvit.gradcheck"
        if from_inside or on_the_cpu(args):
            return function(*args, **kwargs)
        crossing = Crossing()
        args, kwargs = crossing.there(args), crossing.there(kwargs)
        if in_a_step:
            with pretend_cupy.nothing_waits():
                result = function(*args, **kwargs)
        else:
            result = function(*args, **kwargs)
        return crossing.back(result)

    return call


def where_images_are_normalised(predict):
    """Wrap `predict`: normalised images go to the device, images that it preprocesses stay on the host."""
    moved = at_the_boundary(predict, True)

    @functools.wraps(predict)
    def call(model, images, preprocess=None):
        kind = getattr(getattr(images, "dtype", None), "kind", "u")
        on_the_host = kind in "uib" if preprocess is None else preprocess
        return (predict if on_the_host else moved)(model, images, preprocess)

    return call


def on_the_cpu(args):
    """Whether this is a method of a module that a test keeps on the CPU."""
    parameters = getattr(args[0], "parameters", None) if args else None
    if not callable(parameters):
        return False
    first = next(iter(parameters()), None)
    return getattr(getattr(first, "storage", None), "device", "cuda") == "cpu"


class Crossing:
    """The arrays that one call moves to the device."""

    def __init__(self):
        self.pairs = {}

    def there(self, x):
        """`x` with every NumPy array in it moved to the device, the same one only once."""
        if isinstance(x, np.ndarray) and x.dtype.kind in "biufc":
            if id(x) not in self.pairs:
                self.pairs[id(x)] = x, laid_out_alike(x)
            return self.pairs[id(x)][1]
        return inside(self.there, x)

    def back(self, x):
        """The result of a call, in which the test's own arrays replace their copies on the device."""
        for host, device in self.pairs.values():
            if host.flags.writeable:
                host[...] = device.host
        originals = {id(device): host for host, device in self.pairs.values()}

        def restored(x):
            return originals.get(id(x), x) if isinstance(x, pretend_cupy.ndarray) else x

        return tuple(map(restored, x)) if type(x) is tuple else restored(x)  # but what a cache holds stays there


def inside(function, x):
    """Apply `function` to the items of a list, tuple or dict; returns the same object if nothing changes."""
    if isinstance(x, dict):
        new = {key: function(value) for key, value in x.items()}
        return x if all(new[key] is x[key] for key in x) else new
    if not isinstance(x, (list, tuple)):
        return x
    new = [function(item) for item in x]
    if all(one is other for one, other in zip(new, x)):
        return x
    return type(x)(*new) if hasattr(x, "_fields") else type(x)(new)


def laid_out_alike(x):
    """A NumPy array on the device with the same strides and the same alignment to 16 bytes."""
    spans = [(side - 1) * stride for side, stride in zip(x.shape, x.strides)]
    itemsize = x.dtype.itemsize
    whole = x.size > 0 and all(stride % itemsize == 0 for stride in x.strides)
    if not whole:
        return pretend_cupy.from_host(x)
    first = -sum(span for span in spans if span < 0) // itemsize
    shift = 1 if x.ctypes.data % min(16, 2 * itemsize) else 0
    memory = pretend_cupy.guarded((shift + first + sum(span for span in spans if span > 0) // itemsize + 1,), x.dtype)
    view = np.lib.stride_tricks.as_strided(memory.host[shift + first :], x.shape, x.strides)
    view[...] = x
    if not x.flags.writeable:
        view.flags.writeable = False
    return pretend_cupy.ndarray(view, memory.whole, memory)


def left_out(item):
    """Whether LEFT_OUT names a test or its file."""
    return bool({item.path.name, getattr(item, "originalname", None)} & LEFT_OUT)
