"""Expressions of a reference function: computed if everything is known, else written out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.inspect.python_source.lift import (
    NotLiftable,
    NotStatic,
    Unknown,
    expression,
    holds_array,
    is_ours,
    is_unknown,
    parts,
    unknowns,
    variables,
)
from functrans.ir.types import ArrayType

_STRUCTURE = (tuple, list, slice, dict, zip, enumerate, reversed, len)  # of unknown elements, too
_ITERATORS = (zip, enumerate, reversed, map, range, tuple, list, np.ndindex)
_STEPS = 16  # most steps of a list comprehension over known values that is written out


class Expressions:
    """The variables of a function and what is known of them.

    file    : the Specializer, for calls of other functions
    pending : statements to be written before the current one
    """

    file: Any
    scope: dict[str, Any]
    env: dict[str, Any]

    def __init__(self, file: Any, scope: dict[str, Any], env: dict[str, Any]):
        self.file, self.scope, self.env = file, scope, env
        self.pending: list[ast.stmt] = []
        self.fixed: set[str] = set()  # variables that written loops and branches assign
        self.returned: list[Any] = []  # types of results, None if unknown

    # --- what is known

    def static(self, node: ast.expr) -> Any:
        """Return the value of an expression; raise NotStatic if it depends on an unknown."""
        node = _with_super(node)
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "<reference>", "eval")
        try:
            # This runs only this library's own code: part of a reference, with known values.
            return eval(code, {**self.scope, **self.env})
        except errors.FunctransError:
            raise
        except Exception:
            raise NotStatic from None

    def value(self, node: ast.expr) -> Any:
        """Return what is known of an expression: its value, a structure with unknowns in it, or an
        Unknown."""
        try:
            found = self.static(node)
        except NotStatic:
            return self._written(node)
        if holds_array(found) and not isinstance(node, ast.Name):
            return self._written(node)  # arrays are made in the file, and may be changed
        return found

    def lifted(self, node: ast.expr) -> ast.expr:
        """Return the expression with all known values filled in."""
        return self.lift(self.value(node), node)

    def lift(self, value: Any, source: ast.expr) -> ast.expr:
        """Return the expression of a value, which `source` computes."""
        try:
            return self.file.lift(value)
        except NotLiftable:
            again = self._written(source)
        try:
            return self.file.lift(again)
        except NotLiftable:
            raise errors.InvalidArgument(
                f"to_python: {ast.unparse(source)} in a reference implementation has no expression"
            ) from None

    def sequence(self, node: ast.expr) -> list[Any] | None:
        """Return the elements of an iterable, if they are known individually."""
        value = self.value(node)
        if is_unknown(value) or not isinstance(value, _ITERATORS):
            return None
        try:
            return list(value)
        except NotStatic:
            return None

    # --- what has to be written

    def _written(self, node: ast.expr) -> Any:
        special = getattr(self, f"of_{type(node).__name__}", None)
        if special is not None:
            return special(node)
        made = type(node)(**{f: self._field(v) for f, v in ast.iter_fields(node)})
        return Unknown(ast.copy_location(made, node))

    def _field(self, v: Any) -> Any:
        if isinstance(v, list):
            return [self._field(x) for x in v]
        return self.lifted(v) if isinstance(v, ast.expr) else v

    def of_Name(self, node: ast.Name) -> Any:
        value = self.env.get(node.id, self.scope.get(node.id))
        if is_unknown(value):
            return value
        raise errors.InvalidArgument(f"to_python: {node.id} in a reference implementation has no expression")

    def of_Tuple(self, node: ast.Tuple) -> Any:
        values = self._elements(node.elts)
        if any(is_unknown(v) and isinstance(v.node, ast.Starred) for v in values):  # how many?
            return Unknown(ast.Tuple([self.file.lift(v) for v in values], ast.Load()))
        return tuple(values)

    def of_List(self, node: ast.List) -> Any:
        values = self.of_Tuple(ast.Tuple(node.elts, ast.Load()))
        if is_unknown(values):
            return Unknown(ast.List(values.node.elts, ast.Load()))
        return list(values)

    def _elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for n in nodes:
            if not isinstance(n, ast.Starred):
                values.append(self.value(n))
                continue
            inner = self.sequence(n.value)
            if inner is None:
                values.append(Unknown(ast.Starred(self.lifted(n.value), ast.Load())))
            else:
                values += inner
        return values

    def of_IfExp(self, node: ast.IfExp) -> Any:
        try:
            chosen = node.body if self.static(node.test) else node.orelse
        except NotStatic:
            parts = [self.lifted(n) for n in (node.test, node.body, node.orelse)]
            return Unknown(ast.IfExp(*parts))
        return self.value(chosen)

    def of_BoolOp(self, node: ast.BoolOp) -> Any:
        kept = []
        for n in node.values:
            value = self.value(n)
            if is_unknown(value):
                kept.append(value.node)
            elif bool(value) == isinstance(node.op, ast.Or):
                return value
        return Unknown(kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept))

    def of_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if type(owner) in (tuple, list, dict):
            try:
                return owner[self.static(node.slice)]
            except NotStatic:
                pass
        return Unknown(ast.Subscript(self.lift(owner, node.value), self.index(node.slice), ast.Load()))

    def index(self, node: ast.expr) -> ast.expr:
        """Return the index between brackets, with slices as `a:b`."""
        if isinstance(node, ast.Slice):
            parts = [None if n is None else self.lifted(n) for n in (node.lower, node.upper, node.step)]
            return ast.Slice(*parts)
        if isinstance(node, ast.Tuple) and any(isinstance(n, ast.Slice) for n in node.elts):
            return ast.Tuple([self.index(n) for n in node.elts], ast.Load())
        value = self.value(node)
        if type(value) is tuple and any(type(v) is slice for v in value):
            return ast.Tuple([self._slice(v) for v in value], ast.Load())
        return self._slice(value) if type(value) is slice else self.lift(value, node)

    def _slice(self, value: Any) -> ast.expr:
        if type(value) is not slice:
            return self.file.lift(value)
        return ast.Slice(*[None if v is None else self.file.lift(v) for v in parts(value)])

    def of_ListComp(self, node: ast.ListComp) -> Any:
        """If only some elements are known, write the comprehension element by element."""
        one = node.generators[0]
        values = self.sequence(one.iter) if len(node.generators) == 1 and not one.ifs else None
        if values is None or (not unknowns(values) and len(values) > _STEPS):
            return self._comprehension(node)
        found = []
        for v in values:
            inner = self.inside(_bound(one.target, v))
            found.append(inner.value(node.elt))
            self.pending += inner.pending
        return found

    def _comprehension(self, node: Any) -> Any:
        generators, inner = [], self
        for g in node.generators:
            source = inner.lifted(g.iter)
            names = [n.id for n in ast.walk(g.target) if isinstance(n, ast.Name)]
            inner = inner.inside(variables(names))
            tests = [inner.lifted(t) for t in g.ifs]
            generators.append(ast.comprehension(g.target, source, tests, 0))
        return Unknown(type(node)(elt=inner.lifted(node.elt), generators=generators))

    of_GeneratorExp: Callable[..., Any] = _comprehension
    of_SetComp: Callable[..., Any] = _comprehension

    def of_Lambda(self, node: ast.Lambda) -> Any:
        names = [a.arg for a in node.args.args]
        inner = self.inside(variables(names))
        return Unknown(ast.Lambda(node.args, inner.lifted(node.body)))

    def inside(self, names: dict[str, Any]) -> Any:
        """Return the same with additional names bound."""
        return type(self)(self.file, self.scope, {**self.env, **names})

    # --- calls

    def of_Call(self, node: ast.Call) -> Any:
        node = _with_super(node)
        try:
            function = self.static(node.func)
        except NotStatic:
            function = self.value(node.func)
        if holds_array(getattr(function, "__self__", None)):  # a method of an array
            function = self._written(node.func)
        args = self._elements(node.args)
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            value = self.value(k.value)
            kwargs |= {k.arg: value} if k.arg else value
        return self._called(node, function, args, kwargs)

    def _called(self, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if any(function is f for f in _STRUCTURE) and (function is slice or not any(map(is_unknown, args))):
            return function(*args, **kwargs)
        if not is_unknown(function) and is_ours(function):
            return self.file.call(function, args, kwargs)
        owner = getattr(function, "__self__", None)
        if type(owner) in (list, dict) and isinstance(node.func, ast.Attribute):
            if not unknowns(args) and not kwargs:
                return function(*args)
            if isinstance(node.func.value, ast.Name):  # a list that is used later
                return self._changed(node.func, function, args)
        sources = node.args if len(node.args) == len(args) else [node.func] * len(args)
        lifted = [self.lift(a, n) for a, n in zip(args, sources, strict=True)]
        keywords = [ast.keyword(k, self.lift(v, node)) for k, v in kwargs.items()]
        made = ast.Call(self.lift(function, node.func), lifted, keywords)
        return Unknown(made, self._type_of_cast(node.func, args))

    def _type_of_cast(self, function: ast.expr, args: list[Any]) -> ArrayType | None:
        """Return the type of `x.astype(dtype)`, if those of x and the dtype are known."""
        if not isinstance(function, ast.Attribute) or function.attr != "astype":
            return None
        x = self.value(function.value)
        if not is_unknown(x) or x.known_type is None or unknowns(args):
            return None
        return x.known_type.update(dtype=np.dtype(args[0]))

    def _changed(self, target: ast.Attribute, function: Any, args: list[Any]) -> Any:
        if target.attr == "append":
            function(*args)
            return None
        self.materialize(target.value.id)  # type: ignore[attr-defined]
        made = ast.Attribute(self.lifted(target.value), target.attr, ast.Load())
        return Unknown(ast.Call(made, [self.file.lift(a) for a in args], []))


def _bound(target: ast.expr, value: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    assert isinstance(target, ast.Tuple)
    made: dict[str, Any] = {}
    for t, v in zip(target.elts, value, strict=True):
        made |= _bound(t, v)
    return made


def _with_super(node: Any) -> Any:
    """Return `super()` with the arguments that Python fills in inside a method."""
    if not any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(node)):
        return node
    return _Super().visit(expression(ast.unparse(node)))


class _Super(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            names = [ast.Name(n, ast.Load()) for n in ("__class__", "self")]
            return ast.Call(node.func, names, [])  # type: ignore[arg-type]
        return node
