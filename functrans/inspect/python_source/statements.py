"""Statements of a reference function, in order: known ones are executed, the rest is written out.

    env   name -> value or Unknown: the function's variables at this point
    scope its other names: globals and the variables that it closes over

Before a written branch or loop (one that depends on an array), the variables assigned inside it are
written out; they are unknown from then on.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import errors
from functrans.inspect.python_source.expressions import Expressions
from functrans.inspect.python_source.lift import (
    NotLiftable,
    NotStatic,
    Unknown,
    holds_array,
    is_unknown,
    parts,
    unknowns,
    variables,
)

_UNROLLED = 4  # most steps of a loop over known values whose body has to be written


class Body(Expressions):
    """A function, or part of one, that is being specialized."""

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the remaining statements, up to one after which nothing is reached."""
        written: list[ast.stmt] = []
        for s in statements:
            outer, self.pending = self.pending, []
            made = getattr(self, f"do_{type(s).__name__}", self._unsupported)(s)
            written += [*self.pending, *made]
            self.pending = outer
            if _ends(written):
                break
        return written

    def _unsupported(self, s: ast.stmt) -> Any:
        raise errors.InvalidArgument(
            f"to_python cannot write this statement of a reference implementation: {ast.unparse(s)}"
        )

    # --- simple statements

    def do_Expr(self, s: ast.Expr) -> Any:
        if isinstance(s.value, ast.Constant):
            return []
        value = self.value(s.value)
        return [ast.Expr(value.node)] if is_unknown(value) else []

    def do_Return(self, s: ast.Return) -> Any:
        if s.value is None:
            return [ast.Return(None)]
        value = self.value(s.value)
        self.returned.append(value.known_type if is_unknown(value) else None)
        return [ast.Return(self.lift(value, s.value))]

    def do_Pass(self, s: ast.stmt) -> Any:
        return []

    def do_Break(self, s: ast.stmt) -> Any:
        return [s]

    do_Continue = do_Break

    def do_Assign(self, s: ast.Assign) -> Any:
        value, written = self.value(s.value), []
        if len(s.targets) > 1 and is_unknown(value):  # a = b = value
            names = [t.id for t in s.targets if isinstance(t, ast.Name)]
            written = self._bind(names[0], value, s.value)
            value = self.env[names[0]]
        for target in s.targets:
            written += self._assign(target, value, s.value)
        return written

    def do_AnnAssign(self, s: ast.AnnAssign) -> Any:
        return [] if s.value is None else self.do_Assign(ast.Assign([s.target], s.value))

    def do_AugAssign(self, s: ast.AugAssign) -> Any:
        if not isinstance(s.target, ast.Name):
            place: Any = self._place(s.target)
            return [ast.AugAssign(place, s.op, self.lifted(s.value))]
        now = ast.BinOp(ast.Name(s.target.id, ast.Load()), s.op, s.value)
        return self._assign(s.target, self.value(now), now)

    def _assign(self, target: ast.expr, value: Any, source: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Name):
            return self._bind(target.id, value, source)
        if isinstance(target, (ast.Subscript, ast.Attribute)):
            return self._put(target, value)
        assert isinstance(target, (ast.Tuple, ast.List))
        starred = any(isinstance(t, ast.Starred) for t in target.elts)
        if is_unknown(value) or starred or holds_array(value):
            return self._unpack(target, self.lift(value, source))
        values = list(value)
        if unknowns(values) and _crosses(target, values):
            made = self._unpack(target, self.lift(tuple(values), source))
            for t, v in zip(target.elts, values, strict=True):
                if is_unknown(v) and isinstance(t, ast.Name):
                    self.env[t.id].known_type = v.known_type
            return made
        parts = source.elts if isinstance(source, ast.Tuple) else [source] * len(values)
        each = zip(target.elts, values, parts, strict=True)
        return [s for t, v, part in each for s in self._assign(t, v, part)]

    def _unpack(self, target: ast.expr, node: ast.expr) -> list[ast.stmt]:
        self.env.update(variables(_names_in(target)))
        return [ast.Assign([target], node)]

    def _bind(self, name: str, value: Any, source: ast.expr) -> list[ast.stmt]:
        return self._bound_to(name, self._free_name(name), value, source)

    def _free_name(self, name: str) -> str:
        """Return the name for a variable's new value: a new one if the old value is still read
        under that name (by an element of a list, by another variable)."""
        if name in self.fixed:
            return name
        read = {i for k, v in self.env.items() if k != name for i in _names_of(v)}
        base, n = name, 1
        while name in read:
            n += 1
            name = f"{base}_{n}"
        return name

    def _bound_to(self, own: str, name: str, value: Any, source: ast.expr) -> list[ast.stmt]:
        here = ast.Name(name, ast.Load())
        if isinstance(value, np.ndarray) and not is_unknown(value):
            self.env[own] = Unknown(here, None)
            return [_store(name, self.lift(value, source))]
        if is_unknown(value):
            if isinstance(value.node, ast.Name):  # another name for it
                self.env[own] = value
                return []
            self.env[own] = Unknown(here, value.known_type)
            return [_store(name, value.node)]
        written: list[ast.stmt] = []
        if isinstance(value, (list, tuple)) and unknowns(value):
            value = type(value)(
                [self._part(v, self._free_name(f"{name}_{i}"), written) for i, v in enumerate(value)]
            )
        self.env[own] = value
        return written

    def _part(self, value: Any, name: str, written: list[ast.stmt]) -> Any:
        """Return an element of a known structure, computed once."""
        if not is_unknown(value) or isinstance(value.node, (ast.Name, ast.Constant)):
            return value
        written.append(_store(name, value.node))
        return Unknown(ast.Name(name, ast.Load()), value.known_type)

    def _put(self, target: ast.Subscript | ast.Attribute, value: Any) -> list[ast.stmt]:
        """`out[i] = value`, executed if everything in it is known."""
        if isinstance(target, ast.Subscript) and not unknowns(value):
            try:
                owner, index = self.static(target.value), self.static(target.slice)
            except NotStatic:
                owner = None
            if isinstance(owner, (list, dict)) and not unknowns(index):
                owner[index] = value
                return []
        if isinstance(target.value, ast.Name):
            self.materialize(target.value.id)
        return [ast.Assign([self._place(target)], self.lift(value, target))]

    def _place(self, target: ast.expr) -> ast.expr:
        """Return the target of an assignment with known values filled in."""
        if isinstance(target, ast.Subscript):
            return ast.Subscript(self.lifted(target.value), self.index(target.slice), ast.Store())
        assert isinstance(target, ast.Attribute)
        return ast.Attribute(self.lifted(target.value), target.attr, ast.Store())

    # --- compound statements

    def do_If(self, s: ast.If) -> Any:
        try:
            return self.block(s.body if self.static(s.test) else s.orelse)
        except NotStatic:
            test = self.lifted(s.test)
        self._forget(_assigned([*s.body, *s.orelse]))
        before = dict(self.env)
        body = self.block(s.body)
        self.env = dict(before)
        orelse = self.block(s.orelse)
        self.env: dict[str, Any] = before
        self.env.update(variables(_assigned([*s.body, *s.orelse])))
        return [ast.If(test, body or [ast.Pass()], orelse)]

    def do_For(self, s: ast.For) -> Any:
        values = self.sequence(s.iter)
        if values is not None and self._unrolls(s, values):
            written: list[ast.stmt] = []
            for v in values:
                written += [*self._assign(s.target, v, s.iter), *self.block(s.body)]
                if _ends(written):
                    break
            return written
        node = self.lifted(s.iter)
        self._forget([*_assigned(s.body), *_names_in(s.target)])
        self.env.update(variables(_names_in(s.target)))
        body = self.block(s.body)
        return [ast.For(s.target, node, body or [ast.Pass()], [])]

    def _unrolls(self, s: ast.For, values: Sequence[Any]) -> bool:
        if any(isinstance(n, (ast.Break, ast.Continue)) for n in ast.walk(s)):
            return False
        if len(values) <= _UNROLLED or unknowns(list(values)):
            return True
        read = [n.id for b in s.body for n in ast.walk(b) if isinstance(n, ast.Name)]
        return not any(unknowns(self.env.get(name)) for name in read)

    def do_While(self, s: ast.While) -> Any:
        written: list[ast.stmt] = []
        try:
            while self.static(s.test):
                written += self.block(s.body)
                if _ends(written):
                    break
            return written
        except NotStatic:
            pass
        self._forget(_assigned(s.body))
        test = self.lifted(s.test)
        body = self.block(s.body)
        return [*written, ast.While(test, body or [ast.Pass()], [])]

    def do_With(self, s: ast.With) -> Any:
        items = [ast.withitem(self.lifted(i.context_expr), i.optional_vars) for i in s.items]
        return [ast.With(items, self.block(s.body) or [ast.Pass()])]

    def do_FunctionDef(self, s: ast.FunctionDef) -> Any:
        a = s.args
        names = [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x]
        inner = type(self)(self.file, self.scope, {**self.env, **variables(names)})
        body = inner.block(s.body)
        plain = ast.arguments(
            [ast.arg(x.arg) for x in a.posonlyargs],
            [ast.arg(x.arg) for x in a.args],
            ast.arg(a.vararg.arg) if a.vararg else None,
            [ast.arg(x.arg) for x in a.kwonlyargs],
            a.kw_defaults,
            ast.arg(a.kwarg.arg) if a.kwarg else None,
            a.defaults,
        )
        made = ast.FunctionDef(s.name, plain, body or [ast.Pass()], [])
        made.type_params = []  # type: ignore[attr-defined]
        self.env[s.name] = Unknown(ast.Name(s.name, ast.Load()))
        return [made]

    # --- variables that the written code changes

    def _forget(self, names: Sequence[str]) -> None:
        self.fixed.update(names)
        for name in dict.fromkeys(names):
            if name in self.env:
                self.materialize(name)

    def materialize(self, name: str) -> None:
        """Write out a known variable, so that the written code can change it."""
        value: Any = self.env[name]
        if is_unknown(value) and isinstance(value.node, ast.Name) and value.node.id == name:
            value.known_type = None
            return
        try:
            self.pending.append(_store(name, self.file.lift(value)))
        except NotLiftable:
            raise errors.InvalidArgument(
                f"to_python: {name} = {value!r} in a reference implementation has no expression"
            ) from None
        self.env[name] = Unknown(ast.Name(name, ast.Load()))


def _store(name: str, node: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], node)


def _ends(statements: Sequence[ast.stmt]) -> bool:
    """Return whether what follows these statements is not reached."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    if isinstance(last, ast.With):
        return _ends(last.body)
    return isinstance(last, (ast.Return, ast.Break, ast.Continue))


def _names_in(target: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


def _names_of(value: Any) -> list[str]:
    """Return the written variables that a known structure reads."""
    if is_unknown(value):
        return _names_in(value.node)
    return [n for v in parts(value) for n in _names_of(v)]


def _crosses(target: ast.Tuple | ast.List, values: Sequence[Any]) -> bool:
    """Return whether assigning one by one would read a variable after it was overwritten."""
    stored = set(_names_in(target))
    read = [n for v in values if is_unknown(v) for n in _names_in(v.node)]
    return not stored.isdisjoint(read)


_CHANGE = ("append", "extend", "insert", "pop", "reverse", "sort", "update")


def _assigned(statements: Sequence[ast.stmt]) -> list[str]:
    """Return the variables that statements assign or change in place."""
    return [name for s in statements for n in ast.walk(s) if (name := _changed_by(n))]


def _changed_by(n: ast.AST) -> str:
    """Return the variable that a syntax node assigns or changes; empty if none."""
    if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
        return n.id
    into = isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)
    if into or (isinstance(n, ast.Attribute) and n.attr in _CHANGE):
        return n.value.id if isinstance(n.value, ast.Name) else ""  # type: ignore[attr-defined]
    return ""
