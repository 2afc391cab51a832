"""Cases of the incomplete functions in primitives/elementwise/special.py. Those of gamma, which
share a class with the beta function, compile for long: test_libraries.py has their rows."""

from jax import lax

from tests.matrix.cases.case import Case, uniform

SOME = ("float32", "bfloat16", "float64")
# XLA's algorithms stop at a few units in the last place of their own dtype, and so does what is
# computed of them; in half precision they run in float32 and the reference in float64.
CLOSE = {"float32": 5e-5, "bfloat16": 5e-2, "float64": 1e-11}

A = uniform(2, 3, low=0.5, high=3.0)

CASES = [
    Case(
        "regularized_incomplete_beta",
        [A, A, uniform(2, 3, low=0.1, high=0.9)],
        lax.betainc,
        {},
        SOME,
        (2,),
        CLOSE,
    ),
    Case("bessel_i0e", [uniform(2, 3, low=-12, high=12)], lax.bessel_i0e, {}, SOME, (), CLOSE),
    Case("bessel_i1e", [uniform(2, 3, low=-12, high=12)], lax.bessel_i1e, {}, SOME, (0,), CLOSE),
]
