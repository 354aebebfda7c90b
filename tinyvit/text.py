"""Text of unknown origin, such as a file's or a class's name, as it may be printed."""

import sys
from contextlib import suppress


def printable(text):
    """A text with control characters, line ends included, escaped as in Python."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def say(text):
    """Print a line to stderr, `printable`, unless the terminal has been closed."""
    with suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)


def list_names(names, most=4):
    """The first of these names, each by `shorten`, and how many there are if that isn't all of them."""
    names = list(names)
    shown = ", ".join(shorten(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names):,} in all)"


def shorten(value, most=120):
    """A value as text, `printable` and shortened."""
    text = str(value)
    return printable(text[:most] + ("…" if len(text) > most else ""))


def did_you_mean(name, known, most=20):
    """The end of an error about an unknown name: names that begin with it, a similar one, or those that are known."""
    from difflib import get_close_matches

    close = [own for own in known if name and own.startswith(str(name))] or get_close_matches(str(name), known, n=1)
    return f"did you mean {list_names(close)}?" if close else f"expected one of {list_names(known, most)}"
