"""Arguments as dataclasses."""

import contextlib
import io
import os
import re
import shutil
import sys
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

NARROWEST = 40  # columns for --help: in fewer than 6, its boxes never end

Run = Annotated[Positional[str], arg(metavar="RUN")]


def parse(config, rest, prog, default=None):
    """Options as a dataclass; tyro's boxed errors become one line. `--classes` without names is refused, as it
    would mean all classes."""
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages), terminal_width({"-h", "--help"}.isdisjoint(rest)):
            options = tyro.cli(config, default=default, args=rest, prog=prog)
    except SystemExit as error:
        if error.code in (0, None):
            sys.stdout.flush()  # help that can't be written is an error
            raise
        raise ValueError(one_line(messages.getvalue(), prog)) from None
    if "--classes" in rest and not options.classes:
        raise ValueError("expected names after --classes, got none")
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
    text = re.sub(r"^Error parsing (TrainConfig|\w*Options|optim|augment|model|objective|init): ", "", text)
    text = re.sub(r"^Missing from .*?: (--\S+|\S+)(.*) \(required\)", r"missing \1:\2", text)
    return f"{text}{close} (options: {prog} --help)"


def option(rest, name):
    """The value of an option, as `--name value` or `--name=value`, the last one if there are several; None if none."""
    given = [
        argument.partition("=")[2] if "=" in argument else following
        for argument, following in zip(rest, [*rest[1:], None]) if argument.partition("=")[0] == name
    ]  # fmt: skip
    return given[-1] if given else None
