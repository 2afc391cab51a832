"""The tools that read programs, over every row's program and programs of unusual shape.

What holds of a picture, of an estimate of memory, of `ir.equal` and of `find_nan` is said once and
asked of all: programs whose results are inputs, constants, numbers or one value twice, that have no
equations or no results, that hold others; and of each the program that returns all its values.
Nothing is compiled but a few small programs of the last test.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.inspect.cost import CostReport
from functrans.inspect.draw import of_equations, of_lines, size
from functrans.inspect.nans import Search
from functrans.inspect.observers import observe
from functrans.inspect.python_source.writer import to_python
from functrans.ir import Equation, Literal, Program, Var, equal
from functrans.ir.text import nested
from functrans.passes.pipeline import optimize
from functrans.primitives.base import PRIMITIVES, bytes_of
from functrans.trace import typeof
from tests.matrix.cases import CASES, random_bits
from tests.matrix.primitive_rows import apply
from tests.support.closeness import assert_close
from tests.support.wide import each

X, Y = np.array([0.5, 1.0, 2.0], "float32"), np.array([-1.0, 0.25, 3.0], "float32")
C = jax.numpy.arange(3.0)


def read_and_returned(x: Any, y: Any) -> Any:
    s = jnp.sin(x)
    return s, s * y, s


def branches(x: Any, y: Any) -> Any:
    given = [lambda a, b: (b, a), lambda a, b: (a, a), lambda a, b: (a, a * C.sum())]
    return lax.switch((jnp.sum(x) > 0).astype(int), given, x, y)


def scanned(x: Any, y: Any) -> Any:
    return lax.scan(lambda c, v: (c, (c, v, c + v, 1.0)), x, y)


def looped(x: Any, y: Any) -> Any:
    return lax.while_loop(lambda c: c[0][0] < 3, lambda c: (c[0] + 1, c[2], c[1]), (x, y, x))


def differentiated(x: Any, y: Any) -> Any:
    return ft.value_and_grad(lambda x: jnp.sum(ft.checkpoint(jnp.tanh)(x) * y), has_aux=False)(x)


ODD: dict[str, Callable[..., Any]] = {
    "no results": lambda x, y: (),
    "one input": lambda x, y: x,
    "the inputs": lambda x, y: (y, x),
    "an input twice": lambda x, y: (x, x),
    "an input and what is made of it": lambda x, y: (x, x + y),
    "a constant": lambda x, y: C,
    "a constant, read too": lambda x, y: (C * x, C, C),
    "numbers": lambda x, y: (1.0, True, 2),
    "a value twice": lambda x, y: [jnp.sin(x)] * 2,
    "a value read and returned": read_and_returned,
    "a value that nobody reads": lambda x, y: (jnp.sin(x), y)[1],
    "a call that gives what it is given": lambda x, y: ft.jit(lambda a, b: (b, a, C))(x, y),
    "a call without arguments": lambda x, y: (x, ft.jit(lambda: 3.0)()),
    "branches": branches,
    "a scan": scanned,
    "a loop": looped,
    "a gradient": differentiated,
    "a batch": lambda x, y: ft.vmap(lambda a: (y, a, branches(a, 2 * a)), out_axes=(None, 0, 0))(x),
}


# XLA draws the keys among operands
ROWS = [case for case in CASES if "keys" not in case.label and case not in random_bits.CASES]


def of_rows() -> Iterator[tuple[str, Program]]:
    for case in ROWS:
        with jax.enable_x64(case.dtypes[0][-2:] in ("64", "28")):
            operands = case.make(case.rng(), case.dtypes[0])
            yield str(case), ft.make_ir(apply(case))(*operands)


def all_of_it(program: Program) -> Program:
    """The program with all values as results, each of which another equation reads too."""
    made = [v for e in program.equations for v in e.outputs]
    again = [
        Equation(PRIMITIVES["neg"], (v,), (Var(v.type),), {})
        for v in [*program.inputs, *made]
        if v.type.dtype == np.float32
    ]
    return program.replace(
        equations=[*program.equations, *again],
        outputs=[*program.inputs, *program.constants, *made, *[e.outputs[0] for e in again]],
    )


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    found = {name: ft.make_ir(f)(X, Y) for name, f in ODD.items()} | dict(of_rows())
    whole = {f"all of {name}": all_of_it(program) for name, program in found.items()}
    for program in whole.values():
        ft.ir.check(program)
    return found | whole


# --- pictures -------------------------------------------------------------------------------------


def assert_drawn(program: Program, graph: dict[str, list[Any]], ids: list[int]) -> None:
    """A box for each input and constant that is used, each equation, each result, in this order;
    an arrow for each use."""
    read = [v for e in program.equations for v in e.inputs] + [*program.outputs]
    given = [v for v in (*program.inputs, *program.constants) if v in read]
    boxes = graph["nodes"]
    n, m = len(given), len(program.equations)
    assert len(boxes) == n + m + len(program.outputs)
    assert {b["kind"] for b in boxes[:n]} <= {"input", "constant"}
    assert {b["kind"] for b in boxes[n : n + m]} <= {"forward", "backward"}
    assert {b["kind"] for b in boxes[n + m :]} <= {"output"}
    place = {v: i for i, v in enumerate(given)}
    place |= {v: n + i for i, e in enumerate(program.equations) for v in e.outputs}
    uses = {(place[v], n + i) for i, e in enumerate(program.equations) for v in e.inputs if v in place}
    uses |= {(place[v], n + m + i) for i, v in enumerate(program.outputs) if v in place}
    number = {b["id"]: i for i, b in enumerate(boxes)}
    arrows = [(number[a["from"]], number[a["to"]]) for a in graph["edges"]]
    assert sorted(arrows) == sorted(uses)
    ids += number
    for e, box in zip(program.equations, boxes[n : n + m], strict=True):
        inside = nested(e.params) if e.primitive.holds_programs else []
        for (_, p), part in zip(inside, box["inside"], strict=True):
            assert_drawn(p, part["graph"], ids)


@pytest.mark.smoke
def test_pictures_have_a_box_for_each_value_that_is_used(programs: dict[str, Program]):
    def check(name: str) -> None:
        program = programs[name]
        graph = of_equations(program)
        ids: list[int] = []
        assert_drawn(program, graph, ids)
        assert len(ids) == len(set(ids))

    each(programs, check)


def test_pictures_by_lines_lead_to_the_results(programs: dict[str, Program]):
    def check(name: str) -> None:
        program = programs[name]
        graph = of_lines(program)
        kinds = Counter([b["kind"] for b in graph["nodes"]])
        assert (kinds["input"], kinds["output"]) == (bool(program.inputs), bool(program.outputs))
        assert (size(graph) > 0) == (len(program.equations) > 0)
        ends = {b["id"] for b in graph["nodes"] if b["kind"] == "output"}
        arrows = sum([a["to"] in ends for a in graph["edges"]])
        made = {*program.inputs, *[v for e in program.equations for v in e.outputs]}
        assert (arrows > 0) == (not made.isdisjoint(program.outputs))

    each(programs, check)


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_results_stand_in_memory_together(programs: dict[str, Program]):
    """With the arguments; where all values are results, no less and no more but for what loops
    need inside."""

    def check(name: str) -> None:
        program = programs[name]
        report = CostReport(program, {})
        made = {v for e in program.equations for v in e.outputs}
        made &= made if name.startswith("all of") else {*program.outputs}
        together = report.arguments + bytes_of(*[v.type for v in made])
        assert report.peak >= together
        if name.startswith("all of") and not program.children:
            assert report.peak == together
        assert all(e.peak <= report.peak for e in report.equations)

    each(programs, check)


# --- equality -------------------------------------------------------------------------------------


def mutants(program: Program) -> Iterator[tuple[str, Program]]:
    """Programs that differ from one in one place."""
    for i, _ in enumerate(program.outputs):
        outputs = [*program.outputs[:i], *program.outputs[i + 1 :]]
        yield f"without result {i}", program.replace(outputs=outputs)
    for i, e in enumerate(program.equations):
        rest = program.equations
        yield f"without equation {i}", program.replace(equations=rest[:i] + rest[i + 1 :])
        for name, value in e.params.items():
            for other in others(value):
                params = {**e.params, name: other}
                edited = Equation(e.primitive, e.inputs, e.outputs, params)
                changed = [*rest[:i], edited, *rest[i + 1 :]]
                yield f"{name} of equation {i}: {other}", program.replace(equations=changed)
        for j, v in enumerate(e.inputs):
            if v.__class__ is Literal:
                for x in others(v.value):
                    given = [*e.inputs[:j], Literal(x, v.type), *e.inputs[j + 1 :]]
                    edited = Equation(e.primitive, tuple(given), e.outputs, e.params)
                    changed = [*rest[:i], edited, *rest[i + 1 :]]
                    yield f"literal {j} of equation {i}: {x}", program.replace(equations=changed)


def others(value: Any) -> Iterator[Any]:
    """Values that are not the given one, but near to it."""
    if isinstance(value, Program):
        yield from [made for _, made in mutants(value)]
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield value[:i] + value[i + 1 :]
            yield from [(*value[:i], other, *value[i + 1 :]) for other in others(part)]
        yield (*value, *(value[-1:] or (0,)))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1
        yield float("nan")
        if value == 0 and isinstance(value, float):
            yield -value
    elif isinstance(value, str):
        yield value + "_"


@pytest.mark.smoke
def test_programs_that_differ_are_not_equal(programs: dict[str, Program]):
    """By a result, an equation, an item more or less of a parameter, a branch; at any depth."""
    count = 0

    def check(name: str) -> None:
        nonlocal count
        program = programs[name]
        for how, other in mutants(program):
            count += 1
            assert not equal(program, other), how
            assert not equal(other, program), how

    each([name for name in programs if not name.startswith("all of")], check)
    assert count > 3000


# --- not finite -----------------------------------------------------------------------------------


FILLED = (
    (),
    (0.0,),
    (3e38, -3e38),
    (np.inf,),
    (-np.inf,),
    (np.nan,),
    (np.nan, np.inf),
    (np.inf, np.nan, -np.inf),
)


def filled(operands: list[Any], which: tuple[int, ...], values: tuple[float, ...]) -> list[Any]:
    """Operands of which some hold values that are not finite, at places all over them."""
    made = [np.array(x) for x in operands]
    for i in which:
        x = made[i].reshape(-1)
        n = len(values)
        for k, value in enumerate(values):
            x[k * x.size // n : (k + 1) * x.size // n : 2] = value
    return made


def blamed(operands: list[Any], outs: list[Any]) -> str:
    """A NaN made of operands without one, or an infinity of finite operands."""
    given, made = (
        [np.asarray(x) for x in xs if jax.numpy.issubdtype(x.dtype, jax.numpy.inexact)]
        for xs in (operands, outs)
    )
    if any(np.isnan(y).any() for y in made):
        return "" if any(np.isnan(x).any() for x in given) else "NaN"
    wild = any(np.isinf(y).any() for y in made)
    return "infinity" if wild and all(np.isfinite(x).all() for x in given) else ""


@pytest.mark.smoke
def test_what_an_operation_is_blamed_for():
    """Of each row, with infinities, NaNs and both, or with what makes them, by the reference."""
    seen: Counter[str] = Counter()

    def check(case: Any) -> None:
        operands = case.make(case.rng(), "float32")
        open_to = [i for i, x in enumerate(operands) if np.asarray(x).dtype == np.float32]
        program = ft.make_ir(apply(case))(*operands)
        for which in {*[(i,) for i in open_to], tuple(open_to)}:
            for values in FILLED:
                given = filled(operands, which, values)
                try:
                    outs = ft.interpret(program, *given)
                except (np.linalg.LinAlgError, ValueError):
                    continue  # NumPy refuses what is not finite
                search = Search(infinities=True)
                with np.errstate(all="ignore"):
                    observe(program, given, lambda e, xs, outs=outs: outs, after=search.look)
                want = blamed(given, outs)
                assert [f.kind for f in search.findings] == ([want] if want else []), values
                seen[want] += 1

    flat = [case for case in ROWS if not PRIMITIVES[case.primitive].holds_programs]
    each([case for case in flat if "float32" in case.dtypes], check)
    assert min(seen["NaN"], seen["infinity"], seen[""]) > 100, seen


# --- programs that run ----------------------------------------------------------------------------


def test_tools_run_programs_of_unusual_shape():
    """Stepped through, compared, searched for NaNs, written as Python, optimized: the same results;
    and all compiled as one."""
    together = ft.jit(lambda x, y: {name: f(x, y) for name, f in ODD.items()})(X, Y)

    def check(name: str) -> None:
        program = ft.make_ir(ODD[name])(X, Y)
        want = ft.interpret(program, X, Y)
        assert_close(jax.tree.leaves(together[name]), want)
        stepped = ft.debug.step(program, commands=["n"] * 3, output=io.StringIO())(X, Y)
        assert_close(jax.tree.leaves(stepped), want)
        assert [typeof(y) for y in jax.tree.leaves(stepped)] == list(program.out_types)
        assert_close(ft.interpret(optimize(program), X, Y), want)
        assert ft.compare(program, compiled=False)(X, Y).ok
        report = ft.find_nan(program)(X, Y)
        assert (report.findings, report.results) == ([], [])
        scope: dict[str, Any] = {}
        exec(to_python(program, "written"), scope)
        assert_close(jax.tree.leaves(scope["written"](X, Y)), want)

    each(ODD, check)
