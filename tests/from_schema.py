"""Random values that fit a JSON Schema, as far as the built-in tools' schemas go: what is not known here fails."""

from typing import Any

from hypothesis import strategies as st

KNOWN = {
    "type", "enum", "const", "anyOf", "oneOf", "items", "properties", "required", "additionalProperties", "minLength",
    "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "$ref",
    "$defs", "description", "title", "default", "format", "maxProperties", "minProperties", "uniqueItems", "propertyNames",
}  # fmt: skip
ODD_TEXTS = [
    "", " ", "\0", "\x1b[31m", "../..", "-", "--help", "{{secret:KEY}}", "%s", "'; DROP TABLE x; --", "\ud7ff", "\U0001d7cf",
    "a" * 300,
]  # fmt: skip
ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def values(schema: Any, root: dict[str, Any] | None = None) -> st.SearchStrategy[Any]:
    """Values that a schema allows."""
    root = schema if root is None else root
    if schema is True or schema == {}:
        return ANYTHING
    unknown = [key for key in schema if key not in KNOWN and not key.startswith("x-")]
    assert not unknown, f"a schema with {unknown}"
    if "$ref" in schema:
        return values(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if (options := schema.get("anyOf") or schema.get("oneOf")) is not None:
        return st.one_of(*(values(option, root) for option in options))
    kinds = schema.get("type", ["null", "boolean", "integer", "number", "string", "array", "object"])
    return st.one_of(*(_of_type(kind, schema, root) for kind in ([kinds] if isinstance(kinds, str) else kinds)))


def _of_type(kind: str, schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1))
        case "number":
            low, high = schema.get("minimum"), schema.get("maximum")
            return st.floats(low, high, allow_nan=False, allow_infinity=False)
        case "string":
            return _texts(schema)
        case "array":
            most = min(schema.get("maxItems", 4), 4)
            least = schema.get("minItems", 0)
            return st.lists(values(schema.get("items", {}), root), min_size=least, max_size=max(most, least))
        case _:
            return _objects(schema, root)


def _texts(schema: dict[str, Any]) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True)
    least, most = schema.get("minLength", 0), schema.get("maxLength", 10**9)
    odd = [text for text in ODD_TEXTS if least <= len(text) <= most]
    free = st.text(min_size=least, max_size=min(most, max(least, 60)))
    return free | st.sampled_from(odd) if odd else free


def _objects(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    fixed = {name: values(part, root) for name, part in properties.items() if name in required}
    optional = {name: values(part, root) for name, part in properties.items() if name not in required}
    named = st.fixed_dictionaries(fixed, optional=optional)
    rest = schema.get("additionalProperties", True)
    if properties or rest is False:
        return named
    names = st.text(min_size=1, max_size=8)
    return st.dictionaries(names, values(rest, root), min_size=schema.get("minProperties", 0), max_size=4)
