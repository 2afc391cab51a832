"""`jax_debug_key_reuse`: keys that are used twice are found where JAX finds them."""

import contextlib

import jax
import jax.extend.core
import jax.numpy as J
import pytest

import functrans as ft
from tests.support.tables import TABLES, Row, rows
from tests.support.wide import each

ERROR = jax.errors.KeyReuseError
SECTIONS = {"in a jitted function": "m, r, k", "from call to call": "m, r, k, f"}
SCOPE = {"J": J}


@pytest.mark.parametrize(
    ("m", "r"),
    [
        pytest.param(jax, jax.random, marks=pytest.mark.sweep),  # what the table says of JAX
        pytest.param(ft, ft.random, marks=pytest.mark.rest),
    ],
    ids=["JAX", "ours"],
)
@pytest.mark.parametrize("section", SECTIONS)
def test_keys_that_are_used_twice(section, m, r):
    def check(row: Row) -> None:
        use = row.function(SECTIONS[section], SCOPE)

        def run(k):
            return use(m, r, k, m.jit(r.normal)) if "f" in SECTIONS[section] else inside(k)

        inside = m.jit(lambda k: use(m, r, k))
        found = False
        with jax.debug_key_reuse(True):
            try:
                run(r.key(0))
            except ERROR:
                found = True
        assert found == (row.fields[1] == "twice")
        if row.fields[0] == "twice" and m is ft:
            run(r.key(0))  # nothing is looked for

    each(rows(TABLES / "key_reuse.txt", section), check)


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_a_jaxpr_is_converted_again_when_the_check_is_switched(order):
    closed = jax.make_jaxpr(lambda k: jax.random.normal(k) + jax.random.uniform(k))(jax.random.key(0))
    f = jax.extend.core.jaxpr_as_fun(closed)
    for checked in order:
        fails = pytest.raises(ERROR) if checked else contextlib.nullcontext()
        with jax.debug_key_reuse(checked), fails:
            ft.jit(lambda k: f(k)[0])(jax.random.key(3))
