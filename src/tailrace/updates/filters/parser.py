"""From what a user typed to an expression, by recursive descent; what does not parse fails with the place.

    filter    = term { OR term }
    term      = factor { AND factor }
    factor    = NOT factor | "(" filter ")" | TRUE | FALSE | EXISTS key | key test
    test      = "=" value | "!=" value | [NOT] IN "(" value { "," value } ")"
              | [NOT] BETWEEN number AND number | [NOT] MATCHES text
    key       = name | "quoted name" | pairs [ 'name' ]
    value     = 'text' | number

Keywords are case-insensitive, names are not. A quote within quotes is doubled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from tailrace.errors import FilterInvalid
from tailrace.updates.filters import checks
from tailrace.updates.filters.syntax import (
    COLUMNS,
    FALSE,
    TIME_COLUMN,
    TRUE,
    And,
    Basic,
    Between,
    Equals,
    Exists,
    Expression,
    In,
    Key,
    Matches,
    Not,
    Or,
)
from tailrace.updates.filters.tokens import Token, invalid, tokens_of

MAX_DEPTH: Final = 100


@dataclass(slots=True)
class Parser:
    """One parse. `places` says where each expression of the result begins, by its id."""

    text: str
    tokens: list[Token] = field(init=False)
    places: dict[int, int] = field(default_factory=dict)
    _at: int = 0
    _depth: int = 0

    def __post_init__(self) -> None:
        self.tokens = tokens_of(self.text)

    def parse(self) -> Expression:
        if self._token.kind == "end":
            raise invalid(self.text, 0, "an empty filter; write TRUE for everything")
        found = self._filter()
        if self._token.kind != "end":
            raise self._expected("expected AND, OR or the end")
        return found

    # ---- tokens -------------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self.tokens[self._at]

    def _take(self) -> Token:
        token = self._token
        self._at += token.kind != "end"
        return token

    def _took(self, kind: str, value: str) -> bool:
        token = self._token
        if token.kind == kind and token.value == value:
            self._at += 1
            return True
        return False

    def _demand(self, kind: str, value: str) -> None:
        if not self._took(kind, value):
            raise self._expected(f"expected {value}")

    def _expected(self, expected: str) -> FilterInvalid:
        token = self._token
        return invalid(self.text, token.at, f"{expected}, found {token.shown}")

    def _placed(self, expression: Expression, at: int) -> Expression:
        self.places[id(expression)] = at
        return expression

    # ---- expressions --------------------------------------------------------------------------------------------

    def _filter(self) -> Expression:
        at = self._token.at
        parts = [self._term()]
        while self._took("keyword", "OR"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else self._placed(Or(tuple(parts)), at)

    def _term(self) -> Expression:
        at = self._token.at
        parts = [self._factor()]
        while self._took("keyword", "AND"):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else self._placed(And(tuple(parts)), at)

    def _factor(self) -> Expression:
        token = self._token
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise invalid(self.text, token.at, f"nested more than {MAX_DEPTH} deep")
        found = self._placed(self._unplaced_factor(), token.at)
        self._depth -= 1
        return found

    def _unplaced_factor(self) -> Expression:
        if self._took("keyword", "NOT"):
            return Not(self._factor())
        if self._took("symbol", "("):
            found = self._filter()
            self._demand("symbol", ")")
            return found
        if self._took("keyword", "TRUE"):
            return TRUE
        if self._took("keyword", "FALSE"):
            return FALSE
        if self._took("keyword", "EXISTS"):
            return Exists(self._key())
        return self._test(self._key())

    def _key(self) -> Key:
        token = self._token
        if token.kind == "keyword":
            raise self._expected('expected a key (a key named like a keyword stands in "double quotes")')
        if token.kind == "text":
            raise self._expected('expected a key (a key stands bare or in "double quotes")')
        if token.kind not in ("name", "quoted"):
            raise self._expected("expected a key, NOT, EXISTS or '('")
        self._take()
        if token.kind == "name" and token.value == "pairs" and self._took("symbol", "["):
            name = self._token
            if name.kind not in ("text", "quoted"):
                raise self._expected("expected the pair's name in quotes")
            self._take()
            self._demand("symbol", "]")
            return Key(name.value)
        return Key(token.value, is_column=token.value in COLUMNS)

    def _test(self, key: Key) -> Expression:
        if self._took("symbol", "="):
            return Equals(key, self._value(key))
        if self._took("symbol", "!=") or self._took("symbol", "<>"):
            return Not(Equals(key, self._value(key)))
        negated = self._took("keyword", "NOT")
        found = self._set_test(key)
        return Not(found) if negated else found

    def _set_test(self, key: Key) -> Basic:
        if self._took("keyword", "IN"):
            return In(key, self._values(key))
        if self._took("keyword", "BETWEEN"):
            low = self._number(key)
            self._demand("keyword", "AND")
            return Between(key, low, self._number(key))
        if self._took("keyword", "MATCHES"):
            return Matches(key, self._pattern())
        raise self._expected("expected =, !=, IN, BETWEEN or MATCHES")

    # ---- values -------------------------------------------------------------------------------------------------

    def _value(self, key: Key) -> str:
        token = self._token
        if token.kind not in ("text", "number"):
            raise self._expected("expected a value in 'single quotes' or a number")
        value, problem = checks.value_of(key, token.value)
        if problem:
            raise invalid(self.text, token.at, problem)
        self._take()
        return value

    def _values(self, key: Key) -> tuple[str, ...]:
        self._demand("symbol", "(")
        values = {self._value(key)}
        while self._took("symbol", ","):
            values.add(self._value(key))
        if not self._took("symbol", ")"):
            raise self._expected("expected ',' or ')'")
        return tuple(sorted(values))

    def _number(self, key: Key) -> Decimal:
        token = self._token
        is_time = key.is_column and key.name == TIME_COLUMN
        if token.kind not in ("text", "number"):
            raise self._expected("expected a number" + (" or a time in quotes" if is_time else ""))
        number, problem = checks.bound_of(key, token.value)
        if problem:
            raise invalid(self.text, token.at, problem)
        self._take()
        return number

    def _pattern(self) -> str:
        token = self._token
        if token.kind != "text":
            raise self._expected("expected a regular expression in 'single quotes'")
        problem = checks.pattern_problem(token.value)
        if problem:
            raise invalid(self.text, token.at, problem)
        self._take()
        return token.value
