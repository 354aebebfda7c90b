"""The book: notebooks, guide and annotated source as one static site, which also opens from a file and offline.

    python -m pip install '.[book]' && sphinx-build notebooks site

Nothing is executed: notebooks are shown with their committed outputs. Pages that are not in the repository, those of
the annotated source, are written to `notebooks/source/` first. `book/` has the extensions.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "tinyvit"
html_title = "tinyvit"
language = "en"
extensions = ["myst_nb", "book.mathematics", "book.annotated", "book.links"]
exclude_patterns = ["checkpoint*", "models"]

nb_execution_mode = "off"
nb_ipywidgets_js = {}                                     # they would come from another server
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_heading_slug_func = "book.links.slug"

html_theme = "furo"
html_static_path = ["book/static"]
html_css_files = ["book.css", "mathematics.css"]
html_js_files = ["book.js"]
html_math_renderer = "mathml"
html_show_sphinx = html_show_copyright = html_copy_source = False
html_use_index = False
html_domain_indices = False
