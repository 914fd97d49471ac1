"""The parsers that run in processes of their own, called here in place."""

from typing import Any

import pytest

from toolgate.tools.parsers.document_check import MAX_FAULTS, check
from toolgate.tools.parsers.typescript_outline import MAX_ERRORS, outline

TS, TSX = ["typescript"], ["tsx"]


def parsed(code: str, *dialects: str) -> dict[str, Any]:
    return outline({"code": code, "dialects": list(dialects) or TS})


@pytest.mark.parametrize(
    ("code", "exports", "imports"),
    [
        ("export * from './a'; export * as ns from './b'; export { x as y, z } from './c';", ["*", "ns", "y", "z"],
         ["./a", "./b", "./c"]),
        ("export default function () {}", ["default"], []), ("export default class {}", ["default"], []),
        ("export default () => 1;", ["default"], []), ("const a = 1; export default a;", ["default"], []),
        ("export declare const a: number; export declare function f(): void;", ["a", "f"], []),
        ("import fs = require('fs'); import 'side'; import type { A } from \"types\"; export = fs;", [],
         ["fs", "side", "types"]),
        ("export abstract class A {} export namespace N { export const inner = 1 } export type T = 1;", ["A", "N", "T"], []),
        ("export const { a, b: c = 1, ...d } = e, [f, [g = 2]] = h, i = j;", ["a", "c", "d", "f", "g", "i"], []),
        ("import { a } from './a'; import b from './a';", [], ["./a"]),
        ("declare module 'm' { export const a: 1; import 'x'; }", [], []), ("export { a };", ["a"], []),
    ],
)  # fmt: skip
def test_imports_and_exports_in_all_their_forms(code: str, exports: list[str], imports: list[str]) -> None:
    found = parsed(code)
    assert (found["exports"], found["imports"], found["errors"]) == (exports, imports, [])


def test_members_and_signatures() -> None:
    found = parsed(
        "abstract class A<T> { abstract f(): void; static async g<U>(a: U): Promise<U> { return a }\n"
        "get x() { return 1 } y = 2 }\n"
        "interface I { m(a: string): void; p?: number; (x: number): string }\nfunction* gen(a = 1) {}\nconst h = a => a;"
    )
    by_name = {item["name"]: item for item in found["ast"]}
    assert [member["name"] for member in by_name["A"]["members"]] == ["f", "g", "x", "y"]
    assert by_name["A"]["members"][1]["signature"] == "g<U>(a: U): Promise<U>"
    assert [member["kind"] for member in by_name["I"]["members"]] == ["method", "property"]
    assert by_name["gen"]["signature"] == "gen(a = 1)"
    assert by_name["h"]["signature"] == "h(a)"


def test_bounds_are_held_and_said() -> None:
    deep = parsed("namespace A {" * 30 + "}" * 30)
    assert deep["truncated"] is True
    many = parsed("const a = 1, b = 2;\n" * 2_000)
    assert (len(many["ast"]), many["truncated"]) == (2_000, True)
    wrong = parsed("const a = 1; @#$;\n" * 500)
    assert (len(wrong["errors"]), wrong["truncated"]) == (MAX_ERRORS, True)
    long = parsed(f"function {'f' * 500}({'a' * 900}: number) {{}}")["ast"][0]
    assert len(long["name"]) == 200
    assert len(long["signature"]) == 240
    imported = parsed("".join(f"import 'm{number}';" for number in range(2_500)))
    assert (len(imported["imports"]), imported["truncated"]) == (2_000, True)


def test_errors_say_what_is_wrong_and_where() -> None:
    [missing] = parsed("function f() { return 1")["errors"]
    assert (missing["line"], "missing" in missing["message"] or "unexpected" in missing["message"]) == (1, True)
    assert parsed("const v = <div/>;", *TS, *TSX)["language"] == "tsx"
    assert parsed("const v = <number>w;", *TS, *TSX)["language"] == "typescript"


def checked(data: str, schema: str | None = None, form: str = "json") -> dict[str, Any]:
    return check({"data": data, "format": form, "schema": schema})


def test_documents_and_schemas_are_checked() -> None:
    assert checked("[1]") == {"valid": True, "errors": [], "refusal": None}
    assert checked("[1", None)["errors"][0]["message"] == "the text ends too early"
    assert checked("a: [", None, "yaml")["valid"] is False
    found = checked('{"a": 1, "a": 2, "b": 3}', '{"additionalProperties": false, "properties": {"a": {"type": "string"}}}')
    assert {(one["path"], one["message"]) for one in found["errors"]} == {
        ("a", "the name stands twice in its object"), ("a", "must be of type string, not integer"),
        ("b", "the schema does not allow this name"),
    }  # fmt: skip
    many = checked(str([0] * 500), '{"items": {"type": "string"}}')
    assert len(many["errors"]) == MAX_FAULTS
    assert checked("b: 1\n", "required: [a]\n", "yaml")["errors"][0]["path"] == "a"


@pytest.mark.parametrize(
    ("schema", "words"),
    [("{", "line 1"), ("7", "object"), ('{"$schema": "http://example.com/x"}', "draft"), ('{"type": 7}', ""),
     ('{"allOf": [' * 80 + "{}" + "]}" * 80, "deeply"), ('{"$ref": "http://127.0.0.1:9/x"}', "")],
)  # fmt: skip
def test_what_is_no_schema_is_refused(schema: str, words: str) -> None:
    refusal = checked("1", schema)["refusal"]
    assert refusal is not None
    assert words in refusal
