"""The outline of TypeScript source, by tree-sitter: declarations, imports, exports and syntax errors, as JSON.

`parse_typescript` has this done in a process of its own: a parser in C that reads hostile source may hold the interpreter
for half a second, take hundreds of megabytes or crash, and the process that serves everybody must do none of these.
"""

from collections.abc import Iterator
from typing import Any

MAX_NODES = 400_000
"""Nodes of the tree that are visited in search of errors."""
MAX_DECLARATIONS = 2_000
MAX_ERRORS = 50
MAX_NESTING = 12
"""Levels of namespaces and members that are listed."""
MAX_NAME_CHARS = 200
MAX_BOUND_NAMES = 500
"""Parts of one pattern that are looked at."""
MAX_SIGNATURE_CHARS = 240

KINDS = {
    "function_declaration": "function", "generator_function_declaration": "function", "function_signature": "function",
    "class_declaration": "class", "abstract_class_declaration": "class", "class": "class",
    "interface_declaration": "interface", "type_alias_declaration": "type", "enum_declaration": "enum",
    "internal_module": "namespace", "module": "namespace",
    "method_definition": "method", "method_signature": "method", "abstract_method_signature": "method",
    "public_field_definition": "property", "property_signature": "property",
}  # fmt: skip
"""What a node of the grammar is called in the outline."""
HAS_SIGNATURE = frozenset({"function", "method"})
HAS_MEMBERS = frozenset({"class", "interface", "namespace"})
FUNCTIONS = frozenset({"arrow_function", "function_expression", "generator_function"})
WRAPPERS = frozenset({"ambient_declaration", "expression_statement"})


def text_of(node: Any, most: int = MAX_NAME_CHARS) -> str:
    """The source of a node on one line, cut to a length. Only as much is decoded as can be shown."""
    words = b" ".join((node.text or b"")[: most * 8].split()).decode("utf-8", "replace")
    return words if len(words) <= most else words[: most - 1] + "…"


def name_of(node: Any) -> str:
    name = node.child_by_field_name("name")
    return unquoted(name) if name is not None else ""


def unquoted(node: Any) -> str:
    text = text_of(node)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`" else text


def bound_names(pattern: Any) -> Iterator[str]:
    """The names that a declaration binds: its own, or those of `{ a, b: c }` and `[d]`. Nothing here calls itself."""
    waiting = [pattern] if pattern is not None else []
    for _ in range(MAX_BOUND_NAMES):
        if not waiting:
            return
        node = waiting.pop(0)
        if node.type.endswith("_pattern") and node.type != "shorthand_property_identifier_pattern":
            inner = node.child_by_field_name("left") or node.child_by_field_name("value")
            waiting = [*([inner] if inner is not None else node.named_children[:MAX_BOUND_NAMES]), *waiting][
                :MAX_BOUND_NAMES
            ]
        else:
            yield unquoted(node)


class Outline:
    """Collects what one tree declares."""

    def __init__(self, root: Any) -> None:
        self.left = MAX_DECLARATIONS
        self.truncated = False
        self.imports: list[str] = []
        self.exports: list[str] = []
        self.declarations = list(self._statements(root, 0, False, top=True))

    def _statements(self, body: Any, depth: int, exported: bool, *, top: bool = False) -> Iterator[dict[str, Any]]:
        if depth > MAX_NESTING:
            self.truncated = True
            return
        for node in body.named_children:
            if self.left <= 0:
                self.truncated = True
                return
            yield from self._statement(node, depth, exported, top)

    def _statement(self, node: Any, depth: int, exported: bool, top: bool) -> Iterator[dict[str, Any]]:
        if node.type == "import_statement":
            if top:
                self._take_import(node)
        elif node.type == "export_statement":
            yield from self._export(node, depth, top)
        elif node.type in WRAPPERS:
            yield from self._wrapped(node, depth, exported, top)
        elif node.type in ("lexical_declaration", "variable_declaration"):
            yield from self._variables(node, depth, exported, top)
        elif node.type in KINDS:
            yield self._declaration(node, KINDS[node.type], depth, exported, top)

    def _wrapped(self, node: Any, depth: int, exported: bool, top: bool) -> Iterator[dict[str, Any]]:
        """`declare …`, and a namespace, which the grammar takes for an expression."""
        for inner in node.named_children:
            if inner.type not in WRAPPERS:
                yield from self._statement(inner, depth, exported, top)

    def _export(self, node: Any, depth: int, top: bool) -> Iterator[dict[str, Any]]:
        source = node.child_by_field_name("source")
        if source is not None and top:
            self._note(self.imports, unquoted(source))
        is_default = any(child.type == "default" for child in node.children)
        inner = node.child_by_field_name("declaration")
        value = node.child_by_field_name("value")
        if top:
            self._take_export_names(node, is_default, inner is None and value is None)
        if inner is not None and inner.type not in WRAPPERS:
            yield from self._statement(inner, depth, True, top and not is_default)
        elif inner is not None:
            yield from self._wrapped(inner, depth, True, top and not is_default)
        elif value is not None and (value.type in FUNCTIONS or value.type == "class"):
            yield self._declaration(value, "class" if value.type == "class" else "function", depth, True, False)

    def _take_export_names(self, node: Any, is_default: bool, by_clause: bool) -> None:
        if is_default:
            self._note(self.exports, "default")
        if not by_clause:
            return
        for child in node.named_children:
            if child.type == "export_clause":
                for item in child.named_children:
                    name = item.child_by_field_name("alias") or item.child_by_field_name("name")
                    if name is not None:
                        self._note(self.exports, unquoted(name))
            elif child.type == "namespace_export":
                self._note(self.exports, unquoted(child.named_children[0]) if child.named_children else "*")
        if any(child.type == "*" for child in node.children):
            self._note(self.exports, "*")

    def _take_import(self, node: Any) -> None:
        source = node.child_by_field_name("source")
        if source is None:  # import fs = require("fs")
            required = next((child for child in node.named_children if child.type == "import_require_clause"), None)
            source = required.child_by_field_name("source") if required is not None else None
        if source is not None:
            self._note(self.imports, unquoted(source))

    def _note(self, names: list[str], name: str) -> None:
        if len(names) >= MAX_DECLARATIONS:
            self.truncated = True
        elif name not in names[-200:]:
            names.append(name)

    def _variables(self, node: Any, depth: int, exported: bool, top: bool) -> Iterator[dict[str, Any]]:
        for declarator in node.named_children:
            if declarator.type != "variable_declarator":
                continue
            if self.left <= 0:
                self.truncated = True
                return
            value = declarator.child_by_field_name("value")
            kind = "function" if value is not None and value.type in FUNCTIONS else "variable"
            yield self._declaration(declarator, kind, depth, exported, top)

    def _declaration(self, node: Any, kind: str, depth: int, exported: bool, top: bool) -> dict[str, Any]:
        self.left -= 1
        name = name_of(node)
        made: dict[str, Any] = {
            "kind": kind, "name": name, "line": node.start_point[0] + 1, "endLine": node.end_point[0] + 1,
        }  # fmt: skip
        if exported:
            made["exported"] = True
            if top:
                for one in bound_names(node.child_by_field_name("name")):
                    self._note(self.exports, one)
        if kind in HAS_SIGNATURE:
            made["signature"] = signature_of(node)
        body = node.child_by_field_name("body")
        if kind in HAS_MEMBERS and body is not None:
            members = list(self._statements(body, depth + 1, False))
            if members:
                made["members"] = members
        return made


def signature_of(node: Any) -> str:
    """`name(a: number): string` of a function; that of an arrow function is its value's."""
    value = node.child_by_field_name("value")
    code = value if value is not None else node
    parameters = code.child_by_field_name("parameters")
    returned = code.child_by_field_name("return_type")
    words = name_of(node)
    if (single := code.child_by_field_name("parameter")) is not None:  # a => a
        words += f"({text_of(single, MAX_SIGNATURE_CHARS)})"
    for part in (code.child_by_field_name("type_parameters"), parameters, returned):
        if part is not None:
            words += text_of(part, MAX_SIGNATURE_CHARS)
    return words if len(words) <= MAX_SIGNATURE_CHARS else words[: MAX_SIGNATURE_CHARS - 1] + "…"


def errors_of(root: Any, code: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The syntax errors of a tree, in order, and whether there may be more. A cursor calls nothing that calls itself, so
    depth costs no stack."""
    found: list[dict[str, Any]] = []
    cursor = root.walk()
    for _ in range(MAX_NODES):
        node = cursor.node
        if node.is_error or node.is_missing:
            found.append(error_of(node, code))
            if len(found) >= MAX_ERRORS:
                return found, True
        inside = node.has_error and not node.is_error
        if not (inside and cursor.goto_first_child()):
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return found, False
    return found, True


def error_of(node: Any, code: bytes) -> dict[str, Any]:
    line, offset = node.start_point
    column = len(code[node.start_byte - offset : node.start_byte].decode("utf-8", "replace"))  # the parser counts bytes
    if node.is_missing:
        message = f"{node.type!r} is missing"
    elif node.end_byte <= node.start_byte:
        message = "unexpected end"
    else:
        message = f"unexpected {text_of(node, 40)!r}"
    return {"line": line + 1, "column": column + 1, "message": f"Syntax error: {message}."}


def outline(asked: dict[str, Any]) -> dict[str, Any]:
    """The outline of {code, dialects}, by the dialect that finds the fewest errors; the first, if they find the same."""
    import tree_sitter_typescript
    from tree_sitter import Language, Parser

    languages = {"typescript": tree_sitter_typescript.language_typescript, "tsx": tree_sitter_typescript.language_tsx}
    best: tuple[int, str, Any, list[dict[str, Any]], bool] | None = None
    code = asked["code"].encode()
    for dialect in asked["dialects"]:
        tree = Parser(Language(languages[dialect]())).parse(code)
        errors, more = errors_of(tree.root_node, code)
        if best is None or len(errors) < best[0]:
            best = len(errors), dialect, tree, errors, more
        if not errors:
            break
    assert best is not None
    _, dialect, tree, errors, more = best
    read = Outline(tree.root_node)
    return {
        "language": dialect, "ast": read.declarations, "imports": read.imports, "exports": read.exports,
        "errors": errors, "truncated": read.truncated or more,
    }  # fmt: skip
