"""Functions of this library in a written file: their source, with what they read filled in.

A primitive's `reference` is NumPy code that reads attributes of the primitive, other functions and constants
of the library. In a copy these are written out, and annotations and branches that cannot be reached left out:

    def reference(self, x: Any, y: Any) -> Any:             def _shift_left(x, y):
        inside = (y >= 0) & (y < 8 * x.dtype.itemsize)          inside = (y >= 0) & (y < 8 * x.dtype.itemsize)
        if self.name == "shift_left":                ->         shifted = np.left_shift(x, ...)
            shifted = np.left_shift(x, ...)                     ...
        ...

Functions that it calls are copied too. So no operation is written twice.
"""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.caching import cached
from functrans.inspect.python_source.lift import NotLiftable, lift, plain
from functrans.ir.types import dtype_class


class Copies:
    """The functions of this library, and of users' operations, that a file holds.

    imports : the modules that they use
    array   : writes a large array into the file, and returns its expression
    texts   : their source, callees first
    """

    def __init__(self, imports: set[str], array: Callable[[np.ndarray], str]):
        self.imports: set[str] = imports
        self.array: Callable[[np.ndarray], str] = array
        self.texts: list[str] = []
        self._names: dict[Any, str] = {}  # of a function and what it reads -> its name

    def call(self, function: Any, args: Sequence[str], options: dict[str, Any]) -> str:
        """Return a call of a copy, with positional arguments as text and keyword arguments as values.

        Raises:
          NotLiftable: the function reads something that cannot be written.
        """
        called, source = self.name_of(function), definition(plain(function)[0])
        takes = source.args
        names = {a.arg for a in (*takes.args, *takes.kwonlyargs)}
        rest = takes.kwarg is not None and takes.kwarg.arg in _read(source)
        read = [f"{k}={self.lift(v)}" for k, v in options.items() if rest or k in names]
        return f"{called}({', '.join([*args, *read])})"

    def name_of(self, function: Any, name: str = "") -> str:
        """Return the name of a copy; write it on first use. That of a primitive's method is its name."""
        function, owner = plain(function)
        function = _IN_NUMPY.get(function, function)
        scope = inspect.getclosurevars(function).nonlocals
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        key = (function.__code__, *map(id, (*scope.values(), *owner, *defaults)))
        if key in self._names:
            return self._names[key]
        name, about = name or function.__name__, function.__doc__
        if owner and hasattr(owner[0], "name"):
            name, about = owner[0].name, type(owner[0]).__doc__
        base = f"_{name.strip('_<>')}"
        numbered = (f"{base}_{n}" if n > 1 else base for n in itertools.count(1))
        name = next(n for n in numbered if n not in self._names.values())
        self._names[key] = name  # a recursive function reads it
        made = self._copied(function, {**function.__globals__, **scope}, owner)
        if about:
            text = re.split(r"(?<=[^.]\.) |;", " ".join(about.partition("\n\n")[0].split()))[0]
            made.body.insert(0, ast.Expr(ast.Constant(text.rstrip(".") + ".")))
        made.name = name
        self.texts.append(ast.unparse(made))
        return name

    def _copied(self, function: Any, scope: dict[str, Any], owner: Sequence[Any]) -> ast.FunctionDef:
        made: Any = copy.deepcopy(definition(function))
        if isinstance(made, ast.Lambda):
            made = ast.FunctionDef("", made.args, [ast.Return(made.body)], [])
        parameters = made.args
        parameters.defaults = [self._expression(x) for x in function.__defaults__ or ()]
        given = function.__kwdefaults__ or {}
        parameters.kw_defaults = [
            self._expression(given[a.arg]) if a.arg in given else None for a in parameters.kwonlyargs
        ]
        scope.update(zip([a.arg for a in parameters.args], owner, strict=False))
        del parameters.args[: len(owner)]
        if parameters.kwarg is not None and parameters.kwarg.arg not in _read(made):
            parameters.kwarg = None
        made.decorator_list, made.type_params = [], []
        first = made.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            del made.body[0]
        filled: ast.FunctionDef = _FilledIn(self, scope).visit(made)
        return ast.fix_missing_locations(filled)

    def lift(self, value: Any, name: str = "") -> str:
        """Return the expression of a value, which has a name if it is a function."""
        return lift(
            value,
            self.imports,
            lambda x: self.array(x) if isinstance(x, np.ndarray) else self.name_of(x, name),
        )

    def _expression(self, value: Any) -> ast.expr:
        return ast.parse(self.lift(value), mode="eval").body


class _FilledIn(ast.NodeTransformer):
    """Writes out what a function reads besides the names that it and those around it bind."""

    def __init__(self, copies: Copies, scope: dict[str, Any]):
        self.copies, self.scope = copies, scope
        self.bound: frozenset[str] = frozenset()

    def visit_Attribute(self, node: ast.expr) -> ast.AST:
        names: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            names.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name) or root.id in self.bound:
            return super().generic_visit(node)
        if root.id in ("super", "__class__"):
            raise NotLiftable(root.id)
        if root.id not in self.scope:
            return super().generic_visit(node)
        name, value = root.id, self.scope[root.id]
        while True:
            try:
                made = self.copies.lift(value, name)
                break
            except NotLiftable:
                if not names:
                    raise
                name = names.pop()
                value = getattr(value, name)
        return ast.parse(".".join([made, *reversed(names)]), mode="eval").body

    visit_Name = visit_Attribute

    def _scope(self, node: ast.AST) -> ast.AST:
        outer, self.bound = self.bound, self.bound | _bound(node)
        made = self.generic_visit(node)
        self.bound = outer
        return made

    visit_Lambda = visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _scope

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._scope(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.Pass() if node.value is None else self.visit(ast.Assign([node.target], node.value))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        made: Any = super().generic_visit(node)
        if getattr(made, "body", None) == []:
            made.body = [ast.Pass()]
        return made

    # --- branches that cannot be reached

    def visit_If(self, node: ast.If) -> Any:
        holds = self._holds(node.test)
        if holds is None:
            return self.generic_visit(node)
        kept = ast.Module(node.body if holds else node.orelse, [])
        super().generic_visit(kept)
        return kept.body

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        holds = self._holds(node.test)
        return self.generic_visit(node) if holds is None else self.visit(node.body if holds else node.orelse)

    def _holds(self, test: ast.expr) -> bool | None:
        """Return whether two constants are equal, such as the name of the primitive and another one."""
        if not isinstance(test, ast.Compare) or [type(op) in (ast.Eq, ast.Is) for op in test.ops] != [True]:
            return None
        left, right = [self.visit(copy.deepcopy(x)) for x in (test.left, test.comparators[0])]
        known = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
        return left.value == right.value if known else None


def _read(source: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(source) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


_SCOPES = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _bound(scope: ast.AST) -> set[str]:
    """Return the names that a function or a comprehension binds, without those inside of it."""
    found: set[str] = set()
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        n = todo.pop()
        if isinstance(n, ast.arg):
            found.add(n.arg)
        elif isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            found.add(n.id)
        elif isinstance(n, ast.FunctionDef):
            found.add(n.name)
        if not isinstance(n, _SCOPES):
            todo += ast.iter_child_nodes(n)
    return found


def _dtype_class(dtype: Any) -> str:
    """Return 'bool', 'int', 'uint', 'float' or 'complex'."""
    name = np.dtype(dtype).name
    return next(kind for kind in ("bool", "uint", "int", "complex", "float") if kind in name)


# What is written in place of functions that call JAX.
_IN_NUMPY = {dtype_class.__wrapped__: _dtype_class}


# --- where a function is written ------------------------------------------------------------------


def _parsed(filename: str) -> ast.Module:
    linecache.checkcache(filename)  # the file may have been edited
    return _parsed_text("".join(linecache.getlines(filename)))


@cached("files of Python", 64)
def _parsed_text(text: str) -> ast.Module:
    return ast.parse(text)


def definition(function: Any) -> ast.FunctionDef | ast.Lambda:
    """Return the syntax tree of a function, found by the position of its code.

    Raises:
      InvalidArgument: its source cannot be found.
    """
    code = function.__code__
    first_line, places = code.co_firstlineno, {(p[0], p[2]) for p in code.co_positions()}
    for node in ast.walk(_parsed(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *[d.lineno for d in node.decorator_list]])
            if first == first_line:
                return node
        elif isinstance(node, ast.Lambda) and (code.co_name, first_line) == ("<lambda>", node.lineno):
            begins = (node.body.lineno, node.body.col_offset)
            if begins in places or _is_constant(node.body, code.co_consts, places):
                return node
    raise errors.InvalidArgument(
        f"to_python: the source of {function.__qualname__} cannot be read from {code.co_filename}, so it "
        "cannot be written into the file"
    )


def _is_constant(body: ast.expr, constants: tuple[Any, ...], places: set[Any]) -> bool:
    """Whether a lambda returns a constant, for whose code Python 3.12 records no place in the line."""
    if len(places) > 1:
        return False
    code = compile(ast.Expression(body), "<lambda>", "eval")
    return not code.co_names and repr(code.co_consts[-1:]) == repr(constants[-1:])
