"""Selectors: the SQL-92 subset of JMS 2.0 §3.8.1, compiled to a closure.

Three values: True, False and None (unknown). A missing property is None; arithmetic on it, comparison with it and LIKE
or IN of something that is no string are unknown; unlike types compare as False, with `<>` too (§3.8.1.2). Beyond JMS,
as Artemis and others take them: `%`, hexadecimal and octal numbers, names with dots, names in double quotes, and after
the prefix `hyphenated_props:` names with hyphens.

Clients write selectors, and each is evaluated for messages of others: a selector is refused if it takes more than
MAX_WORDS or MAX_SOUGHT to evaluate it, and LIKE of a text that is too long for its selector (MAX_LIKE) is unknown.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

Lookup = Callable[[str], object]
"""identifier -> value (str, bool, int, float) or None if the message has none (also for values of other types)"""

MAX_LENGTH = 16_384  # characters
LARGEST = 1 << 1024  # magnitude of an integer that is calculated, about that of the largest float
MAX_WORDS = 1024  # names, values, operators and parentheses, without commas
MAX_SOUGHT = 1024  # characters of all patterns of LIKE that may be anywhere in a text: those between two `%`
MAX_LIKE = 1 << 18  # these characters times those of a text: LIKE of a longer text is unknown
CACHED = 256  # characters of the texts whose compiled selectors are kept for others
MAX_NESTING = 40  # parentheses, NOT and signs within each other
_TOO_LONG = f"more than {MAX_WORDS} names, values and operators"
_REGEX_WORDS = 16  # words that a piece of a pattern with `_` is worth: it becomes a regular expression
_SOUGHT_WEIGHT = 8  # words that a character of these patterns is worth, in a text of 1 KiB

_Value = Callable[[Lookup], object]
_ANY, _BOOL, _NUMBER, _STRING = "value", "condition", "number", "string"


class SelectorError(ValueError):
    """The text is no selector; `position` is the offset of the character where it stops being one."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at position {position}")
        self.reason = reason
        self.position = position


class Selector:
    """A compiled selector. `matches(lookup)` never raises for any value the lookup returns; unknown is not a match.
    `weight`: the work of an evaluation at the worst, in words; a word takes about 0.2 µs."""

    __slots__ = ("_evaluate", "identifiers", "text", "weight")

    def __init__(self, text: str, evaluate: _Value, identifiers: frozenset[str], weight: int) -> None:
        self.text = text
        self.identifiers = identifiers
        self.weight = weight
        self._evaluate = evaluate

    def matches(self, lookup: Lookup) -> bool:
        """Return True if the properties that `lookup` finds satisfy the selector. Unknown is no match."""
        return self._evaluate(lookup) is True

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """Raises SelectorError. Equal texts share one compiled selector, unless they are long: of these the last one is
    remembered. A blank text matches everything."""
    return _cached(text) if len(text) <= CACHED else _last(text)


def _compiled(text: str) -> Selector:
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"longer than {MAX_LENGTH} characters", MAX_LENGTH)
    if not text.strip():
        return Selector(text, _constant(True), frozenset(), 1)
    parser = _Parser(text)
    return Selector(text, parser.parse(), frozenset(parser.identifiers), parser.weight)


_cached = lru_cache(maxsize=1024)(_compiled)
_last = lru_cache(maxsize=1)(_compiled)


# -- words ------------------------------------------------------------------------------------------------------
_KEYWORDS = frozenset(("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"))
_NAME = r"[^\W\d$][\w$.]*|[$][\w$.]*"
_WORD = r"""
    (?P<space>\s+|--[^\n]*|/\*(?s:.*?)\*/)
  | (?P<float>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?|\d+(?:[eE][+-]?\d+[dDfF]?|[dDfF]))
  | (?P<int>0[xX][0-9a-fA-F]+[lL]?|\d+[lL]?)
  | (?P<string>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")+")
  | (?P<name>NAME)
  | (?P<op><>|<=|>=|/(?!\*)|[=<>+\-*%(),])
"""
_PLAIN = re.compile(_WORD.replace("NAME", _NAME), re.VERBOSE)
_HYPHENATED = re.compile(_WORD.replace("NAME", _NAME.replace("[\\w$.]*", "[\\w$.-]*")), re.VERBOSE)
_HYPHENATED_PREFIX = "hyphenated_props:"
_QUOTE = "string without its closing quote"
_UNFINISHED = {"'": _QUOTE, '"': _QUOTE, "/": "comment without its end"}


class _Token(NamedTuple):
    kind: str  # name, keyword, int, float, string, op, end
    text: str
    value: str | int | float | None
    position: int


def _tokens(text: str) -> list[_Token]:
    pattern, at = _PLAIN, 0
    start = len(text) - len(text.lstrip())
    if text.startswith(_HYPHENATED_PREFIX, start):
        pattern, at = _HYPHENATED, start + len(_HYPHENATED_PREFIX)
    found: list[_Token] = []
    words = 0
    size = len(text)
    while at < size:
        if text[at] == " ":  # as most spaces are; the rest is found as other words are
            at += 1
            continue
        match = pattern.match(text, at)
        if match is None:
            raise SelectorError(_UNFINISHED.get(text[at], f"unexpected character {text[at]!r}"), at)
        kind, word = str(match.lastgroup), match[0]
        if kind in ("int", "float") and text[match.end() : match.end() + 1].isidentifier():
            raise SelectorError(f"malformed number {word}{text[match.end()]}", at)
        if kind != "space":
            found.append(_token(kind, word, at))
            words += word != ","
            if words > MAX_WORDS:
                raise SelectorError(_TOO_LONG, at)
        at = match.end()
    found.append(_Token("end", "the end", None, len(text)))
    return found


_read = lru_cache(maxsize=2)(_tokens)


def read_words(text: str) -> None:
    """Read the words of a long text, whose selector is compiled soon: that is half of the work. What is wrong with them
    `compile_selector` reports."""
    if len(text) <= MAX_LENGTH:
        with suppress(SelectorError):
            _read(text)


def _token(kind: str, word: str, at: int) -> _Token:
    if kind == "op":
        return _Token(kind, word, word, at)
    if kind == "name":
        upper = word.upper()
        return _Token("keyword", upper, None, at) if upper in _KEYWORDS else _Token(kind, word, word, at)
    match kind:
        case "int":
            return _Token(kind, word, _integer(word, at), at)
        case "float":
            return _Token(kind, word, float(word.rstrip("dDfF")), at)
        case "string":
            return _Token(kind, word, word[1:-1].replace("''", "'"), at)
        case "quoted":
            return _Token("name", word, word[1:-1].replace('""', '"'), at)
    raise AssertionError(kind)


def _integer(word: str, at: int) -> int:
    digits = word.rstrip("lL")
    try:
        if digits[:2] in ("0x", "0X"):
            value = int(digits, 16)
        elif digits[0] == "0" and len(digits) > 1:
            value = int(digits, 8)
        else:
            value = int(digits) if len(digits) < 20 else 1 << 64
    except ValueError:
        raise SelectorError(f"malformed number {word}", at) from None
    if value > 1 << 63:  # the magnitude of the smallest one is written with a sign before it
        raise SelectorError(f"{word[:30]} does not fit 64 bits", at)
    return value


# -- grammar ------------------------------------------------------------------------------------------------------
class _Node(NamedTuple):
    evaluate: _Value
    type: str
    position: int
    name: str | None = None  # of a bare identifier


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text) if len(text) <= CACHED else _read(text)
        self.at = 0
        self.depth = 0
        self.identifiers: set[str] = set()
        self.patterns: list[_Pattern] = []  # of LIKE
        self.words = sum(token.text != "," for token in self.tokens)

    def parse(self) -> _Value:
        node = self.disjunction()
        if self.token.kind != "end":
            raise SelectorError(f"unexpected {self.token.text}", self.token.position)
        evaluate = self.condition(node).evaluate
        longest = MAX_LIKE // max(1, self.sought)
        for pattern in self.patterns:
            pattern.longest = longest
        return evaluate

    @property
    def sought(self) -> int:
        return sum(pattern.sought for pattern in self.patterns)

    @property
    def weight(self) -> int:
        return self.words + _SOUGHT_WEIGHT * self.sought

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def take(self, *texts: str) -> _Token | None:
        """The next token if it is one of these keywords or operators."""
        token = self.tokens[self.at]
        if token.text in texts and token.kind in ("keyword", "op"):
            self.at += 1
            return token
        return None

    def need(self, text: str) -> None:
        if not self.take(text):
            raise SelectorError(f"expected {text}, found {self.token.text}", self.token.position)

    def deeper(self, position: int) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise SelectorError(f"nested deeper than {MAX_NESTING}", position)

    def condition(self, node: _Node) -> _Node:
        if node.type not in (_BOOL, _ANY):
            raise SelectorError(f"a condition is needed, this is a {node.type}", node.position)
        return node

    def number(self, node: _Node) -> _Node:
        if node.type not in (_NUMBER, _ANY):
            raise SelectorError(f"a number is needed, this is a {node.type}", node.position)
        return node

    def disjunction(self) -> _Node:
        first = self.conjunction()
        if self.token.text != "OR" or self.token.kind != "keyword":
            return first
        terms = [self.condition(first).evaluate]
        while self.take("OR"):
            terms.append(self.condition(self.conjunction()).evaluate)
        return _Node(_or(terms), _BOOL, first.position)

    def conjunction(self) -> _Node:
        first = self.negation()
        if self.token.text != "AND" or self.token.kind != "keyword":
            return first
        terms = [self.condition(first).evaluate]
        while self.take("AND"):
            terms.append(self.condition(self.negation()).evaluate)
        return _Node(_and(terms), _BOOL, first.position)

    def negation(self) -> _Node:
        token = self.take("NOT")
        if not token:
            return self.comparison()
        self.deeper(token.position)
        node = self.condition(self.negation())
        self.depth -= 1
        return _Node(_not(node.evaluate), _BOOL, token.position)

    def comparison(self) -> _Node:
        left = self.sum()
        at = left.position
        if token := self.take("=", "<>"):
            right = self.sum()
            compare = _equal if token.text == "=" else _unequal
            return _Node(compare(left.evaluate, right.evaluate), _BOOL, at)
        if token := self.take("<", "<=", ">", ">="):
            self.number(left)
            right = self.number(self.sum())
            return _Node(_ordered(_ORDER[token.text], left.evaluate, right.evaluate), _BOOL, at)
        if self.take("IS"):
            negated = self.take("NOT")
            self.need("NULL")
            self.name(left, "IS NULL")
            return _Node(_is_null(left.evaluate, bool(negated)), _BOOL, at)
        negated = self.take("NOT")
        if self.take("BETWEEN"):
            self.number(left)
            low = self.number(self.sum())
            self.need("AND")
            high = self.number(self.sum())
            test = _and(
                [
                    _ordered(operator.ge, left.evaluate, low.evaluate),
                    _ordered(operator.le, left.evaluate, high.evaluate),
                ]
            )
        elif self.take("IN"):
            self.name(left, "IN")
            test = _in(left.evaluate, self.strings())
        elif self.take("LIKE"):
            self.name(left, "LIKE")
            test = self.like(left)
        elif negated:
            raise SelectorError(f"expected BETWEEN, IN or LIKE, found {self.token.text}", self.token.position)
        else:
            return left
        return _Node(_not(test) if negated else test, _BOOL, at)

    def name(self, node: _Node, word: str) -> None:
        if node.name is None:
            raise SelectorError(f"{word} needs the name of a property before it", node.position)

    def string(self) -> str:
        token = self.token
        if token.kind != "string":
            raise SelectorError(f"expected a string, found {token.text}", token.position)
        self.at += 1
        return str(token.value)

    def strings(self) -> frozenset[str]:
        self.need("(")
        found = [self.string()]
        while self.take(","):
            found.append(self.string())
        self.need(")")
        return frozenset(found)

    def like(self, left: _Node) -> _Value:
        position = self.token.position
        pattern = self.string()
        escape = None
        if self.take("ESCAPE"):
            at = self.token.position
            escape = self.string()
            if len(escape) != 1:
                raise SelectorError("ESCAPE needs a single character", at)
        self.patterns.append(_Pattern(pattern, escape, position))
        self.words += _REGEX_WORDS * self.patterns[-1].regexes
        if self.words > MAX_WORDS:
            raise SelectorError(_TOO_LONG, position)
        if self.sought > MAX_SOUGHT:
            raise SelectorError(f"more than {MAX_SOUGHT} characters between two % in patterns of LIKE", position)
        return _like(left.evaluate, self.patterns[-1])

    def sum(self) -> _Node:
        return self.chain(self.product, ("+", "-"))

    def product(self) -> _Node:
        return self.chain(self.sign, ("*", "/", "%"))

    def chain(self, operand: Callable[[], _Node], operators: tuple[str, ...]) -> _Node:
        first = operand()
        if self.tokens[self.at].text not in operators:  # as after most
            return first
        rest: list[tuple[Callable[[_Num, _Num], object], _Value]] = []
        while token := self.take(*operators):
            if not rest:
                self.number(first)
            rest.append((_ARITHMETIC[token.text], self.number(operand()).evaluate))
        return _Node(_arithmetic(first.evaluate, rest), _NUMBER, first.position) if rest else first

    def sign(self) -> _Node:
        token = self.take("+", "-")
        if not token:
            return self.primary()
        following = self.token
        if token.text == "-" and following.kind in ("int", "float"):
            self.at += 1
            assert isinstance(following.value, (int, float))
            return _Node(_constant(-following.value), _NUMBER, token.position)
        self.deeper(token.position)
        node = self.number(self.sign())
        self.depth -= 1
        return _Node(_signed(node.evaluate, token.text == "-"), _NUMBER, token.position)

    def primary(self) -> _Node:
        token = self.token
        self.at += 1
        kind = token.kind
        if kind == "name":
            name = str(token.value)
            self.identifiers.add(name)
            return _Node(_identifier(name), _ANY, token.position, name)
        if kind in ("int", "float"):
            if token.value == 1 << 63 and kind == "int":
                raise SelectorError(f"{token.text} does not fit 64 bits", token.position)
            return _Node(_constant(token.value), _NUMBER, token.position)
        if kind == "string":
            return _Node(_constant(token.value), _STRING, token.position)
        if kind == "op" and token.text == "(":
            self.deeper(token.position)
            node = self.disjunction()
            self.need(")")
            self.depth -= 1
            return node._replace(name=None, position=token.position)
        if kind == "keyword" and token.text in ("TRUE", "FALSE"):
            return _Node(_constant(token.text == "TRUE"), _BOOL, token.position)
        raise SelectorError(f"expected a value, found {token.text}", token.position)


# -- closures ------------------------------------------------------------------------------------------------------
_Num = int | float
_ORDER: dict[str, Callable[[_Num, _Num], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _numeric(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _constant(value: object) -> _Value:
    return lambda get: value


def _identifier(name: str) -> _Value:
    return lambda get: get(name)


def _or(terms: list[_Value]) -> _Value:
    def evaluate(get: Lookup) -> object:
        result: bool | None = False
        for term in terms:
            value = term(get)
            if value is True:
                return True
            if value is not False:
                result = None
        return result

    return evaluate


def _and(terms: list[_Value]) -> _Value:
    def evaluate(get: Lookup) -> object:
        result: bool | None = True
        for term in terms:
            value = term(get)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    return evaluate


def _not(term: _Value) -> _Value:
    def evaluate(get: Lookup) -> object:
        value = term(get)
        return not value if isinstance(value, bool) else None

    return evaluate


def _alike(a: object, b: object) -> bool:
    return (
        (isinstance(a, str) and isinstance(b, str))
        or (_numeric(a) and _numeric(b))
        or (isinstance(a, bool) and isinstance(b, bool))
    )


def _equal(left: _Value, right: _Value) -> _Value:
    def evaluate(get: Lookup) -> object:
        a, b = left(get), right(get)
        if a is None or b is None:
            return None
        return _alike(a, b) and a == b

    return evaluate


def _unequal(left: _Value, right: _Value) -> _Value:
    def evaluate(get: Lookup) -> object:
        a, b = left(get), right(get)
        if a is None or b is None:
            return None
        return _alike(a, b) and a != b

    return evaluate


def _ordered(compare: Callable[[_Num, _Num], bool], left: _Value, right: _Value) -> _Value:
    def evaluate(get: Lookup) -> object:
        a, b = left(get), right(get)
        if a is None or b is None:
            return None
        if isinstance(a, (int, float)) and isinstance(b, (int, float)) and _numeric(a) and _numeric(b):
            return compare(a, b)
        return False

    return evaluate


def _is_null(value: _Value, negated: bool) -> _Value:
    if negated:
        return lambda get: value(get) is not None
    return lambda get: value(get) is None


def _in(value: _Value, strings: frozenset[str]) -> _Value:
    def evaluate(get: Lookup) -> object:
        found = value(get)
        return found in strings if isinstance(found, str) else None

    return evaluate


def _like(value: _Value, pattern: _Pattern) -> _Value:
    covers = pattern.covers

    def evaluate(get: Lookup) -> object:
        found = value(get)
        return covers(found) if isinstance(found, str) and len(found) <= pattern.longest else None

    return evaluate


class _Pattern:
    """A pattern of LIKE: its pieces between `%` are each found at the first place possible and never tried again, so
    that matching takes at most `sought` times the length of the text. `sought`: characters of the pieces that may be
    anywhere; `regexes`: pieces with `_`; `longest`: characters of a text that is looked at."""

    __slots__ = ("_first", "_last", "_middle", "_whole", "longest", "regexes", "sought")

    def __init__(self, pattern: str, escape: str | None, position: int) -> None:
        pieces: list[list[str | None]] = [[]]  # None: any character
        characters = iter(pattern)
        for c in characters:
            if c == escape:
                c = next(characters, "")
                if not c:
                    raise SelectorError("the pattern ends in its escape character", position)
                pieces[-1].append(c)
            elif c == "%":
                pieces.append([])
            else:
                pieces[-1].append(None if c == "_" else c)
        self._whole = len(pieces) == 1
        self._first, *middle, self._last = map(_Piece, pieces if len(pieces) > 1 else (pieces[0], []))
        self._middle = [piece for piece in middle if piece.size]
        self.regexes = sum(None in piece for piece in pieces)
        self.sought = sum(piece.size for piece in self._middle)
        self.longest = MAX_LIKE

    def covers(self, text: str) -> bool:
        """Return whether it covers the text."""
        end = len(text) - self._last.size
        at = self._first.size
        if end < at or (self._whole and end != at):
            return False
        if not (self._first.begins(text, 0) and self._last.begins(text, end)):
            return False
        for piece in self._middle:
            at = piece.end_in(text, at, end)
            if at < 0:
                return False
        return True


class _Piece:
    """Part of a pattern without `%`."""

    __slots__ = ("_regex", "_text", "size")

    def __init__(self, characters: list[str | None]) -> None:
        self.size = len(characters)
        self._text = "".join(c or "" for c in characters)
        self._regex: re.Pattern[str] | None = None
        if None in characters:
            self._regex = re.compile("".join("." if c is None else re.escape(c) for c in characters), re.DOTALL)

    def begins(self, text: str, at: int) -> bool:
        """Return whether the text has it at this place."""
        return text.startswith(self._text, at) if self._regex is None else self._regex.match(text, at) is not None

    def end_in(self, text: str, start: int, end: int) -> int:
        """Return where its first place in this part of the text ends; -1 if there is no place."""
        if self._regex is None:
            at = text.find(self._text, start, end)
            return at + self.size if at >= 0 else -1
        match = self._regex.search(text, start, end)
        return match.end() if match is not None else -1


def _signed(value: _Value, negative: bool) -> _Value:
    def evaluate(get: Lookup) -> object:
        number = value(get)
        if isinstance(number, (int, float)) and _numeric(number):
            return -number if negative else number
        return None

    return evaluate


def _arithmetic(first: _Value, rest: list[tuple[Callable[[_Num, _Num], object], _Value]]) -> _Value:
    def evaluate(get: Lookup) -> object:
        result = first(get)
        for calculate, term in rest:
            value = term(get)
            if not (isinstance(result, (int, float)) and isinstance(value, (int, float))):
                return None
            if isinstance(result, bool) or isinstance(value, bool):
                return None
            try:
                result = calculate(result, value)
            except OverflowError:
                return None  # an integer too large for the floating point number it meets
            if isinstance(result, int) and abs(result) > LARGEST:
                return None  # a long product would take the longer the larger it gets
        return result

    return evaluate


def _divide(a: _Num, b: _Num) -> object:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            return None
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _remainder(a: _Num, b: _Num) -> object:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            return None
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    if b == 0 or math.isinf(a):
        return math.nan
    return math.fmod(a, b)


_ARITHMETIC: dict[str, Callable[[_Num, _Num], object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}
