"""Reference functions as source, specialized to what is known of an equation.

A primitive's `reference` is a method that uses parameters, dtypes and other functions of this
library. For one equation all of these are known, and what remains is NumPy:

    def reference(self, x, *, rounding_method):      def _round(x):
        even = np.rint(x)                                even = np.rint(x)
        if rounding_method == 1:                         half = np.abs(x - np.trunc(x)) == 0.5
            return ...astype(x.dtype)           ->       away = np.trunc(x) + np.sign(x)
        half = np.abs(x - np.trunc(x)) == 0.5            return np.where(half, away, even).astype(
        ...                                                  np.float32)

So no operation is written twice. This is partial evaluation, statement by statement (Jones, Gomard,
Sestoft: Partial Evaluation, 1993, chapter 4): what is known is computed, the rest is written out.
In: a function, its operands as `Unknown`s, its parameters. Out: the expression of the result, and
in `Specializer.texts` the functions that it calls.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import types
from collections.abc import Sequence
from typing import Any

from functrans import errors
from functrans.caching import cached
from functrans.inspect.python_source.lift import Unknown, expression, is_unknown, lift, parts, unknowns
from functrans.inspect.python_source.statements import Body
from functrans.ir.types import ArrayType

_INLINED = 14  # most nodes of a function's only expression that replaces its call


class Specializer:
    """The reference functions of one file.

    texts   : their source, callees first
    imports : the modules that they use
    """

    def __init__(self, imports: set[str]):
        self.imports = imports
        self.texts: list[str] = []
        self._made: dict[Any, tuple[ast.FunctionDef, ArrayType | None]] = {}
        self._names: dict[str, str] = {}  # name -> text

    def call(
        self, function: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str = "", about: str = ""
    ) -> Any:
        """Return the value of a call: what is known, else an `Unknown` with its expression."""
        function, args, kwargs = _plain(function, args, kwargs)
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        given: dict[str, ast.expr] = {}
        env = {n: _as_parameters(v, n, given) for n, v in bound.arguments.items()}
        key = (function.__code__, _described(_closure(function)), _described(env))
        if key not in self._made:
            name = "_" + (name or function.__name__).strip("_<>").removesuffix("_")
            self._made[key] = self._write(function, env, list(given), name, about)
        made, type = self._made[key]
        node = _only_expression(made, given)
        if node is None:
            called = ast.Name(self._named(made), ast.Load())
            node = ast.Call(called, list(given.values()), [])
        return Unknown(node, type)

    def _write(
        self, function: Any, env: dict[str, Any], params: list[str], name: str, about: str
    ) -> tuple[ast.FunctionDef, ArrayType | None]:
        source = definition(function)
        scope = {**function.__globals__, **_closure(function)}
        body = Body(self, scope, env)
        if isinstance(source, ast.Lambda):
            statements: list[ast.stmt] = body.block([ast.Return(source.body)])
        else:
            statements = body.block(source.body)
        about = " ".join((about or function.__doc__ or "").partition("\n\n")[0].split())
        if about:
            text = re.split(r"(?<=[^.]\.) |;", about)[0]
            statements = [ast.Expr(ast.Constant(text.rstrip(".") + ".")), *statements]
        made = ast.FunctionDef(
            name,
            ast.arguments([], [ast.arg(p) for p in params], None, [], [], None, []),
            statements or [ast.Pass()],
            [],
        )
        made.type_params = []  # type: ignore[attr-defined]
        types = body.returned
        return ast.fix_missing_locations(made), types[0] if len(set(types)) == 1 else None

    def _named(self, made: ast.FunctionDef) -> str:
        """Return the function's name, or a new one if it is taken; equal texts are kept once."""
        base, n = made.name, 1
        while True:
            text = ast.unparse(made)
            if self._names.get(made.name, text) == text:
                break
            n += 1
            made.name = f"{base}_{n}"
        if made.name not in self._names:
            self._names[made.name] = text
            self.texts.append(text)
        return made.name

    def lift(self, value: Any) -> ast.expr:
        return lift(value, self.imports)


def _plain(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return a Python function, and its arguments with those of a method or `partial`."""
    while True:
        if isinstance(function, functools.partial):
            args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
            function = function.func
        elif isinstance(function, types.MethodType):
            function, args = function.__func__, (function.__self__, *args)
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function, args, kwargs


def _closure(function: Any) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {n: c.cell_contents for n, c in zip(function.__code__.co_freevars, cells, strict=True)}


def _as_parameters(value: Any, name: str, given: dict[str, ast.expr]) -> Any:
    """Return the value with its unknowns as new parameters; add the arguments to `given`."""
    if is_unknown(value):
        given[name] = value.node
        return Unknown(ast.Name(name, ast.Load()), value.known_type)
    if not unknowns(value):
        return value
    if isinstance(value, dict):
        return {k: _as_parameters(v, f"{name}_{k}", given) for k, v in value.items()}
    made = [_as_parameters(v, f"{name}_{i}", given) for i, v in enumerate(parts(value))]
    return slice(*made) if isinstance(value, slice) else type(value)(made)


def _described(value: Any) -> Any:
    """Return a key of what a specialized function depends on."""
    if is_unknown(value):
        return (ast.dump(value.node), value.known_type)
    if isinstance(value, dict):
        return tuple([(k, _described(v)) for k, v in value.items()])
    if isinstance(value, (tuple, list)):
        return (type(value), *[_described(v) for v in value])
    if isinstance(value, (bool, int, float, complex, str, type(None), ArrayType)):
        return (type(value), repr(value))
    return id(value)


def _only_expression(made: ast.FunctionDef, given: dict[str, ast.expr]) -> ast.expr | None:
    """Return the only expression, if short, of a function, with the arguments substituted."""
    *before, last = made.body
    if any(not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in before):
        return None
    if not isinstance(last, ast.Return) or last.value is None:
        return None
    nodes = [n for n in ast.walk(last.value) if not isinstance(n, (ast.expr_context, ast.operator))]
    if len(nodes) > _INLINED or any(isinstance(n, (ast.Lambda, ast.comprehension)) for n in nodes):
        return None
    uses = [n.id for n in nodes if isinstance(n, ast.Name)]
    for name, argument in given.items():
        if uses.count(name) > 1 and not isinstance(argument, (ast.Name, ast.Constant)):
            return None
    return _Substitute(given).visit(expression(ast.unparse(last.value)))


class _Substitute(ast.NodeTransformer):
    def __init__(self, given: dict[str, ast.expr]):
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.given.get(node.id, node)


# --- where a function is written ------------------------------------------------------------------


@cached("files of Python", 64)
def _parsed(filename: str) -> ast.Module:
    with open(filename, encoding="utf-8") as file:
        return ast.parse(file.read())


def definition(function: Any) -> ast.FunctionDef | ast.Lambda:
    """Return the syntax tree of a function, found by the position of its code.

    Raises:
      InvalidArgument: its file cannot be read.
    """
    code = function.__code__
    try:
        tree = _parsed(code.co_filename)
    except OSError:
        raise errors.InvalidArgument(
            f"to_python: the source of {function.__qualname__} cannot be read from "
            f"{code.co_filename}, so it cannot be written into the file"
        ) from None
    places = {(p[0], p[2]) for p in code.co_positions()}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
            if first == code.co_firstlineno:
                return node
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            begins = (node.body.lineno, node.body.col_offset)
            if node.lineno == code.co_firstlineno and begins in places:
                return node
    raise errors.InvalidArgument(f"to_python: {function.__qualname__} is not in {code.co_filename}")
