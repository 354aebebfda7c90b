"""Links that are relative to a file of the repository, and lead to a page of the book."""

import re
from pathlib import Path

from book.source import ROOT, page_of
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

# Pages that include a file of the repository's root; its links are relative to that.
OF_ROOT = {"index": "README.md", "book/contributing": "CONTRIBUTING.md", "book/changelog": "CHANGELOG.md"}
FOLDERS = {"notebooks": "00_tour", "notebooks/results": "results/README"}


def slug(heading):
    """The anchor of a heading as JupyterLab makes it, without what would end an attribute: docutils escapes no ids."""
    return re.sub(r'[<>&"]', "", heading).strip().replace(" ", "-")


def shown_at(path):
    """(document, anchor) that shows a file or folder of the repository, given relative to its root, or (None, None)."""
    for document, name in OF_ROOT.items():
        if path == name:
            return document, None
    if path in FOLDERS:
        return FOLDERS[path], None
    match = re.fullmatch(r"notebooks/(.*)\.(md|ipynb)", path)
    return (match[1], None) if match else page_of(path)


class RepositoryLinks(SphinxTransform):
    """Let links to files and folders of the repository lead to the pages that show them."""

    default_priority = 400

    def apply(self):
        document = self.env.docname
        start = ROOT if document in OF_ROOT else Path(self.env.doc2path(document)).parent
        for link in list(self.document.findall(addnodes.pending_xref)) + list(
            self.document.findall(addnodes.download_reference)
        ):
            if link.get("reftype") != "myst":
                continue
            if link.get("refdomain") == "doc":
                target = Path(self.env.srcdir, link["reftarget"] + ".md")
                fragment = link.get("reftargetid")
            else:
                place, _, fragment = link["reftarget"].partition("#")
                target = start / place
            target = target.resolve()
            if not target.is_relative_to(ROOT):
                continue
            found, anchor = shown_at(target.relative_to(ROOT).as_posix())
            if found in self.env.found_docs:
                new = addnodes.pending_xref(
                    refdomain="doc", reftype="myst", reftarget=found, reftargetid=fragment or anchor, refdoc=document,
                    refexplicit=True,
                )
                new.source, new.line = link.source, link.line
                new += link.children
                link.replace_self(new)


class OneTitle(SphinxTransform):
    """Make the second and later titles of a page, which notebooks in several parts have, headings below the first."""

    default_priority = 300

    def apply(self):
        first, *others = [node for node in self.document if isinstance(node, nodes.section)] or [None]
        for section in others:
            self.document.remove(section)
            first += section


def setup(app):
    app.add_transform(OneTitle)
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
