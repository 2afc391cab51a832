"""The program: variables, literals, equations. Pure data, independent of the primitives.

Layout of a Program
    constants : values captured while tracing (concrete arrays, or tracers of an enclosing trace),
                each bound to a Var. A program nested in an equation has none: its captured values
                are operands of the equation.
    inputs    : Vars
    equations : in order of evaluation; each Var is assigned once
    outputs   : Vars or Literals
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax import tree_util

from functrans import runtime
from functrans.caching import Derivable, memoized
from functrans.ir.source import Source
from functrans.ir.tracebacks import boundary
from functrans.ir.types import ArrayType
from functrans.records import NamedTuple


class Operations(dict[str, Any]):
    """All primitives by name. The modules of `primitives/` add theirs when they are imported.
    Iterating, or looking up a name that is missing, imports all of them."""

    def __missing__(self, name: str) -> Any:
        runtime.load("operations")
        if name in self:
            return self[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        runtime.load("operations")
        return super().__iter__()

    def __len__(self) -> int:
        runtime.load("operations")
        return super().__len__()

    # by way of the methods above, unlike those of dict
    get: Any = Mapping.get
    keys: Any = Mapping.keys
    values: Any = Mapping.values
    items: Any = Mapping.items


PRIMITIVES = Operations()


@dataclass(slots=True, eq=False, repr=False)
class Var:
    """A variable of a program. It gets a name only when it is printed."""

    type: ArrayType


@dataclass(slots=True, eq=False, repr=False)
class Literal:
    """An array filled with one number: `2.0:f32[3]`. It needs no equation and no memory."""

    value: bool | int | float | complex
    type: ArrayType

    def __repr__(self) -> str:
        return f"{self.value}:{self.type}"


Atom = Var | Literal


@dataclass(slots=True, eq=False, repr=False)
class Origin:
    """What an equation was derived from: `how` ("jvp of", ...) and the original equation."""

    how: str
    equation: Equation


@dataclass(slots=True, eq=False, repr=False)
class Equation:
    """`outputs = primitive[params] inputs`, with the user's line and the equation it was derived
    from.

    `source` is `(code object, instruction offset, named scope)` of the user's frame, see ir/source.py.
    """

    primitive: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Var, ...]
    params: dict[str, Any]
    source: Source | None = None
    origin: Origin | None = None

    @property
    def programs(self) -> list[Program]:
        """The programs among its parameters.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> f = lambda x: ft.lax.fori_loop(0, 3, lambda i, c: c * x, 1.0)
          >>> [len(program.equations) for program in ft.make_ir(f)(2.0).equations[0].programs]
          [2]
        """
        return programs_among(self.params) if self.primitive.holds_programs else []

    def __repr__(self) -> str:
        from_, to = (" ".join(str(v.type) for v in vs) for vs in (self.inputs, self.outputs))
        return f"<{to} = {self.primitive.name} {from_}>"


def programs_among(params: dict[str, Any]) -> list[Program]:
    """Return the programs in an equation's parameters."""
    found: list[Program] = []
    for value in params.values():
        if value.__class__ is Program:
            found.append(value)
        elif value.__class__ is tuple and value and value[0].__class__ is Program:
            found += value
    return found


class Marks(NamedTuple):
    """Facts about a program that follow from how it was made."""

    unchecked: bool = False  # it was parsed, and not checked yet
    pruned: bool = False  # it has no dead equations
    one_operation: bool = False  # it comes from the rule of a single operation
    settled: bool = False  # it is decided which of its loops are kernels
    uncontracted: bool = False  # its products are rounded by themselves (backends/uncontracted.py)
    dispatched: bool = False  # a loop with this step is not a kernel as a whole
    rewrites: Sequence[Any] = ()  # made by a pass: (primitive name, equations replaced)


_NO_MARKS = Marks()


class Program(Derivable):
    """A straight-line program over arrays; the parameters of an equation may hold nested programs.

    Programs compare by identity, so they can be parameters and cache keys; `ir.equal` compares
    structure. Results derived from a program (its jvp, its batched form, its executable) are stored
    on it: see `memo`. `arguments` maps its inputs to the arguments of the user's function, if
    known.
    """

    __slots__ = (
        "_children",
        "_in_types",
        "_out_types",
        "arguments",
        "constants",
        "equations",
        "inputs",
        "marks",
        "name",
        "outputs",
        "values",
    )

    def __init__(
        self,
        inputs: Iterable[Var],
        equations: Sequence[Equation],
        outputs: Iterable[Atom],
        constants: Iterable[Var] = (),
        values: Iterable[Any] = (),
        name: str = "",
    ):
        self.inputs: tuple[Var, ...] = tuple(inputs)
        self.equations: list[Equation] = list(equations)
        self.outputs: tuple[Atom, ...] = tuple(outputs)
        self.constants: tuple[Var, ...] = tuple(constants)
        self.values: tuple[Any, ...] = tuple(values)
        self.name: str = name
        self.marks: Marks = _NO_MARKS
        self._derived = None
        self._children: list[Program] | None = None
        self._in_types: tuple[ArrayType, ...] | None = None
        self._out_types: tuple[ArrayType, ...] | None = None
        self.arguments: Arguments | None = None

    def __repr__(self) -> str:
        return runtime.show(self)

    def _repr_html_(self) -> str:
        """Return the text with syntax colours, for notebooks."""
        return runtime.coloured(self)

    @boundary
    def draw(self, path: Any) -> Any:
        """Draw the computation graph into an `.svg` or `.html` file; see inspect/draw.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> import os, tempfile
          >>> with tempfile.TemporaryDirectory() as folder:
          ...     path = ft.make_ir(jnp.sin)(1.0).draw(f"{folder}/sin.html")
          ...     print(os.path.basename(path))
          sin.html
        """
        return runtime.draw(self, path)

    @property
    def children(self) -> list[Program]:
        """The programs nested in its equations, each once.

        Example:
          >>> import functrans as ft, functrans.numpy as jnp
          >>> f = lambda x: ft.lax.fori_loop(0, 3, lambda i, c: c * x, 1.0)
          >>> len(ft.make_ir(f)(2.0).children)
          1
        """
        found = self._children
        if found is None:
            holding = [e for e in self.equations if e.primitive.holds_programs]
            held = [p for e in holding for p in programs_among(e.params)]
            found = self._children = list(dict.fromkeys(held))
        return found

    @property
    def in_types(self) -> tuple[ArrayType, ...]:
        found = self._in_types  # read at each call of the program
        if found is None:
            found = self._in_types = tuple([v.type for v in self.inputs])
        return found

    @property
    def out_types(self) -> tuple[ArrayType, ...]:
        found = self._out_types
        if found is None:
            found = self._out_types = tuple([v.type for v in self.outputs])
        return found

    def mark(self, **known: Any) -> None:
        """Update its marks.

        Example:
          >>> import functrans as ft
          >>> program = ft.ir.parse("program (x: f32[3]) { y: f32[3] = sin x; return y }")
          >>> program.mark(pruned=True)  # a pass need not look for dead equations
          >>> program.marks.pruned
          True
        """
        self.marks = self.marks._replace(**known)

    def replace(self, **changes: Any) -> Program:
        """Return a copy with some fields changed and nothing derived. Inputs that are kept keep
        their names.

        Example:
          >>> import functrans as ft
          >>> program = ft.ir.parse("program (x: f32[3]) { y: f32[3] = sin x; return y }")
          >>> program.replace(equations=[], outputs=program.inputs)
          program (a: f32[3]) {
            return a
          }
        """
        fields = ("inputs", "equations", "outputs", "constants", "values", "name")
        made = Program(**{f: changes.get(f, getattr(self, f)) for f in fields})
        made.arguments = self.arguments
        return made


def prune(
    equations: Sequence[Equation], outputs: Iterable[Any], values: bool = False, effects: bool = True
) -> list[Equation]:
    """Return the equations that the outputs need or (`effects`) that have an effect. `values`: operands
    may be arrays, as in a linear map with its residuals."""
    needed = {v for v in outputs if v.__class__ is Var}  # the others may be arrays
    kept = []
    for eqn in reversed(equations):
        if needed.isdisjoint(eqn.outputs) and not (effects and eqn.primitive.has_effects(eqn.params)):
            continue
        kept.append(eqn)
        needed.update([v for v in eqn.inputs if v.__class__ is Var] if values else eqn.inputs)
    kept.reverse()
    return kept


def program_of(equations: Sequence[Equation], outputs: Iterable[Var], name: str = "") -> Program:
    """Return the program of these equations. Its inputs are the variables that they read and do not
    compute, in the order in which they read them."""
    computed = {v for e in equations for v in e.outputs}
    read = dict.fromkeys([v for e in equations for v in e.inputs if v.__class__ is Var])
    return Program([v for v in read if v not in computed], equations, outputs, name=name)


def renamed_all(values: Iterable[Any], known: dict[Any, Any]) -> list[Any]:
    """Return the values, replaced by those in `known`."""
    return [known.get(v, v) for v in values]


def renamed(e: Equation, known: dict[Any, Any]) -> Equation:
    """Return the equation with operands replaced; the same object if none is."""
    if known.keys().isdisjoint(e.inputs):
        return e
    return Equation(e.primitive, tuple(renamed_all(e.inputs, known)), e.outputs, e.params, e.source, e.origin)


def copied(equations: Sequence[Equation], names: dict[Any, Any]) -> list[Equation]:
    """Return copies of the equations with new result variables. Operands are replaced by `names`,
    to which the new results are added; operands not in it stay."""
    made = []
    for e in equations:
        outputs = tuple([Var(v.type) for v in e.outputs])
        inputs = tuple([names.get(v, v) for v in e.inputs])
        made.append(Equation(e.primitive, inputs, outputs, e.params, e.source, e.origin))
        names.update(zip(e.outputs, outputs, strict=True))
    return made


def results_by_age(program: Program) -> tuple[Program, list[int]]:
    """Return the program with its results in the order they are computed, and the new place of
    each.

    XLA inlines a function result by result. If the cotangent of a weight came after that of an
    activation, it would also be computed after it, and its operands would stay live until then."""
    outs = program.outputs
    age: dict[Any, int] = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
    order = sorted(range(len(outs)), key=lambda i: age.get(outs[i], -1))
    places = sorted(range(len(outs)), key=order.__getitem__)
    ordered = program.replace(outputs=[outs[i] for i in order])
    ordered.mark(settled=program.marks.settled)
    return ordered, places


def with_programs(program: Program, new: dict[Program, Program]) -> Program:
    """Return the program with nested programs replaced; the same object if none is."""
    if all([new.get(p, p) is p for p in program.children]):
        return program
    equations = program.equations.copy()
    for i, e in enumerate(equations):
        if e.primitive.holds_programs:
            params = replaced_programs(e.params, new)
            equations[i] = Equation(e.primitive, e.inputs, e.outputs, params, e.source, e.origin)
    return program.replace(equations=equations)


def replaced_programs(params: dict[str, Any], new: dict[Program, Program]) -> dict[str, Any]:
    """Return the parameters of an equation with nested programs replaced."""
    made = {}
    for name, value in params.items():
        if value.__class__ is Program:
            value = new.get(value, value)
        elif value.__class__ is tuple and value and value[0].__class__ is Program:
            value = tuple([new.get(p, p) for p in value])
        made[name] = value
    return made


def hoist_constants(program: Program) -> tuple[Program, tuple[Any, ...]]:
    """Return the program with its constants as leading inputs, and their values."""
    if not program.constants:
        return program, ()
    closed = program.replace(inputs=(*program.constants, *program.inputs), constants=(), values=())
    return closed, program.values


# --- names of inputs ------------------------------------------------------------------------------


def keep_names(made: Program, of: Program) -> Program:
    """Return `made` with the input names of `of`, whose inputs are its first ones."""
    if of.arguments is not None:
        made.arguments = of.arguments.moved(of.inputs, made.inputs)
    return made


@memoized
def argument_names(program: Program) -> dict[Var, str]:
    """Return the names of the inputs in the user's arguments, by variable. Empty if unknown, as for
    a parsed program.

    Example:
      >>> import functrans as ft
      >>> program = ft.make_ir(lambda params, x: params["w"] * x)({"w": 1.0}, 2.0)
      >>> list(argument_names(program).values())
      ["params['w']", 'x']
    """
    leaves = {} if program.arguments is None else program.arguments.leaves()
    return {v: leaves[v].name for v in program.inputs if v in leaves}


# --- how a program is called ----------------------------------------------------------------------
# The positions of its inputs in the user's arguments, `params['blocks'][0].w`, and of its outputs in
# the user's result. They are made of the tree definition of `(args, kwargs)` and the function's
# parameter names, which tracing has anyway, when a program is drawn or printed, never while tracing.
# Names belong to variables: a rewrite that keeps an input keeps its name, and one that drops or adds
# inputs need not update names.


class Parameters(NamedTuple):
    """The names of a function's parameters that are not static.

    positional : parameters that can be passed by position
    rest       : the variadic parameter, `*args`
    """

    positional: tuple[str, ...]
    rest: str = "args"


class Leaf(NamedTuple):
    """The position of one input: its parameter, and the key path inside that."""

    parameter: str
    keys: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.parameter + tree_util.keystr(self.keys)


@dataclass(slots=True, eq=False, repr=False)
class Arguments:
    """How a program is called; `argument_names` is computed from this.

    structure : the tree definition of `(args, kwargs)`
    inputs    : the variable of each leaf
    results   : the tree definition of the result; None if unknown
    """

    parameters: Parameters
    structure: Any
    inputs: Sequence[Any]
    results: Any

    def moved(self, before: Sequence[Any], after: Sequence[Any]) -> Arguments:
        """Return the arguments of a derived program, whose inputs `after` replace `before`."""
        now = dict(zip(before, after, strict=False))
        return Arguments(self.parameters, self.structure, [now.get(v, v) for v in self.inputs], None)

    def leaves(self) -> dict[Any, Leaf]:
        """Return the position of each input, by variable."""
        return {v: leaf for leaf, v in self._by_parameter()[1]}

    def given(self) -> list[str]:
        """Return the parameters of a call in order; `*rest` if there are further positional ones."""
        return self._by_parameter()[0]

    def _by_parameter(self) -> tuple[list[str], list[tuple[Leaf, Any]]]:
        # A tree definition gives its paths only through a tree. A class that cannot be unflattened
        # with arbitrary leaves gets no names.
        try:
            args, kwargs = tree_util.tree_unflatten(self.structure, self.inputs)
            n = len(self.parameters.positional)
            trees: dict[str, Any] = dict(zip(self.parameters.positional, args, strict=False))
            rest = {self.parameters.rest: args[n:]} if len(args) > n else {}
            found = [
                (Leaf(name, tuple(keys)), v)
                for name, x in (trees | rest | kwargs).items()
                for keys, v in tree_util.tree_flatten_with_path(x)[0]
            ]
        except Exception:
            return [], []
        if {v for _, v in found} != set(self.inputs):
            return [], []
        return [*trees, *[f"*{name}" for name in rest], *kwargs], found
