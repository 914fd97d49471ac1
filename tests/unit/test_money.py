"""Money arithmetic: estimates, actual costs, and amounts as people write them."""

import math
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.gates.quota.money import MAX_NANO_DOLLARS, actual, estimate, parse_dollars
from toolgate.model import Capability, Cost, Entry, Tool, nano
from toolgate.pipeline.usage import Estimate, UsageReport, dollars
from toolgate.registry.compile import compile_entry

CENT = 10_000_000

prices = st.decimals(min_value=0, max_value=10**6, allow_nan=False, allow_infinity=False, places=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=10,
)


def priced(cost: Cost, *capabilities: Capability, timeout: float | None = None) -> Entry:
    return compile_entry(Tool(name="t", description="T.", cost=cost, capabilities=capabilities, timeout=timeout), None)


def per(unit: str, price: str, field: str | None = "x", fixed: str = "0", timeout: float | None = None) -> Entry:
    cost = Cost.model_validate({"fixed": fixed, "per_unit": {"unit": unit, "price": price, "field": field}})
    return priced(cost, timeout=timeout)


# -- amounts


@given(st.integers(min_value=0, max_value=MAX_NANO_DOLLARS - 1))
def test_what_is_shown_can_be_read_again(amount: int) -> None:
    assert parse_dollars(dollars(amount).replace(",", "")) == amount


@given(prices)
def test_amounts_are_rounded_up_by_less_than_a_nano_dollar(amount: Decimal) -> None:
    with localcontext(prec=100):
        exact = amount * 10**9
        assert exact <= nano(amount) < exact + 1


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (0, "$0.00"), (1, "$0.000000001"), (CENT, "$0.01"), (140, "$0.00000014"), (1_234_500_000_000, "$1,234.50"),
        (-1, "-$0.000000001"),
    ],
)  # fmt: skip
def test_people_see_cents_and_what_is_finer(amount: int, shown: str) -> None:
    assert dollars(amount) == shown


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "-1", "-0.01", "+1", "NaN", "nan", "inf", "Infinity", "1e3", "1,000", "0x10", "ten", "1.", ".5", "$", "$-1",
        "1 2", "1_000", "1000000000", "9" * 50, "0.0000000001", "\N{ARABIC-INDIC DIGIT ONE}", "\N{FULLWIDTH DIGIT ONE}",
        "1\n2", "1;2", "1\0",
    ],
)  # fmt: skip
def test_what_is_no_amount_is_refused_with_words(text: str) -> None:
    with pytest.raises(ValueError, match="amount"):
        parse_dollars(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("10", 10**10), ("$2.50", 2_500_000_000), (" 0.000000001 ", 1), ("0", 0), ("999999999", 999_999_999 * 10**9)],
)  # fmt: skip
def test_amounts_as_people_write_them(text: str, amount: int) -> None:
    assert parse_dollars(text) == amount


@pytest.mark.parametrize("amount", ["NaN", "sNaN"])
def test_no_number_is_no_money(amount: str) -> None:
    with pytest.raises((ValueError, ArithmeticError)):
        nano(Decimal(amount))


def test_amounts_beyond_all_measure_are_the_most_there_is() -> None:
    assert [nano(Decimal(text)) for text in ("Infinity", "1E+999999", "-5", "1E-999999")] == [
        MAX_NANO_DOLLARS,
        MAX_NANO_DOLLARS,
        0,
        1,
    ]


# -- estimates


@pytest.mark.parametrize(
    ("entry", "arguments", "expected"),
    [
        (priced(Cost(fixed=Decimal("0.01"))), {}, Estimate(CENT, "exact")),
        (priced(Cost(model="free")), {}, Estimate(0, "unknown")),
        (per("token", "0.00000014"), {"x": "a" * 4_000_000}, Estimate(140_000_000, "estimate", 1_000_000)),
        (per("token", "0.00000014"), {"x": "abcde"}, Estimate(280, "estimate", 2)),
        (per("token", "0.00000014"), {"x": ["ab", "cd"]}, Estimate(140 * 3, "estimate", 3)),
        (per("token", "0.00000014"), {}, Estimate(0, "estimate", 0)),
        (per("token", "1", field=None), {"x": "abcd"}, Estimate(3 * 10**9, "estimate", 3)),
        (per("character", "0.01", fixed="1"), {"x": "äöü"}, Estimate(10**9 + 3 * CENT, "estimate")),
        (per("record", "0.01"), {"x": 7}, Estimate(7 * CENT, "estimate")),
        (per("record", "0.01"), {"x": 2.5}, Estimate(3 * CENT, "estimate")),
        (per("record", "0.01"), {"x": [1, 2, 3]}, Estimate(3 * CENT, "estimate")),
        (per("record", "0.01"), {"x": "seven"}, Estimate(CENT, "estimate")),
        (per("record", "0.01"), {}, Estimate(CENT, "estimate")),
        (per("record", "0.01"), {"x": True}, Estimate(CENT, "estimate")),
        (per("record", "0.01"), {"x": -100}, Estimate(CENT, "estimate")),
        (per("record", "0.01"), {"x": 0}, Estimate(0, "estimate")),
        (per("record", "0.01", field=None), {"x": 9}, Estimate(CENT, "estimate")),
        (per("second", "0.01", timeout=30), {}, Estimate(30 * CENT, "estimate")),
        (per("second", "0.01", timeout=0.1), {}, Estimate(1_000_000, "estimate")),
        (per("second", "0.01"), {}, Estimate(60 * CENT, "estimate")),
    ],
)  # fmt: skip
def test_estimates_follow_the_definition(entry: Entry, arguments: dict[str, Any], expected: Estimate) -> None:
    assert estimate(entry, arguments) == expected


def test_a_capability_says_what_to_expect_where_the_tool_names_no_price() -> None:
    small = Capability(action="read", estimated_cost=Decimal("0.01"), estimated_time_ms=5)
    large = Capability(action="write", estimated_cost=Decimal("0.02"), estimated_time_ms=500)
    assert estimate(priced(Cost(model="free"), small, large), {}) == Estimate(2 * CENT, "estimate", None, 500)
    assert estimate(priced(Cost(fixed=Decimal(1)), small), {}) == Estimate(10**9, "exact", None, 5)


@pytest.mark.parametrize("price", ["1000000001", "1E+300", "1E+999999", "NaN", "-1", "Infinity"])
def test_a_price_that_no_call_can_have_is_refused(price: str) -> None:
    with pytest.raises(ValueError, match="price"):
        per("token", price)
    with pytest.raises(ValueError, match="fixed"):
        per("token", "0", fixed=price)


@given(
    unit=st.sampled_from(["token", "character", "record", "second"]),
    price=prices | st.sampled_from([Decimal(10**9), Decimal("1E-300")]),
    fixed=prices,
    arguments=st.dictionaries(st.sampled_from(["x", "y"]), anything),
    field=st.sampled_from(["x", None]),
)
def test_no_arguments_make_an_estimate_negative_or_too_large(
    unit: str, price: Decimal, fixed: Decimal, arguments: dict[str, Any], field: str | None
) -> None:
    expected = estimate(per(unit, str(price), field, str(fixed)), arguments)
    assert nano(fixed) <= expected.nano <= MAX_NANO_DOLLARS < 2**62
    assert expected.tokens is None or expected.tokens >= 0


# -- what it did cost


ENTRY = per("token", "0.000001", fixed="0.01")
EXPECTED = Estimate(5 * CENT, "estimate", 40_000)


@pytest.mark.parametrize(
    ("report", "attempts", "code", "cost"),
    [
        (None, 1, None, EXPECTED.nano),
        (None, 0, None, 0),
        (None, 0, "PERMISSION_DENIED", 0),
        (None, 1, "INVOCATION_ERROR", EXPECTED.nano),
        (None, 3, "CONNECTION_ERROR", 3 * EXPECTED.nano),
        (None, 1, "TIMEOUT", EXPECTED.nano),
        (None, 0, "TIMEOUT", 0),
        (None, 1, "CANCELLED", EXPECTED.nano),
        (None, 1, "OUTCOME_UNKNOWN", EXPECTED.nano),
        (None, 1, "OUTPUT_INVALID", EXPECTED.nano),
        (UsageReport(cost_usd=0.03, attempts=1), 1, None, 3 * CENT),
        (UsageReport(cost_usd=0.03, attempts=1), 1, "INVOCATION_ERROR", 3 * CENT),
        (UsageReport(cost_usd=0.0, attempts=1), 1, None, 0),
        (UsageReport(cost_usd=0.1 + 0.2, attempts=1), 1, None, 300_000_000),
        (UsageReport(cost_usd=1e-15, attempts=1), 1, None, 1),
        (UsageReport(cost_usd=math.nan, attempts=1), 1, None, EXPECTED.nano),
        (UsageReport(cost_usd=-1.0, attempts=1), 1, None, EXPECTED.nano),
        (UsageReport(cost_usd=math.inf, attempts=1), 1, None, MAX_NANO_DOLLARS),
        (UsageReport(cost_usd=1e300, attempts=1), 1, None, MAX_NANO_DOLLARS),
        (UsageReport(tokens_used=1_000, attempts=1), 1, None, CENT + 1_000_000),
        (UsageReport(tokens_used=1_000, attempts=1), 1, "INVOCATION_ERROR", EXPECTED.nano),
        (UsageReport(tokens_used=1_000, attempts=1), 1, "TIMEOUT", EXPECTED.nano),
        (UsageReport(tokens_used=90_000, attempts=1), 1, "TIMEOUT", 10 * CENT),
        (UsageReport(tokens_used=0, attempts=1), 1, None, CENT),
        (UsageReport(tokens_used=-5, attempts=1), 1, None, EXPECTED.nano),
        (UsageReport(tokens_used=10**400, attempts=1), 1, None, MAX_NANO_DOLLARS),
        (UsageReport(tokens_used=1_000, cost_usd=1.0, attempts=1), 1, None, 10**9),
        (UsageReport(resources_used=("a file",)), 1, None, EXPECTED.nano),
    ],
)  # fmt: skip
def test_what_a_call_cost(report: UsageReport | None, attempts: int, code: str | None, cost: int) -> None:
    assert actual(ENTRY, EXPECTED, report, charged=attempts, failed=code is not None) == cost


@pytest.mark.parametrize("entry", [priced(Cost(fixed=Decimal("0.05"))), per("character", "0.01")])
def test_reported_tokens_cost_nothing_where_they_have_no_price(entry: Entry) -> None:
    assert actual(entry, EXPECTED, UsageReport(tokens_used=10**9, attempts=1), charged=1, failed=False) == EXPECTED.nano


@given(
    cost=st.none() | st.floats() | st.integers(), tokens=st.none() | st.integers(), attempts=st.integers(0, 3),
    code=st.sampled_from([None, "TIMEOUT", "INVOCATION_ERROR", "CANCELLED"]),
)  # fmt: skip
def test_no_report_makes_a_cost_negative_or_too_large(
    cost: float | None, tokens: int | None, attempts: int, code: str | None
) -> None:
    spent = actual(ENTRY, EXPECTED, UsageReport(tokens, cost), charged=attempts, failed=code is not None)
    assert 0 <= spent <= MAX_NANO_DOLLARS
