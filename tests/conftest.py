"""How hard hypothesis tries, and on what the tests run.

Where people work, 30 examples a property, others every time. In CI the same ones every time, so that an answer doesn't
change unless the code does: 200, or 30 ("few") where the suite runs once more on something else.
"""

import os

import gpu_or_not
import on_the_stand_in
from hypothesis import settings

settings.register_profile("default", max_examples=30, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("few", max_examples=30, deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else os.environ.get("HYPOTHESIS_PROFILE", "default"))

if on_the_stand_in.ASKED:
    on_the_stand_in.begin()


def pytest_configure(config):
    if not on_the_stand_in.ASKED:
        gpu_or_not.choose(config)


def pytest_collection_modifyitems(config, items):
    if on_the_stand_in.ASKED:
        out = [item for item in items if on_the_stand_in.left_out(item)]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
