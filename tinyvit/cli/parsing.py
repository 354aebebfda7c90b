"""Arguments as dataclasses."""

import contextlib
import io
import os
import re
import shutil
import sys
from dataclasses import fields

from tinyvit.text import say

NARROWEST = 40  # columns for --help: in fewer than 6, its boxes never end


class BadInput(ValueError):
    """A command line that can't be understood."""


def say_why_no_gpu(reason):
    """Print why no GPU is used, in one line on stderr; the last thing, after success."""
    if reason:
        say(f"tinyvit: on the CPU, no GPU: {reason}")


def parse(config, rest, prog, default=None):
    """Options as a dataclass; tyro's boxed errors become one line. `--classes` without names is refused, as it
    would mean all classes."""
    import tyro

    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages), terminal_width({"-h", "--help"}.isdisjoint(rest)):
            options = tyro.cli(config, default=default, args=rest, prog=prog)
    except SystemExit as error:
        if error.code in (0, None):
            sys.stdout.flush()  # help that can't be written is an error
            raise
        raise BadInput(one_line(messages.getvalue(), prog)) from None
    if "--classes" in rest and not options.classes:
        raise BadInput("expected names after --classes, got none")
    return options


@contextlib.contextmanager
def terminal_width(unbroken):
    """Have tyro print to a terminal of at least `NARROWEST` columns; or to a very wide one, where a break would put a
    space into a long path."""
    before, width = os.environ.get("COLUMNS"), shutil.get_terminal_size().columns
    os.environ["COLUMNS"] = "10000" if unbroken else str(max(NARROWEST, width))
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def one_line(box, prog):
    """The first paragraph of one of tyro's error boxes."""
    rows = [line.strip("│╭╮╰╯|+ ") for line in box.splitlines()[1:]]
    rows = ["" if set(row) <= set("─-") else row for row in rows]  # the rules between paragraphs
    message = []
    for row in rows:
        if not row and message:
            break
        message.append(row)
    hint = next((rows[i + 1].split()[0] for i, row in enumerate(rows[:-1]) if "meant" in row), None)
    close = f"; did you mean {hint}?" if hint else ""
    text = " ".join(filter(None, message))
    # The message names the field itself.
    text = re.sub(r"^Error parsing (TrainConfig|FinetuneOptions|optim|augment|model|objective|init): ", "", text)
    return f"{text}{close} (options: {prog} --help)"


def option(rest, name):
    """The value of an option, as `--name value` or `--name=value`, the last one if there are several; None if none."""
    found = None
    for argument, following in zip(rest, [*rest[1:], None]):
        if argument == name:
            found = following
        elif argument.startswith(f"{name}="):
            found = argument.partition("=")[2]
    return found


def positional(rest, expected, default=None):
    """Split off a command's first argument, which no option precedes; --help is left for the parser."""
    if rest and rest[0] and (not rest[0].startswith("-") or rest[0] == "-"):
        return rest[0], rest[1:]
    if default is None and not ({"-h", "--help"} & set(rest)):
        raise BadInput(f"expected {expected}, got {' '.join(rest) or 'nothing'}")
    return default, rest


def separate(rest, options):
    """`rest` as (positional arguments, options), in whatever order they came; `options` is the options' dataclass.

    A flag stands alone, every other option takes the argument after it, and after `--` there are no options.
    """
    flags = {"-h", "--help"}
    for field in fields(options):
        if field.type is bool:
            name = field.name.replace("_", "-")
            flags |= {f"--{name}", f"--no-{name}"}
    arguments, found, todo = [], [], list(rest)
    while todo:
        argument = todo.pop(0)
        if argument == "--":
            arguments += todo
            break
        if not argument.startswith("-") or argument == "-":
            arguments.append(argument)
            continue
        found.append(argument)
        if todo and "=" not in argument and argument not in flags:
            found.append(todo.pop(0))
    return arguments, found
