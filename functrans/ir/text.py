"""Print programs. In: a Program. Out: readable text, which `parse` reads back.

    program loss (a: f32[3], b: f32[4,3]) with (c: f32[2] = [1.0, 2.0], d: f32[100] = @1) {
      e: f32[4] = dot_general["j,ij->i"] a b
      f: f32[4] = jit e {
        program layer (g: f32[4]) { h: f32[4] = mul g 2.0:f32[4]; return h }
      }
      return f
    }

`with` lists the constants: those of up to 8 elements are written out, a larger one is `@1`, its
index in `program.values`. A literal `2.0:f32[4]` is an array filled with one number; `~f32[]` is
weakly typed. Parameters with their default values are omitted. A nested program is preceded by its
parameter name (`body: program ...`, `branches.0: program ...`), unless that is `program`. One that
is used several times is written once, as `program layer $1 (...)`, and then referred to as `$1`. A
Python object, such as the rule of a custom_vjp, is written `<vjp rule of f>` and can be read back
in the same process while the object is alive.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import jax
import numpy as np

from functrans import runtime
from functrans.caching import Cache, cached, memoized
from functrans.ir.program import Equation, Literal, Program, Var, programs_among
from functrans.ir.source import history, near
from functrans.ir.types import ArrayType, dtype_class, dtype_name, is_key_dtype, is_numpy_dtype

WIDTH = 100
WRITTEN_OUT = 8  # constants up to this many elements are written out

Entry = tuple[str, Program]  # the label of a nested program, and the program


@runtime.answers("show")
def show(program: Program, sources: bool = False) -> str:
    """Return the text of a program.

    Arguments:
      program: any Program, well formed or not.
      sources: add to each equation the user's line and the transformations it was derived by.

    Returns:
      Text that `parse(text, program.values)` turns into an equal program.

    Example:
      >>> import functrans as ft
      >>> print(ft.ir.show(ft.ir.parse("program (x: f32[3]) { y: f32[3] = sin x; return y }")))
      program (a: f32[3]) {
        b: f32[3] = sin a
        return b
      }
    """
    return "\n".join(_Writer(program, sources).lines(program))


def unnested(first: Generator[Any, Any, Any], enter: Any) -> Iterator[Any]:
    """Run generators that yield items, or tuples: the arguments of a nested generator to run first,
    whose result is sent back. Uses a stack instead of recursion, so programs can be nested to any
    depth."""
    stack, result = [first], None
    while stack:
        try:
            item = stack[-1].send(result)
            result = None
        except StopIteration as done:
            result = done.value
            stack.pop()
            continue
        if item.__class__ is tuple:
            stack.append(enter(*item))
        else:
            yield item


class Names:
    """Names for variables: a to z, aa, ab, ..., assigned at first use."""

    def __init__(self, counter: Iterator[str] | None = None):
        self.counter: Iterator[str] = counter or letters()
        self.known: dict[Var, str] = {}

    def __call__(self, v: Var) -> str:
        name = self.known.get(v)
        if name is None:
            name = self.known[v] = next(self.counter)
        return name

    def typed(self, v: Var) -> str:
        return f"{self(v)}: {v.type}"

    def atom(self, v: Any) -> str:
        if v.__class__ is Literal:  # 2.0:f32[3]
            return f"{_number_of(v.value, v.type.dtype)}:{v.type}"
        return self(v)


@memoized
def names_of(program: Program) -> Names:
    """Return the variable names of a program and its nested programs, as in its text."""
    writer = _Writer(program)
    writer.lines(program)
    names = Names(writer.letters)
    for scope in reversed(writer.scopes):  # programs may share a variable: it has the name in the first
        names.known.update(scope.known)
    return names


def letters() -> Iterator[str]:
    """Yield a, b, ..., z, aa, ab, ..."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    stems = [""]
    while True:
        stems = [stem + letter for stem in stems for letter in alphabet]
        yield from (name for name in stems if name not in ("inf", "nan"))


class _Writer:
    """What the programs of one text share: names of variables, numbers of repeated programs."""

    def __init__(self, program: Program, sources: bool = False):
        self.sources = sources
        self.letters = letters()
        self.scopes: list[Names] = []  # of the programs that are written
        held = Counter([p for q in with_nested(program) for e in q.equations for p in e.programs])
        self.repeated = {p for p, times in held.items() if times > 1}
        self.number: dict[Program, int] = {}

    def lines(self, program: Program) -> list[str]:
        return list(unnested(self.program(program, "", ""), self.program))

    def program(self, program: Program, indent: str, label: str) -> Generator[Any, None, None]:
        """Yield the lines of a program; a short nested one takes one line."""
        if program in self.number:
            yield f"{indent}{label}${self.number[program]}"
            return
        names, tag = Names(self.letters), self._tag(program)
        self.scopes.append(names)
        calls = any(e.primitive.holds_programs for e in program.equations)
        if indent and not self.sources and len(program.equations) < 2 and not calls:
            head = _header(program, names, tag, None, indent + label)
            parts = [show_equation(e, names) for e in program.equations]
            line = f"{head} {'; '.join([*parts, _return(program, names)])} }}"
            if len(line) <= WIDTH:
                yield line
                return
        yield _header(program, names, tag, indent, indent + label)
        for eqn in program.equations:
            yield from self._equation(eqn, names, indent + "  ")
        yield f"{indent}  {_return(program, names)}"
        yield indent + "}"

    def _equation(self, eqn: Equation, names: Names, indent: str) -> Generator[Any, None, None]:
        line = indent + show_equation(eqn, names)
        comment = "  # " + provenance(eqn) if self.sources else ""
        inside = nested(eqn.params) if eqn.primitive.holds_programs else ()
        if not inside:
            yield line + comment
            return
        if all(program in self.number for _, program in inside):
            known = "; ".join([f"{label}${self.number[program]}" for label, program in inside])
            yield f"{line} {{ {known} }}{comment}"
            return
        yield f"{line} {{{comment}"
        for label, program in inside:
            yield program, indent + "  ", label
        yield indent + "}"

    def _tag(self, program: Program) -> str:
        if program not in self.repeated:
            return ""
        self.number[program] = len(self.number) + 1
        return f"${self.number[program]} "


def _header(program: Program, names: Names, tag: str, indent: str | None, before: str) -> str:
    """Return `program name (...) with (...) {`, wrapped if it is long and `indent` is given."""
    name = program.name + " " if program.name.isidentifier() else ""
    start = f"{before}program {name}{tag}("
    inputs = [names.typed(v) for v in program.inputs]
    constants = [
        f"{names.typed(v)} = {show_constant(v.type, x, i)}"
        for i, (v, x) in enumerate(zip(program.constants, program.values, strict=False))
    ]
    line = start + ", ".join(inputs) + ")"
    if constants:
        line += f" with ({', '.join(constants)})"
    if len(line) + 2 <= WIDTH or indent is None:
        return line + " {"
    text = start + _filled(inputs, indent) + ")"
    if constants:
        text += f" with ({_filled(constants, indent)})"
    return text + " {"


def _filled(items: Sequence[str], indent: str) -> str:
    """Join items, wrapped and indented by four more."""
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) + 2 > WIDTH:
            lines.append("")
        lines[-1] += (" " if lines[-1] else indent + "    ") + item + ","
    return "\n" + "\n".join(lines) + "\n" + indent if items else ""


def _return(program: Program, names: Names) -> str:
    return f"return {', '.join([names.atom(v) for v in program.outputs])}".rstrip()


def show_equation(eqn: Equation, names: Names) -> str:
    """Return `c: f32[3] = add a b`, without nested programs."""
    inputs = "".join([" " + names.atom(v) for v in eqn.inputs])
    outputs = ", ".join([names.typed(v) for v in eqn.outputs])
    arrow = " = " if outputs else ""
    return f"{outputs}{arrow}{eqn.primitive.name}{_params(eqn)}{inputs}"


def _params(eqn: Equation) -> str:
    if not eqn.params:
        return ""
    short, rest = eqn.primitive.short_params(eqn.params)
    usual = defaults(eqn.primitive)
    shown = [show_value(short)] if short else []
    for name, value in rest.items():
        text = "" if programs_among({name: value}) else show_value(value)
        if text and not (name in usual and text == show_value(usual[name])):
            shown.append(f"{name}={text}")
    return f"[{', '.join(shown)}]" if shown else ""


def with_nested(program: Program) -> list[Program]:
    """Return a program and all programs nested in it, each once, and before those nested in it."""
    found: dict[Program, None] = {}
    todo = [program]
    while todo:  # a stack instead of recursion: programs may be nested to any depth
        inside = [p for p in todo[-1].children if p not in found]
        todo += inside
        if not inside:
            found[todo.pop()] = None
    return list(found)[::-1]


def nested(params: dict[str, Any]) -> list[Entry]:
    """Return the programs among parameters, with their labels."""
    found = []
    for name, value in params.items():
        if value.__class__ is Program:
            found.append(("" if name == "program" else f"{name}: ", value))
        else:
            found += [(f"{name}.{i}: ", p) for i, p in enumerate(programs_among({name: value}))]
    return found


@cached("defaults of parameters", 1024)
def defaults(primitive: Any) -> dict[str, Any]:
    """Return the defaults of a primitive's parameters, as declared by its `abstract_eval`."""
    parameters = inspect.signature(primitive.abstract_eval).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def provenance(eqn: Equation) -> str:
    """Return the user's line and the transformations: `file.py:12 (loss), transpose of jvp of sin`."""
    where = near(eqn.source)
    steps, first = history(eqn)
    return f"{where}, {' '.join([*steps, first.primitive.name])}" if steps else where


# --- values ---------------------------------------------------------------------------------------


def show_value(value: Any) -> str:
    if value is None or value.__class__ in (bool, int):
        return repr(value)
    if value.__class__ is str:
        return json.dumps(value, ensure_ascii=False)
    if value.__class__ is tuple:
        inner = ", ".join([show_value(v) for v in value])
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if is_numpy_dtype(value):
        return dtype_name(np.dtype(value))
    if isinstance(value, ArrayType):
        return repr(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return repr(value if value.__class__ is bool else int(value))
    if isinstance(value, (float, complex)):
        return show_number(value)
    if hasattr(value, "itemsize") and is_key_dtype(value):
        return dtype_name(value)
    return show_object(value)


# Live Python objects -> their text, and the reverse.
_WRITTEN: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_OBJECTS: WeakValueDictionary[str, Any] = WeakValueDictionary()
_COUNTS = Cache("names of objects in texts", 4096, lasting=True)


def show_object(value: Any) -> str:
    """Return a Python object's text, `<vjp rule of f>`; the second of that name ends in ` #2>`."""
    name = getattr(value, "__qualname__", None) or repr(value)
    name = " ".join(name.replace("<", "").replace(">", "").split())
    try:
        if value not in _WRITTEN:
            count = _COUNTS.replace(name, (_COUNTS.get(name) or 0) + 1)
            text = f"<{name}>" if count == 1 else f"<{name} #{count}>"
            _WRITTEN[value], _OBJECTS[text] = text, value
        return _WRITTEN[value]
    except TypeError:  # it is not hashable or not weakly referenceable
        return f"<{name}>"


def object_shown(text: str) -> Any:
    """Return the object that this process printed as `text`; None if it is gone."""
    return _OBJECTS.get(text)


def show_number(value: Any) -> str:
    """Return the text of a Python number; a complex one without parentheses: `1.0-0.0j`."""
    if value.__class__ is not complex:
        return repr(value)
    imaginary = repr(value.imag)
    return f"{value.real!r}{'' if imaginary[0] == '-' else '+'}{imaginary}j"


def _number_of(value: Any, dtype: Any) -> str:
    if value == 0 or value != value or value.__class__ is complex:
        return _shortest(value, dtype)  # not cached: 0.0 equals -0.0, NaN does not equal itself
    return _text_of(value, value.__class__, dtype)


@cached("texts of numbers", 4096)
def _text_of(value: Any, kind: type, dtype: Any) -> str:
    return _shortest(value, dtype)


def _shortest(value: Any, dtype: Any) -> str:
    """Return the shortest decimal for a number of this dtype: `0.1` for float32(0.1)."""
    number = number_at(value, dtype)
    if number.__class__ is float and dtype_class(dtype) == "float":
        short = str(np.asarray(number).astype(dtype)[()])
        if "." not in short and "e" not in short and short.lstrip("-").isdigit():
            short += ".0"
        if show_number(number_at(float(short), dtype)) == repr(number):
            return short
    return show_number(number)


def number_at(value: Any, dtype: Any) -> Any:
    """Return a number cast to a dtype, as a Python number."""
    if dtype_class(dtype) in ("key", "float0"):
        return value
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype).item()


def is_concrete(value: Any) -> bool:
    """Return whether a value is an array or a number, not a tracer."""
    kinds = (jax.Array, np.ndarray, np.generic, int, float, complex)
    return isinstance(value, kinds) and not isinstance(value, jax.core.Tracer)


def show_constant(type: ArrayType, value: Any, i: int) -> str:
    """Return the text of a constant, or its index in `program.values`."""
    if not is_concrete(value) or type.size > WRITTEN_OUT or dtype_class(type.dtype) in ("key", "float0"):
        return f"@{i}"
    return _nested_list(np.asarray(value).tolist(), type.dtype)


def _nested_list(value: Any, dtype: Any) -> str:
    if value.__class__ is list:
        return f"[{', '.join([_nested_list(v, dtype) for v in value])}]"
    return _number_of(value, dtype)
