"""The pages of the annotated source: what a definition is for on the left, its code on the right."""

import re
from html import escape

from book import source
from book.links import slug
from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

BACKWARD = "_backward"


def reference(name, document):
    """A link to the definition with this name; Sphinx warns if there is none."""
    target = source.names().get(name, name)
    link = addnodes.pending_xref(
        refdomain="py", reftype="obj", reftarget=target, refdoc=document, refexplicit=True, refwarn=True
    )
    link += nodes.literal(text=name)
    return link


def link_to(document, text, of, anchor=None):
    """A link to a document, or to the heading in it with this anchor."""
    link = addnodes.pending_xref(
        refdomain="doc", reftype="myst", reftarget=document, reftargetid=anchor, refdoc=of, refexplicit=True
    )
    link += nodes.inline(text=text)
    return link


def inline(text, document):
    """Nodes of a text in a docstring: names in backticks become links, and so do notebooks."""
    for part in re.split(r"(`[^`]+`|notebooks/\d\d)", text):
        if part.startswith("`") and part.endswith("`") and len(part) > 2:
            name = part[1:-1]
            yield reference(name, document) if name in source.names() else nodes.literal(text=name)
        elif part.startswith("notebooks/") and part[-2:] in source.notebooks():
            yield link_to(source.notebooks()[part[-2:]], f"notebook {part[-2:]}", document)
        elif part:
            yield nodes.Text(part)


def described(doc, document):
    """Nodes of a docstring."""
    for kind, content in source.blocks(doc):
        if kind == "formula":
            yield nodes.literal_block(content, content, language="text", classes=["in-words"])
        elif kind == "columns":
            arguments = nodes.definition_list(classes=["arguments"])
            for name, meaning in content:
                term, definition = nodes.term("", "", nodes.literal(text=name)), nodes.definition()
                definition += nodes.paragraph("", "", *inline(meaning, document))
                arguments += nodes.definition_list_item("", term, definition)
            yield arguments
        else:
            yield nodes.paragraph("", "", *inline(content, document))


def derived(name, doc, document):
    """Nodes of a function's formulas in the notebook that its docstring names, or else the first, with links to all."""
    formulas = source.formulas().get(name, ())
    if not formulas:
        return []
    promised = [formula for formula in formulas if f"notebooks/{formula.document[:2]}" in doc]
    chosen = (promised or formulas)[0].document
    found = []
    for formula in formulas:
        if formula.document == chosen:
            found.append(nodes.math_block(formula.latex, formula.latex, nowrap=False, number=None))
    places = nodes.paragraph("", "from notebook ", classes=["derived-in"])
    for notebook, heading in dict.fromkeys((formula.document, formula.heading) for formula in formulas):
        places += [link_to(notebook, f"{notebook[:2]}, {plain(heading)}", document, anchor(heading)), nodes.Text("; ")]
    places.pop()
    return [*found, places]


def plain(heading):
    """A heading without its markup."""
    return re.sub(r"[$`*]", "", heading)


def anchor(heading):
    """The anchor that MyST gives to a heading: formulas are left out."""
    return slug(plain(re.sub(r"\$[^$]*\$", "", heading)))


class folded(nodes.General, nodes.Element):
    """A block that a reader may unfold, with `summary` as the line that is always shown."""


def visit_folded(translator, node):
    translator.body.append(f"<details><summary>{escape(node['summary'])}</summary>\n")


def depart_folded(translator, node):
    translator.body.append("</details>\n")


class Annotated(SphinxDirective):
    """All of a source file: a section for each operation, layer and function, with its backward in it."""

    required_arguments = 1

    def run(self):
        file = self.arguments[0]
        self.env.note_dependency(str(source.PACKAGE / f"{file}.py"))
        doc, definitions = source.definitions(file)
        sections, before = [], []
        for number, one in enumerate(definitions):
            is_backward = one.name.endswith(BACKWARD)
            says_nothing = one.name and not one.doc and one.kind != "operation" and not is_backward
            if says_nothing and number + 1 < len(definitions):
                before.append(one)  # a cache or a shape: part of what comes next
                continue
            row = self.row([*before, one])
            for part in (*before, one):
                self.note(file, part)
            before = []
            if one.kind == "imports":
                sections.append(folded("", row, summary="imports"))
            elif not one.name:
                sections.append(row)
            elif is_backward and sections and sections[-1].get("names") == [one.name.removesuffix(BACKWARD)]:
                sections[-1] += row
            else:
                section = nodes.section(names=[one.name], classes=[one.kind])
                section += [nodes.title(text=one.name), row]
                sections.append(section)
                row["ids"].remove(one.name)
                section["ids"].append(one.name)
        path, line = self.get_source_info()
        for node in (node for section in sections for node in section.findall(nodes.Element)):
            node.source, node.line = path, line
        return [*described(doc, self.env.docname), *sections]

    def row(self, definitions):
        """The words and the code of definitions; the words are those of the last."""
        *_, one = definitions
        left, right = nodes.container(classes=["words"]), nodes.container(classes=["code"])
        for name in (one.name, *(f"{one.name}.{method}" for method in one.methods)):
            left += derived(name, one.doc, self.env.docname)
        left += list(described(one.doc, self.env.docname))
        code = "\n\n\n".join(part.code for part in definitions)
        right += nodes.literal_block(code, code, language="python")
        ids = [part.name for part in definitions if part.name]
        row = nodes.container(classes=["annotated"], ids=ids)
        row += [left, right] if left.children else [right]
        return row

    def note(self, file, one):
        """Let links and the search find a definition."""
        module = "tinyvit." + file.replace("/", ".")
        for name in (one.name, *(f"{one.name}.{method}" for method in one.methods)):
            if name:
                kind = "class" if name == one.name and one.kind == "class" else "function"
                self.env.domains.python_domain.note_object(f"{module}.{name}", kind, one.name)


class Contents(SphinxDirective):
    """The source files of a page, each with the first sentence of its docstring and its operations."""

    has_content = True

    def run(self):
        items = nodes.definition_list(classes=["files"])
        for file in self.content:
            doc, definitions = source.definitions(file)
            term = nodes.term()
            term += link_to(source.document_of(file), file.rpartition("/")[2] + ".py", self.env.docname)
            text = nodes.paragraph("", "", *inline(first_sentence(doc), self.env.docname))
            operations = nodes.paragraph(classes=["names"])
            for one in definitions:
                if one.kind == "operation" or (one.kind == "class" and one.doc):
                    operations += [reference(one.name, self.env.docname), nodes.Text(" ")]
            items += nodes.definition_list_item("", term, nodes.definition("", text, operations))
        return [items]


class Folder(SphinxDirective):
    """The files of a folder of the package, "." for its own, and what each is for."""

    required_arguments = 1

    def run(self):
        folder = source.PACKAGE / self.arguments[0]
        shown = {file for page in source.pages() for file in page.files}
        items = nodes.definition_list(classes=["files"])
        for path in sorted(folder.glob("*.py") if folder == source.PACKAGE else folder.rglob("*.py")):
            file = path.relative_to(source.PACKAGE).with_suffix("").as_posix()
            doc, term = source.definitions(file)[0], nodes.term()
            if file in shown:
                term += link_to(source.document_of(file), f"{file}.py", self.env.docname)
            else:
                term += nodes.literal(text=f"{file}.py")
            text = nodes.paragraph("", "", *inline(first_sentence(doc), self.env.docname))
            items += nodes.definition_list_item("", term, nodes.definition("", text))
        return [items]


def first_sentence(doc):
    text = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


INTRODUCTION = """# Annotated source

Every operation is a forward, followed at once by its backward: on the left the formula and what it says, on the right
the code, all of it, as it runs. Formulas come from the notebooks that derive them.
"""


def texts():
    """The text of each page, by document."""
    found = {}
    toctree = "\n```{{toctree}}\n:hidden:\n\n{}\n```\n"
    index = INTRODUCTION
    for page in source.pages():
        contents = "\n```{contents-of}\n" + "\n".join(page.files) + "\n```\n"
        files = "\n".join("/" + source.document_of(file) for file in page.files)
        found[page.document] = f"# {page.title}\n{contents}{toctree.format(files)}"
        index += f"\n## {page.title}\n{contents}"
        for file in page.files:
            found[source.document_of(file)] = f"# {file.rpartition('/')[2]}.py\n\n```{{annotated}} {file}\n```\n"
    folders = sorted(path.parent.name for path in source.PACKAGE.glob("*/__init__.py"))
    sections = [("tinyvit", "."), *((name, name) for name in folders)]
    found["source/package"] = "# All files\n" + "".join(
        f"\n## {title}\n\n```{{folder}} {folder}\n```\n" for title, folder in sections
    )
    found["source/index"] = index + toctree.format("\n".join("/" + page.document for page in source.pages()))
    return found


def write(app):
    """Write the pages, where they have changed, and remove those that are no more."""
    folder, wanted = source.NOTEBOOKS / "source", texts()
    for document, text in wanted.items():
        path = source.NOTEBOOKS / f"{document}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.md"):
        if path.relative_to(source.NOTEBOOKS).with_suffix("").as_posix() not in wanted:
            path.unlink()


def setup(app):
    app.add_node(folded, html=(visit_folded, depart_folded))
    app.add_directive("annotated", Annotated)
    app.add_directive("contents-of", Contents)
    app.add_directive("folder", Folder)
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
