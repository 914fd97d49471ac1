"""What is wrong with a field of a request, in a sentence."""

from typing import Annotated

import msgspec
import pytest

from toolgate.serve.http.field_faults import fault_of

pytestmark = pytest.mark.requirement("DOOR-1")


class Price(msgspec.Struct, forbid_unknown_fields=True):
    dollars: Annotated[str, msgspec.Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")] = "1"
    parts: "list[Price]" = []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"dollars": "much"}, r"`dollars` must match the pattern ^[0-9]+(\.[0-9]+)?$"),
        ({"parts": [{"parts": [{"dollars": 1}]}]}, "`parts[0].parts[0].dollars` must be text, not a whole number"),
        ({"parts": [{"cents": 1}]}, "unknown field `cents` in `parts[0]`; the fields are dollars, parts"),
        ({"x" * 600: 1}, "a field is wrong"),
    ],
)
def test_the_field_is_named_with_what_it_may_be(body: object, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(body, Price)
    assert fault_of(error.value, Price) == words
