"""Parse programs from text: the inverse of `show`.

    program  := "program" [name] [$n] "(" typed,* ")" ["with" "(" constant,* ")"] "{" line;* "}"
    constant := typed "=" (@n | value)
    line     := [typed,* "="] operation ["[" parameter,* "]"] operand* ["{" nested;* "}"]
              | "return" operand,*
    typed    := name ":" type                    type    := f32[3] | ~f32[] | key<fry>[2] | ...
    operand  := name | number ":" type           nested  := [name ["." n] ":"] (program | $n)
    value    := None | True | 1 | 1.0-0.5j | "text" | dtype | type | (value, ...) | [value, ...]
              | <name> | <name #n>

`;` is equivalent to a newline. `#` starts a comment. Nothing is evaluated: a text can only refer to
primitives, and to Python objects that this process has printed.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, NoReturn

import numpy as np

from functrans import errors
from functrans.ir.program import PRIMITIVES, Equation, Literal, Program, Var
from functrans.ir.source import brief_with_type, here
from functrans.ir.text import defaults, number_at, object_shown, unnested
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType, canonical_dtype, dtype_class, dtype_named
from functrans.typing import PyTree

_DIGITS = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_NUMBER = rf"(?:True|False|[+-]?(?:(?:inf|nan)(?!\w)|{_DIGITS})(?:[+-](?:inf|nan|{_DIGITS})j)?)(?!\w)"
_TOKEN = rf"""(?P<space>[ \t\r]+|\#[^\n]*)
    |(?P<line>[;\n])
    |(?P<type>~?[A-Za-z_]\w*(?:<\w+>)?\[[\d,]*\])
    |(?P<number>{_NUMBER})
    |(?P<name>[A-Za-z_]\w*(?:<\w+>)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<place>@\d+)
    |(?P<tag>\$\d+)
    |(?P<object><[^<>\n]*>)
    |(?P<mark>[=,:(){{}}\[\].])
    |(?P<other>.)"""  # compiled by the first `parse`, since that takes a millisecond
_ANYTHING = "a name, a number, a type, a string or a bracket"


@boundary
def parse(text: str, constants: Sequence[PyTree] = ()) -> Program:
    """Return the program that a text describes.

    `ir.check` checks that it is well formed; functions that take the program do so first.

    Arguments:
      text: as `show` writes it.
      constants: the arrays for `@0`, `@1`, ... (`program.values` of the program shown).

    Returns:
      A Program whose equations have no source line.

    Raises:
      ParseError: names the line and column, and what was expected there.

    Example:
      >>> import functrans as ft
      >>> program = ft.ir.parse("program (x: f32[]) { y: f32[] = sin x; return y, 2.0:f32[] }")
      >>> program.out_types
      (f32[], f32[])
    """
    if not isinstance(text, str):
        raise errors.ParseError(f"parse takes the text of a program, got {brief_with_type(text)}, {here()}")
    made = _Parser(text, constants).parse()
    made.mark(unchecked=True)
    return made


class _Parser:
    """A recursive-descent parser; `at` is the index of the next token."""

    def __init__(self, text: str, constants: Sequence[Any]):
        self.text = text
        self.constants = constants
        self.kinds: list[str] = []
        self.words: list[str] = []
        self.places: list[int] = []
        self.at = 0
        self.types: dict[str, ArrayType] = {}
        self.programs: dict[str, Program] = {}
        self._tokenize()

    def _tokenize(self) -> None:
        depth = 0  # nesting of ( and [, inside which newlines are ignored
        for found in re.finditer(_TOKEN, self.text, re.VERBOSE):
            kind, word = found.lastgroup, found.group()
            if kind == "space" or (kind == "line" and depth):
                continue
            if kind == "mark":
                depth += (word in "([") - (word in ")]")
            self.kinds.append(kind or "other")
            self.words.append(word)
            self.places.append(found.start())
            if kind == "other":
                self.fail(_ANYTHING, len(self.words) - 1)
        self.kinds.append("end")
        self.words.append("")
        self.places.append(len(self.text.rstrip()))

    # --- programs and equations

    def parse(self) -> Program:
        def whole() -> Generator[Any, Program, None]:
            yield (yield ())

        self.skip_lines()
        made = next(unnested(whole(), self.program))
        self.skip_lines()
        if self.kinds[self.at] != "end":
            self.fail("the end of the text")
        return made

    def program(self) -> Generator[tuple[()], Program, Program]:
        """Parse a program; yield () at the start of each nested one and receive it."""
        self.mark("program")
        name = self.take("name") or ""
        tag = self.take("tag")
        scope: dict[str, Var] = {}
        inputs = self.inside("(", ")", lambda: self.define(scope, *self.typed()))
        constants: list[tuple[Var, Any]] = []
        if self.accepts("with"):
            constants = self.inside("(", ")", lambda: self.constant(scope))
        self.mark("{")
        self.skip_lines()
        equations = []
        while not self.accepts("return"):
            equation = self.equation(scope)
            if self.words[self.at] == "{":
                yield from self.block(equation.params)
            equations.append(equation)
            if self.kinds[self.at] != "line":
                self.fail("an operand or the end of the line")
            self.skip_lines()
        outputs: list[Any] = []
        while self.kinds[self.at] != "line" and self.words[self.at] != "}":
            if outputs:
                self.mark(",")
            outputs.append(self.operand(scope))
        self.skip_lines()
        self.mark("}")
        variables, values = [v for v, _ in constants], [x for _, x in constants]
        made = Program(inputs, equations, outputs, variables, values, name)
        if tag:
            self.programs[tag] = made
        return made

    def equation(self, scope: dict[str, Var]) -> Equation:
        outputs = []
        if self.words[self.at + 1 : self.at + 2] == [":"]:
            outputs.append(self.typed())
            while self.accepts(","):
                outputs.append(self.typed())
            self.mark("=")
        primitive = self.primitive()
        params = self.params(primitive) if self.words[self.at] == "[" else {}
        for name, value in defaults(primitive).items():
            params.setdefault(name, value)
        inputs = []
        while self.kinds[self.at] in ("name", "number"):
            inputs.append(self.operand(scope))
        variables = tuple([self.define(scope, *one) for one in outputs])
        return Equation(primitive, tuple(inputs), variables, params)

    def primitive(self) -> Any:
        name = self.words[self.at]
        found = PRIMITIVES.get(name)
        if found is None:
            near = difflib.get_close_matches(name, PRIMITIVES, 3)
            self.fail("an operation" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
        self.at += 1
        return found

    def operand(self, scope: dict[str, Var]) -> Any:
        at = self.at
        if self.kinds[at] == "number":
            value = self.number()
            self.mark(":")
            type = self.type()
            return Literal(self.fitting(value, type, at), type)
        found = scope.get(self.words[at])
        if found is None:
            self.fail("an assigned variable, or a literal such as 2.0:f32[3]")
        self.at += 1
        return found

    def block(self, params: dict[str, Any]) -> Generator[tuple[()], Program, None]:
        """Parse the nested programs of an equation and add them to its parameters."""
        self.mark("{")
        self.skip_lines()
        while not self.accepts("}"):
            name, several = "program", False
            if self.words[self.at + 1] in (":", "."):
                name = self.take("name") or self.fail("the name of a parameter")
                several, following = self.accepts("."), str(len(params.get(name, ())))
                if several and not self.accepts(following):
                    self.fail(following)
                self.mark(":")
            made = yield from self.nested()
            params[name] = (*params.get(name, ()), made) if several else made
            self.skip_lines()

    def nested(self) -> Generator[tuple[()], Program, Program]:
        tag = self.words[self.at]
        if self.kinds[self.at] != "tag":
            return (yield ())
        if tag not in self.programs:
            self.fail("the number of an earlier program")
        self.at += 1
        return self.programs[tag]

    def constant(self, scope: dict[str, Var]) -> tuple[Var, Any]:
        name, type, at = self.typed()
        self.mark("=")
        if self.kinds[self.at] == "place":
            value = self.given(type)
        else:
            start = self.at
            numbers = self.numbers(type)
            if len(numbers) != type.size:
                self.reject(f"{type} has {type.size} elements, got {len(numbers)}", start)
            value = np.array(numbers, type.dtype).reshape(type.shape)
            if type.weak_type and not type.shape:
                value = value.item()
        return self.define(scope, name, type, at), value

    def given(self, type: ArrayType) -> Any:
        """Return the array for `@n`."""
        place = self.words[self.at]
        i = int(place[1:])
        if i >= len(self.constants):
            self.reject(
                f"{place} stands for a constant that was not passed to parse(text, constants), "
                f"which got {len(self.constants)}. Pass program.values of the printed program."
            )
        value = self.constants[i]
        shape, dtype = np.shape(value), getattr(value, "dtype", type.dtype)
        if shape != type.shape or (dtype != type.dtype and canonical_dtype(dtype) != type.dtype):
            given = f"{dtype}{list(shape)}"
            self.reject(f"the constant for {place} must be {type}, got {given}")
        self.at += 1
        return value

    def numbers(self, type: ArrayType) -> list[Any]:
        """Parse a number or nested lists of numbers; return them flattened."""
        if self.words[self.at] == "[":
            parts = self.inside("[", "]", lambda: self.numbers(type))
            return [x for part in parts for x in part]
        at = self.at
        return [self.fitting(self.number(), type, at)]

    # --- names, types, values

    def typed(self) -> tuple[str, ArrayType, int]:
        at = self.at
        name = self.take("name") or self.fail("the name of a variable")
        self.mark(":")
        return name, self.type(), at

    def define(self, scope: dict[str, Var], name: str, type: ArrayType, at: int) -> Var:
        if name in scope:
            self.reject(f"{name} is assigned twice", at)
        made = scope[name] = Var(type)
        return made

    def type(self) -> ArrayType:
        word = self.words[self.at]
        found = self.types.get(word)
        if found is None:
            if self.kinds[self.at] != "type":
                self.fail("a type such as f32[3], ~f32[] or key<fry>[2]")
            name, _, rest = word.partition("[")
            shape = tuple([int(n) for n in rest[:-1].split(",") if n])
            dtype = self.dtype(name.lstrip("~"))
            found = self.types[word] = ArrayType(shape, dtype, name[0] == "~")
        self.at += 1
        return found

    def dtype(self, name: str) -> Any:
        try:
            found = dtype_named(name)
            dtype_class(found)
        except (TypeError, KeyError):
            self.fail("a dtype such as f32, bf16, i32, u8, bool, c64 or key<fry>")
        return found

    def params(self, primitive: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def one() -> None:
            if self.kinds[self.at] == "string":
                try:
                    found.update(primitive.read_params(self.value()))
                except ValueError as error:
                    self.reject(str(error), self.at - 1)
                return
            name = self.take("name")
            if name is None or name in found:
                self.fail("the name of a parameter" + (" only once" if name else ""))
            self.mark("=")
            found[name] = self.value()

        self.inside("[", "]", one)
        return found

    def value(self) -> Any:
        kind, word = self.kinds[self.at], self.words[self.at]
        if word == "(":
            return tuple(self.inside("(", ")", self.value))
        if kind == "type":
            return self.type()
        if kind == "number":
            return self.number()
        if kind == "object":
            return self.object()
        if kind not in ("name", "string"):
            self.fail("a value: a number, string, dtype, type, tuple, None, True or False")
        self.at += 1
        if kind == "string":
            return ast.literal_eval(word)
        return None if word == "None" else self.dtype(word)

    def object(self) -> Any:
        found = object_shown(self.words[self.at])
        if found is None:
            self.reject(
                f"{self.words[self.at]} is a Python object, which text cannot hold: it can be read "
                "back only in the process that wrote it, while that program exists. Make the "
                "program again from the function"
            )
        self.at += 1
        return found

    def number(self) -> Any:
        word = self.take("number") or self.fail("a number, True or False")
        if word in ("True", "False"):
            return word == "True"
        if word[-1] == "j":
            return complex(word)
        return int(word) if word.lstrip("+-").isdigit() else float(word)

    def fitting(self, value: Any, type: ArrayType, at: int) -> Any:
        """Cast a number to a dtype; fail if that changes its kind or the value of an integer."""
        allowed = {"bool": (bool,), "int": (int,), "uint": (int,), "complex": (int, float, complex)}
        kind = dtype_class(type.dtype)
        made = None
        if value.__class__ in allowed.get(kind, (int, float)):
            made = number_at(value, type.dtype)
        if made is None or (value.__class__ is int and kind in ("int", "uint") and made != value):
            self.fail(f"a number of dtype {type.dtype}", at)
        return made

    # --- tokens

    def take(self, kind: str) -> str | None:
        if self.kinds[self.at] != kind:
            return None
        self.at += 1
        return self.words[self.at - 1]

    def accepts(self, word: str) -> bool:
        """Return whether the next token is this one, and pass it if so."""
        found = self.words[self.at] == word
        self.at += found
        return found

    def mark(self, word: str) -> None:
        if not self.accepts(word):
            self.fail(f"`{word}`")

    def skip_lines(self) -> None:
        while self.kinds[self.at] == "line":
            self.at += 1

    def inside(self, opening: str, closing: str, item: Callable[[], Any]) -> list[Any]:
        """Parse a bracketed list separated by commas; a trailing comma is allowed."""
        self.mark(opening)
        found: list[Any] = []
        while not self.accepts(closing):
            found.append(item())
            if self.words[self.at] != closing:
                self.mark(",")
        return found

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        got = repr(self.words[at])
        if self.words[at] in ("", "\n"):
            got = f"the end of the {'line' if self.words[at] else 'text'}"
        self.reject(f"expected {expected}, got {got}", at)

    def reject(self, problem: str, at: int | None = None) -> NoReturn:
        place = self.places[self.at if at is None else at]
        line = self.text.count("\n", 0, place) + 1
        start = self.text.rfind("\n", 0, place) + 1
        stop = self.text.find("\n", place)
        shown = self.text[start : stop if stop >= 0 else None].replace("\t", " ")
        raise errors.ParseError(
            f"line {line}, column {place - start + 1}: {problem}\n    {shown}\n    {' ' * (place - start)}^"
        )
