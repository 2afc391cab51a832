"""Cases of primitives/: selection."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.matrix.cases.case import BOOL, COMPLEX, FLOATS, Case, fixed, normal
from tests.matrix.cases.elementwise import ANY, INTEGERS, SOME, A, within

SCALAR = fixed(1, np.int32)

CASES: list[Case] = [
    Case(
        "select_n",
        [fixed([[True, False, True], [False, False, True]], bool), normal(2, 3), normal(2, 3)],
        lax.select_n,
        {},
        ANY,
        (1, 2),
    ),
    Case(
        "select_n",
        [fixed(True, bool), normal(2, 3), normal(2, 3)],
        lax.select_n,
        {},
        SOME,
        (1, 2),
        {},
        "scalar",
    ),
    Case(
        "select_n",
        [fixed([[0, 1, 2], [3, 0, 1]], np.int32), *[normal(2, 3)] * 4],
        lax.select_n,
        {},
        SOME,
        (1, 2, 3, 4),
        {},
        "integers",
    ),
    Case(
        "select_n",
        [fixed([-1, 0, 2, 5], np.int32), *[normal(4)] * 3],
        lax.select_n,
        {},
        ("float32", "int32"),
        (),
        {},
        "out-of-range",
    ),
    Case(
        "select_n",
        [fixed([0, 1, 2, 200], np.uint8), *[normal(4)] * 3],
        lax.select_n,
        {},
        ("float32",),
        (1, 2),
        {},
        "unsigned",
    ),
    Case(
        "select_n",
        [fixed(2, np.int32), *[normal(2, 3)] * 3],
        lax.select_n,
        {},
        ("float32",),
        (1, 2, 3),
        {},
        "scalar-integer",
    ),
    Case(
        "select_n",
        [fixed([True, False], bool), normal(2)],
        lax.select_n,
        {},
        ("float32",),
        (),
        {},
        "one-case",
    ),
    Case(
        "clamp",
        [within(-1, -0.2, 2, 3), normal(2, 3), within(0.2, 1, 2, 3)],
        lax.clamp,
        {},
        (*FLOATS, *INTEGERS, *BOOL),
        (0, 1, 2),
    ),
    Case("clamp", [A, A, A], lax.clamp, {}, COMPLEX, (), {}, "complex"),
    Case(
        "clamp",
        [within(-1, -0.2), normal(2, 3), within(0.2, 1)],
        lax.clamp,
        {},
        ("float32", "bfloat16", "int32"),
        (1,),
        {},
        "scalars",
    ),
    Case(
        "clamp",
        [within(-1, -0.2), normal(2, 3), within(0.2, 1, 2, 3)],
        lax.clamp,
        {},
        ("float32", "float64"),
        (1, 2),
        {},
        "scalar-and-array",
    ),
    Case(
        "clamp",
        [fixed([1.0, np.nan, 2.0, 0.0]), fixed([np.nan, 1.0, 5.0, np.inf]), fixed([2.0, 3.0, 1.0, 4.0])],
        lax.clamp,
        {},
        FLOATS,
        (),
        {},
        "special",
    ),
    Case("stop_gradient", [normal(2, 3)], lax.stop_gradient, {}, SOME),
    Case("copy", [normal(2, 3)], jnp.array, {}, SOME, (0,)),
    Case(
        "optimization_barrier",
        [normal(2, 3), normal(4)],
        lambda *xs: lax.optimization_barrier(xs),
        {},
        SOME,
        (0, 1),
    ),
]
