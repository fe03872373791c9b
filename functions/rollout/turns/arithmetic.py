"""Arithmetic as a model writes it, computed exactly. Nothing but numbers and operators is ever evaluated.

    sum      := product (("+" | "-") product)*
    product  := signed (("*" | "/" | "//" | "%") signed)*
    signed   := ("+" | "-") signed | power
    power    := atom (("**" | "^") signed)?
    atom     := number | "(" sum ")"

Precedence and associativity are Python's: -2**2 is -4, 2**3**2 is 512.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

MAX_CHARACTERS = 256
MAX_DEPTH = 32
MAX_MAGNITUDE = Fraction(10) ** 30
"""Of every intermediate value, so that no power runs away."""
MAX_EXPONENT = 200
NUM_DIGITS = 10
"""Significant digits of a result that is no integer."""

_TOKEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+|\*\*|//|[-+*/%^()])")


class NoArithmetic(ValueError):
    """The text is no expression, or its value does not exist or is too large."""


def evaluate(text: str) -> Fraction:
    """The exact value of an expression. Raises NoArithmetic."""
    if len(text) > MAX_CHARACTERS:
        raise NoArithmetic(f"more than {MAX_CHARACTERS} characters")
    parser = _Parser(_tokens(text))
    value = parser.sum(0)
    if parser.next is not None:
        raise NoArithmetic(f"{parser.next!r} follows a complete expression")
    return value


def shown(value: Fraction) -> str:
    """`84`, `-3`, `0.3333333333`: integers in full, others rounded to ten significant digits."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.{NUM_DIGITS}g}"


def _tokens(text: str) -> list[str]:
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NoArithmetic(f"{text[at]!r} is no arithmetic")
        tokens.append(match[1])
        at = match.end()
    return tokens


def _bounded(value: Fraction) -> Fraction:
    # Small values have large denominators, which grow just as far.
    if abs(value) > MAX_MAGNITUDE or value.denominator > MAX_MAGNITUDE:
        raise NoArithmetic("too large a number")
    return value


def _divisor(value: Fraction) -> Fraction:
    if not value:
        raise NoArithmetic("division by zero")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > MAX_EXPONENT:
        raise NoArithmetic(f"exponents are integers up to {MAX_EXPONENT}")
    return (base if exponent >= 0 else 1 / _divisor(base)) ** abs(int(exponent))


_SUMS: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
}
_PRODUCTS: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / _divisor(b),
    "//": lambda a, b: Fraction(a // _divisor(b)),
    "%": lambda a, b: a % _divisor(b),
}


class _Parser:
    """Recursive descent over tokens; every method returns a value and raises NoArithmetic."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def next(self) -> str | None:
        """The token to come; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def sum(self, depth: int) -> Fraction:
        return self._chain(_SUMS, lambda: self._chain(_PRODUCTS, lambda: self._signed(depth)))

    def _chain(
        self, operators: Mapping[str, Callable[[Fraction, Fraction], Fraction]], part: Callable[[], Fraction]
    ) -> Fraction:
        value = part()
        while self.next in operators:
            operator = operators[self._take()]
            value = _bounded(operator(value, part()))
        return value

    def _signed(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise NoArithmetic("too deeply nested")
        if self.next in ("+", "-"):
            sign = self._take()
            value = self._signed(depth + 1)
            return -value if sign == "-" else value
        base = self._atom(depth)
        if self.next in ("**", "^"):
            self._take()
            return _bounded(_power(base, self._signed(depth + 1)))
        return base

    def _atom(self, depth: int) -> Fraction:
        token = self._take()
        if token == "(":
            value = self.sum(depth + 1)
            if self._take() != ")":
                raise NoArithmetic("a parenthesis is not closed")
            return value
        if not token[-1].isdigit() and not token[0].isdigit():
            raise NoArithmetic(f"{token!r} stands where a number should")
        return _bounded(Fraction(token))

    def _take(self) -> str:
        token = self.next
        if token is None:
            raise NoArithmetic("the expression ends too early")
        self._at += 1
        return token
