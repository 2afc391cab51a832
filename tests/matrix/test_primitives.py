"""Every row of the primitive table: its value at all dtypes, un-jitted, its cost.

The rows of a primitive are one test: what XLA is to run of all of them is one program. The rules
(`test_primitive_derivatives.py`, `test_primitive_batching.py`) are checked at one dtype, mostly on
the reference interpreter, which compiles nothing.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
from functrans.backends import reference
from functrans.primitives.base import PRIMITIVES
from functrans.trace import typeof
from tests.matrix.cases import CASES
from tests.matrix.cases.case import Case
from tests.matrix.primitive_rows import (
    EVERY_DTYPE,
    SOME_DTYPES,
    Made,
    Results,
    Row,
    apply,
    by_primitive,
    compiled,
    expected,
    interpreted,
    precision,
    run_together,
)
from tests.support.closeness import assert_close
from tests.support.wide import each

# Their parameters are programs; they have tests of their own, here by name of the file.
CALLBACKS = ("debug_callback", "pure_callback", "io_callback")
COLLECTIVES = ("all_gather", "all_to_all", "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_scatter")
HIGHER_ORDER = dict.fromkeys(CALLBACKS, "test_callbacks.py") | {"jit": "test_jit.py"}
HIGHER_ORDER |= dict.fromkeys(COLLECTIVES, "test_collectives.py")
CUSTOM = ("custom_jvp_call", "custom_vjp_call", "custom_lin", "custom_vmap_call", "constant")
HIGHER_ORDER |= dict.fromkeys(CUSTOM, "test_custom_rules.py")
HIGHER_ORDER |= dict.fromkeys(("cond", "only_where", "scan", "while", "tangent_loop"), "test_control_flow.py")
HIGHER_ORDER |= dict.fromkeys(("checkpoint", "name"), "test_checkpoint.py")
HIGHER_ORDER["jax_call"] = "test_opaque.py"
HIGHER_ORDER |= {"sharding_constraint": "test_shard_map.py"}
HIGHER_ORDER |= dict.fromkeys(["one_kernel", "outlined"], "test_kernels.py")
PLATFORMS = ("platform_index", "rng_uniform")
HIGHER_ORDER |= dict.fromkeys(PLATFORMS, "test_lax_extras.py")
# whose compilation is long
GAMMA = ("igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "random_gamma_grad_a")
HIGHER_ORDER |= dict.fromkeys(GAMMA, "test_libraries.py") | {"random_gamma": "test_samplers.py"}
HIGHER_ORDER["custom_linear_solve"] = "test_solvers.py"


def test_every_primitive_has_a_row():
    assert {case.primitive for case in CASES} == set(PRIMITIVES) - set(HIGHER_ORDER)
    files = {path.name for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert set(HIGHER_ORDER.values()) <= files


def test_rows_have_names_of_their_own():
    names = [str(case) for case in CASES]
    assert sorted(set(names)) == sorted(names)


def run_by_both(case: Case) -> Callable[..., Results]:
    return compiled(apply(case), functools.partial(expected, case))


@pytest.mark.every(2)
@by_primitive(SOME_DTYPES)
def test_value(rows: Sequence[Row]):
    """XLA = reference = JAX, of the type that the type rule promised."""
    check_values(rows)


@pytest.mark.sweep
@by_primitive(EVERY_DTYPE)
def test_value_at_every_dtype(rows: Sequence[Row]):
    check_values(rows)


def check_values(rows: Sequence[Row]) -> None:
    def make(case: Case, dtype: str) -> Made:
        return run_by_both(case), case.make(case.rng(dtype), dtype)

    together = run_together(rows, make)

    def check(row: Row) -> None:
        case, dtype = row
        primitive = PRIMITIVES[case.primitive]
        with precision(case, dtype):
            function, operands = make(case, dtype)
            out, theirs = together[row] or function(*operands)
            types = primitive.result_types([typeof(x) for x in operands], case.params)
            for y, t in zip(out, types, strict=True):
                assert typeof(y) == t
            with np.errstate(all="ignore"):
                twin = reference.run_one(primitive, operands, case.params)
            assert_close(twin, out, case.close(dtype), "reference against XLA,")
            assert_close(out, theirs, case.close(dtype), "XLA against JAX,")

    each(rows, check)


@by_primitive([(case, case.dtypes[0]) for case in CASES])
def test_cost_and_eager(rows: Sequence[Row]):
    """Each row has a cost; the first of a primitive gives alone what it gives compiled."""

    def check(row: Row) -> None:
        case, dtype = row
        with precision(case, dtype):
            operands = case.make(case.rng(dtype), dtype)
            program = ft.make_ir(apply(case))(*operands)
            for eqn in program.equations:
                cost = eqn.primitive.cost(
                    [v.type for v in eqn.inputs], [v.type for v in eqn.outputs], **eqn.params
                )
                assert cost.flops >= 0
                assert cost.bytes >= 0
            if row == rows[0]:
                alone = apply(case)(*operands)
                assert list(map(typeof, alone)) == list(program.out_types)
                assert_close(alone, interpreted(program, operands), case.close(dtype))

    each(rows, check)
