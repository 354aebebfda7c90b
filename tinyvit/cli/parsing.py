"""Arguments as dataclasses."""

import contextlib
import io
import os
import re
import sys
from argparse import ArgumentParser
from os.path import isfile, join
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

Run = Annotated[Positional[str], arg(metavar="RUN")]


def parse(config, rest, prog, default=None, help_of=None):
    """Options as a dataclass; tyro's boxed errors become one line, which refers to the help of `help_of`, by default of
    `prog`. `--classes` without names is refused, as it would mean all classes; `--html` without a file is empty."""
    messages = io.StringIO()
    values = [*rest[1:], "-"]  # what follows each argument: its value, unless that is an option or RUN
    is_alone = [value.startswith("-") or isfile(join(value, "config.json")) for value in values]
    rest = [f"{text}=" if text == "--html" and alone else text for text, alone in zip(rest, is_alone)]
    try:
        asked = not {"-h", "--help"}.isdisjoint(rest)
        with contextlib.redirect_stderr(messages), contextlib.nullcontext() if asked else wide_terminal():
            options = tyro.cli(config, default=default, args=rest, prog=prog)
    except SystemExit as error:
        if error.code in (0, None):
            sys.stdout.flush()  # help that can't be written is an error
            raise
        raise ValueError(one_line(messages.getvalue(), help_of or prog)) from None
    if "--classes" in rest and not options.classes:
        raise ValueError("expected names after --classes, got none")
    return options


@contextlib.contextmanager
def wide_terminal():
    """Have tyro print to a very wide terminal, as a break would put a space into a long path."""
    before = dict(os.environ)
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        os.environ.update(before)


def one_line(box, prog):
    """The first paragraph of one of tyro's error boxes, and the option that it takes for meant."""
    text = re.sub(r"(?m)^[│╭╰|+ ]*(─+|-{3,})?|[│╮╯|+ ]+$", "", box.partition("\n")[2])  # no title and no rules
    hint = re.search(r"meant.*\n\W*(--[\w.-]+)", text)
    close = f"; did you mean {hint[1]}?" if hint else ""
    text = " ".join(text.strip().partition("\n\n")[0].split())
    # The message names the field itself.
    text = re.sub(r"^Error parsing (\w+: )?", "", text)
    for kind, expected in ("int", "a whole number"), ("float", "a number"):
        begin = rf"(?i)(no type matching .*\b|invalid literal for |could not convert string to ){kind}\b"
        text = re.sub(rf"{begin}.*?('.*')\]?\.?$", rf"expected {expected}, got \2", text)
    text = re.sub(" into tuple type .*", "", text)
    text = re.sub("^Missing from .*?:", "missing (required)", text).removesuffix(" (required)")
    text = re.sub(r"\(required\) (\S+)( STR)?", r"\1:", text)
    if found := re.search(r"Expected one of \((.*)\)", text):  # those of an optional argument, in any order
        text = text.replace(found[1], ", ".join(sorted({*found[1].split(", ")} - {"'None'"})))
    return f"{text}{close} (options: {prog} --help)"


def option(rest, name):
    """The value of an option, as `--name value` or `--name=value`, the last one if there are several; None if none."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(name, dest="value", nargs="?")
    return parser.parse_known_args(rest)[0].value


def check_least(options, **least):
    """Raise ValueError for an option that is below the least that it may be."""
    for name, bound in least.items():
        if getattr(options, name) is not None and getattr(options, name) < bound:
            raise ValueError(f"{name.replace('_', '-')} must be at least {bound}, got {getattr(options, name)}")
