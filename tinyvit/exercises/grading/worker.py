"""The process in which one solution runs. It reads its order, a JSON object, and writes an .npz.

The order has the exercise's name, the solution's source, the expression in it that gives the function, the seed of
the inputs and the limits. Back come the outputs, and how it ended as JSON. What a solution may do is limited twice:
`submission` has read its source, and the system limits its memory, time, files and processes.
"""

import builtins
import json
import os
import resource
import signal
import sys
import warnings
from copy import deepcopy
from importlib import import_module
from types import SimpleNamespace

import numpy as np

from tinyvit.exercises.calling import call_by_position
from tinyvit.exercises.catalogue import find
from tinyvit.exercises.checking import message_text
from tinyvit.exercises.grading import rules
from tinyvit.exercises.grading.hidden import draw, hidden_cases
from tinyvit.exercises.outputs import UnusableOutput, changed_arguments, outputs_of

SOLUTION = "<solution>"
MAX_OUTPUT_BYTES = 64 << 20  # bytes of outputs


def limit(megabytes, seconds):
    """Have the system limit this process, for good."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    if os.geteuid() == 0:  # root may start any number of processes, read every file and signal everybody
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    limits = {"AS": used + (megabytes << 20), "FSIZE": 0, "CORE": 0, "NPROC": 0, "NOFILE": 16}
    for name, bound in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (bound, bound))
    signal.setitimer(signal.ITIMER_REAL, seconds)  # its signal ends the process, whatever that is doing


def builtins_for(source, backward):
    """The builtins that a solution sees; what it may import is loaded now, while the files can still be read."""
    given = {}
    for name in rules.MODULES:
        if name.rpartition(".")[2] in source:
            import_module(name)
    if "scipy" in source:
        special = import_module("scipy.special")
        given["scipy"] = SimpleNamespace(**{name: getattr(special, name) for name in rules.SCIPY_FUNCTIONS})
        given["scipy"].special = given["scipy"]
    if rules.WORKED_EXAMPLE.rpartition(".")[2] in source:
        values = vars(import_module(rules.WORKED_EXAMPLE)).items()
        example = SimpleNamespace(**{name: value for name, value in values if isinstance(value, np.ndarray)})
        example.models = example.worked_example = given["tinyvit"] = example

    def import_(name, names=None, own=None, wanted=(), level=0):
        handed = given.get(name.partition(".")[0])
        if wanted != ("*",):
            return handed or builtins.__import__(name, names, own, wanted, level)
        found = vars(handed or import_module(name))  # without the modules that NumPy would load only now
        public = [one for one in found.get("__all__", found) if one in found and rules.may_be_read(one)]
        return SimpleNamespace(**{one: found[one] for one in public})

    def get(thing, name, *default):
        if not rules.may_be_read(str(name)) or (backward and name in rules.COMPLEX_NAMES):
            raise AttributeError(f"{name} can't be read in grading")
        return getattr(thing, name, *default)

    seen = {name: value for name, value in vars(builtins).items() if name not in rules.BUILTINS}
    return seen | {"__import__": import_, "getattr": get}


def blank_outputs(value):
    """Zeros in the form of the outputs, so that no right answer is in this process."""
    if isinstance(value, dict):
        return {name: blank_outputs(array) for name, array in value.items()}
    return tuple(map(blank_outputs, value)) if isinstance(value, (tuple, list)) else np.zeros(np.shape(value))


def run(order, exercise, cases, names, outputs):
    """Fill `outputs`, a dict of arrays by case and name; return how it ended: status, message, line, title."""
    title = "when the file was run, before any function was called"

    def ended(status, message, line=0):
        return {"status": status, "message": message, "line": line, "title": title}

    try:
        exec(compile(order["source"], SOLUTION, "exec"), names)
        title = ""
        function = call_by_position(eval(compile(order["expression"], SOLUTION, "eval"), names), [*exercise.arguments])
        if not callable(function):
            return ended("error", "is no function")
        for number, case in enumerate(cases):
            title, given, form = case
            before = deepcopy(given)
            got = outputs_of(exercise, form, exercise.answer(function, given))
            touched = changed_arguments(exercise.arguments, before, given) if exercise.calls is None else []
            size = sum(array.nbytes for array in (*outputs.values(), *got.values()))
            if size > MAX_OUTPUT_BYTES:
                most = MAX_OUTPUT_BYTES >> 20
                return ended("error", f"what it returned takes {size >> 20} MB; at most {most} are read")
            outputs |= {f"{number} {name}": np.array(array, subok=False) for name, array in got.items()}
            if touched:
                return ended("wrong", f"changes {', '.join(touched)} in place")
    except UnusableOutput as problem:
        return ended("wrong", str(problem))
    except MemoryError:
        return ended("memory", f"needs more than {order['megabytes']} MB")
    except RecursionError:
        return ended("error", "raised RecursionError: it calls itself without end")
    except BaseException as error:  # SystemExit as well
        said = f"raised {type(error).__name__}: {message_text(error)}".removesuffix(": ")
        return ended("error", " ".join(said.split()), line_in(error))
    return ended("right", "right")


def line_in(error):
    """The line of the solution at which an exception was raised; 0 if it has none."""
    line, step = getattr(error, "lineno", 0) or 0, error.__traceback__
    while step is not None:
        line = step.tb_lineno if step.tb_frame.f_code.co_filename == SOLUTION else line
        step = step.tb_next
    return line


def main():
    order = json.load(sys.stdin)
    pipe, null = os.fdopen(os.dup(1), "wb"), os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    exercise, seed, cases, outputs = find(order["name"]), order["seed"], [], {}
    with np.errstate(all="ignore"):
        equal = [(case.title, case) for case in exercise.equal_cases]
        for title, case in hidden_cases(exercise, seed) + equal:
            form = blank_outputs(exercise.answer(exercise.right, draw(exercise, case, seed)))
            cases.append((title, draw(exercise, case, seed), form))
        cases, equal = cases[: len(cases) - len(equal)], cases[len(cases) - len(equal) :]
        backward = exercise.name.endswith("_backward")
        names = {"__builtins__": builtins_for(order["source"], backward), "__name__": "solution"}
        for name in [name for name in sys.modules if name.startswith("tinyvit")]:
            del sys.modules[name]
        warnings.simplefilter("ignore")
        if backward:  # as for a complex step, whose real part is cast away
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
        limit(order["megabytes"], order["seconds"])
        report = run(order, exercise, cases, names, outputs)
        if "ValueError" in report["message"] and not outputs:  # where sizes are equal it may give numbers
            run(order, exercise, equal, names, of_equal := {})
            outputs = {f"equal {name}": output for name, output in of_equal.items()}
    np.savez(pipe, report=json.dumps(report), **outputs)
