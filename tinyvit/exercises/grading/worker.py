"""The process in which one solution runs: `python -I -S worker.py FOLDER_OF_NUMPY MEGABYTES SECONDS`.

Nothing of the package is imported here, so that its answers aren't in this process. What a solution may do is limited
three times: the names that it sees are those of `rules`; an audit hook ends the process at whatever it asks the system
for; and the system limits its memory, time, files and processes. The first two stop what students try. They are no wall
against somebody who knows how Python is built; the answers are compared elsewhere in any case.
"""

import inspect
import os
import sys

SOLUTION = "<solution>"
HARMLESS = frozenset({"builtins.id", "compile", "exec", "import", "object.__setattr__", "sys.unraisablehook"})


def limit(megabytes, seconds):
    """Have the system limit this process, for good."""
    import resource

    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    if os.geteuid() == 0:  # root may start any number of processes, read every file and signal everybody
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    limits = {
        "AS": used + (megabytes << 20), "CPU": seconds + 1, "FSIZE": 0, "CORE": 0, "NPROC": 0, "NOFILE": 16,
    }  # fmt: skip
    for name, bound in limits.items():
        hard = bound + (name == "CPU")  # at the first the process is told, at the second it is killed
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (bound, hard))


def watched(report):
    """A context manager: inside it, whatever asks the system for something is reported, and ends the process."""
    on, end, frame_of = [False], os._exit, sys._getframe

    def hook(event, arguments):
        if not on[0] or event in HARMLESS:
            return
        on[0] = False
        if event.startswith(("sys.", "object.")) and frame_of(1).f_code.co_filename != SOLUTION:
            on[0] = True  # a namedtuple asks in which module it was made
            return
        report(event, str(arguments[0])[:80] if event == "open" and arguments else "")
        end(3)

    class Watched:
        def __enter__(self):
            on[0] = True

        def __exit__(self, *rest):
            on[0] = False

    sys.addaudithook(hook)
    return Watched()


def builtins_for(rules, modules):
    """The builtins that a solution sees."""
    import builtins

    def import_module(name, globals=None, locals=None, fromlist=(), level=0):
        if name.startswith("numpy.") and name in sys.modules:  # NumPy's own code in C imports under the caller's name
            return sys.modules[name if fromlist else "numpy"]
        wanted = [name, *(f"{name}.{one}" for one in fromlist or ())]
        if level or not any(one in modules for one in wanted):
            raise ImportError(f"{name} can't be imported in grading; allowed: {rules.ALLOWED}")
        return modules[name] if fromlist else modules[name.partition(".")[0]]

    def get(thing, name, *default):
        if not rules.may_be_read(str(name)):
            raise AttributeError(f"{name} can't be read in grading")
        return getattr(thing, name, *default)

    seen = {name: value for name, value in vars(builtins).items() if name not in rules.BUILTINS}
    return seen | {"__import__": import_module, "getattr": get}


def importable(rules, source, example):
    """The modules that the solution may import, by name."""
    import importlib
    import re
    import types

    words = set(re.findall(r"\w+", source))  # all modules together would take a while to load
    names = {"numpy", *(name for name in rules.MODULES if words.issuperset(name.split(".")))}
    modules = {name: importlib.import_module(name) for name in sorted(names)}
    if "scipy.special" in modules:
        special = types.SimpleNamespace(**{name: getattr(modules["scipy.special"], name) for name in rules.OF_SCIPY})
        modules |= {"scipy.special": special, "scipy": types.SimpleNamespace(special=special)}
    if example:
        constants = types.SimpleNamespace(**example)
        models = types.SimpleNamespace(worked_example=constants)
        modules |= {rules.EXAMPLE: constants, "tinyvit.models": models, "tinyvit": types.SimpleNamespace(models=models)}
    return modules


class Tracer:
    """Notices complex numbers, and copies of an input in which one entry after the other is changed."""

    def __init__(self, np, inputs):
        self.np, self.inputs, self.changed, self.found = np, inputs, set(), ""

    def __call__(self, frame, event, value):
        if frame.f_code.co_filename != SOLUTION:
            return None
        for local in [*frame.f_locals.values(), value]:
            self.look(local)
        return self

    def look(self, value):
        np = self.np
        if isinstance(value, (tuple, list)) and len(value) < 50:
            for one in value:
                self.look(one) if isinstance(one, (complex, np.ndarray, np.generic)) else None
        if isinstance(value, (np.ndarray, np.generic, complex)) and np.iscomplexobj(value):
            self.found = "NO_COMPLEX"
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return
        for place, given in enumerate(self.inputs):
            if value.shape == given.shape and value.size > 3:
                others = np.flatnonzero((value != given).ravel())
                if len(others) == 1:
                    self.changed.add((place, int(others[0])))
                    if len(self.changed) >= 4:
                        self.found = self.found or "NO_DIFFERENCES"


def arrays_of(np, value):
    """Copies of the floating-point arrays in a value."""
    if isinstance(value, (tuple, list, dict)):
        return [array for one in (value.values() if isinstance(value, dict) else value) for array in arrays_of(np, one)]
    return [value.copy()] if isinstance(value, np.ndarray) and value.dtype.kind == "f" else []


def by_position(function, names):
    """A function of a solution that is called by position: its keyword-only arguments go to it by name.

    names   of the arguments, in their order
    """
    try:
        own = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, or no function
        return function
    only = [one.name for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY]

    def call(*arguments):
        given = dict(zip(names, arguments))
        named = {name: given.pop(name) for name in names if name in only}
        return function(*given.values(), **named)

    return call if only else function


def where(error):
    """The line of the solution at which an exception was raised; 0 if it has none."""
    line, step = 0, error.__traceback__
    while step is not None:
        line = step.tb_lineno if step.tb_frame.f_code.co_filename == SOLUTION else line
        step = step.tb_next
    return getattr(error, "lineno", 0) or line if isinstance(error, SyntaxError) else line


def main():
    """Load the solution that comes first, then answer calls until the pipe is closed."""
    folder_of_numpy, megabytes, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sys.path[:] = [path for path in sys.path if not path.endswith("site-packages")] + [folder_of_numpy]
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import warnings
    from functools import partial

    import exchange
    import numpy as np
    import numpy.ma  # else it would be imported under the eyes of the hook
    import rules

    warnings.simplefilter("ignore")
    pipe_in, pipe_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)

    def send(message):
        pipe_out.write(exchange.pack(message))
        pipe_out.flush()

    def receive():
        size = pipe_in.read(8)
        if len(size) < 8:
            os._exit(0)
        return exchange.unpack(pipe_in.read(int.from_bytes(size, "little")), pipe_in.read)

    class Remote:
        """A function that was passed as an argument: its calls go back over the pipe."""

        def __init__(self, place):
            self.place = place

        def __call__(self, *arguments):
            send({"asks": self.place, "arguments": list(arguments)})
            return receive()["value"]

    order = receive()
    modules = importable(rules, order["source"], order["example"])
    names = {"__builtins__": builtins_for(rules, modules), "__name__": "solution"}
    guard = watched(lambda event, subject: send({"refused": rules.deed(event, subject)}))
    limit(megabytes, seconds)
    sys.meta_path.clear()
    sys.path.clear()

    def attempt(deed, tracer=None):
        """The message that answers: the deed's value, or how it failed."""
        try:
            with guard, np.errstate(all="ignore"):
                sys.settrace(tracer)
                try:
                    value = deed()
                finally:
                    sys.settrace(None)
        except MemoryError:
            return {"memory": True}
        except RecursionError:
            return {"raised": "RecursionError", "said": "it calls itself without end", "line": 0}
        except BaseException as error:  # SystemExit as well
            try:
                said = str(error)[:300]
            except Exception:
                said = ""
            return {"raised": type(error).__name__[:60], "said": said, "line": where(error)}
        if tracer is not None and tracer.found:
            return {"refused": getattr(rules, tracer.found)}
        return {"value": value}

    def load():
        exec(compile(order["source"], SOLUTION, "exec"), names)
        return by_position(eval(compile(order["expression"], SOLUTION, "eval"), names), order["names"])

    send({"ready": True})
    loaded = attempt(load)
    function = loaded.pop("value", None)
    send(loaded | ({"callable": callable(function)} if not loaded else {}))
    while True:
        called = receive()["call"]
        arguments = [Remote(place) if isinstance(one, str) else one for place, one in enumerate(called)]
        tracer = Tracer(np, arrays_of(np, arguments)) if order["backward"] else None
        answer = attempt(partial(function, *arguments), tracer)
        after = [None if isinstance(one, Remote) else one for one in arguments]
        try:
            send(answer | {"after": after})
        except (exchange.Unreadable, MemoryError) as error:
            send({"raised": "ValueError", "said": str(error), "line": 0})


if __name__ == "__main__":
    main()
