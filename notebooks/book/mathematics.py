"""Formulas as MathML, made when the book is built: they need no script, and a formula with a mistake is a warning.

The functions that compute a formula, which notebooks give as its \\tag, become links to the annotated source below it.
"""

import base64
import logging
import re
from html import escape
from importlib.resources import files
from io import BytesIO

from book.annotated import reference
from book.source import without_tags
from docutils import nodes
from fontTools import subset
from math_core import LatexError, LatexToMathML
from sphinx.transforms import SphinxTransform
from sphinx.util.logging import getLogger

logger = getLogger(__name__)
CONVERTER = LatexToMathML(fancy_error=False)
SHIFT = re.compile(r"^\s*\\hspace\{-\d+em\}\s*")  # makes room for a tag in Jupyter; here it has a line of its own

# A browser makes a bracket with an exponent large only if the exponent has a base of its own.
BRACKET = re.compile(r"(\\[bB]igg?[lr]?\s*[)\]])\s*\^")

PRIMES = re.compile("<mo>([′″‴])</mo>")  # would be as small as exponents

FONT = "STIXTwoMath-Regular.ttf"
# Latin, Greek, arrows and operators, and the alphabets of mathematics.
CHARACTERS = [(0x20, 0x17F), (0x2B0, 0x3FF), (0x2010, 0x214F), (0x2190, 0x23FF), (0x25A0, 0x25FF), (0x27C0, 0x2AFF),
              (0x1D400, 0x1D503), (0x1D538, 0x1D56B), (0x1D5A0, 0x1D5D3), (0x1D6A4, 0x1D7FF)]  # fmt: skip


def mathml(node, displaystyle):
    """The formula of a node as MathML; where it can't be read, a warning and the formula as it is written."""
    try:
        latex = BRACKET.sub(r"\1{}^", SHIFT.sub("", node.astext()))
        formula = CONVERTER.convert_with_local_state(latex, displaystyle=displaystyle)
        return PRIMES.sub(r'<mo class="prime">\1</mo>', formula)
    except LatexError as error:
        logger.warning("formula: %s: %s", error, node.astext(), location=node)
        return f"<code>{escape(node.astext())}</code>"


def visit_inline(translator, node):
    translator.body.append(mathml(node, displaystyle=False))
    raise nodes.SkipNode


def visit_block(translator, node):
    formula = mathml(node, displaystyle=True)
    translator.body.append(f'<div class="formula">{formula}</div>\n')
    raise nodes.SkipNode


class Tags(SphinxTransform):
    """Turn the tags of formulas into links to the functions that compute them."""

    default_priority = 400

    def apply(self):
        for formula in list(self.document.findall(nodes.math_block)):
            text, names = without_tags(formula.astext())
            if names:
                formula.children, formula.rawsource = [nodes.Text(text)], text
                links = nodes.paragraph(classes=["computed-by"])
                for name in names:
                    links += [reference(name, self.env.docname), nodes.Text(" ")]
                formula.parent.insert(formula.parent.index(formula) + 1, links)


def font():
    """STIX Two Math with the characters of formulas, as WOFF2."""
    logging.getLogger(subset.__name__).setLevel(logging.WARNING)  # the style of the code sets the root to INFO
    options = subset.Options(flavor="woff2", hinting=False, layout_features=[])
    whole = subset.load_font(str(files("ziamath") / "fonts" / FONT), options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[code for first, last in CHARACTERS for code in range(first, last + 1)])
    subsetter.subset(whole)
    file = BytesIO()
    subset.save_font(whole, file, options)
    return file.getvalue()


def write_font(app):
    """Write the font into a style sheet: from a file, browsers load no other files for it."""
    folder = app.outdir / "_static"
    folder.mkdir(parents=True, exist_ok=True)
    data = base64.b64encode(font()).decode()
    (folder / "mathematics.css").write_text(
        f'@font-face {{ font-family: "Mathematics"; src: url("data:font/woff2;base64,{data}") }}\n'
        'math { font-family: "Mathematics", math }\n'
    )


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.add_transform(Tags)
    app.connect("builder-inited", write_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
