"""What is remembered: bounded, counted, emptied, and gone with the function that it is of."""

import gc
import threading
import weakref

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import caching
from functrans.caching import Cache, CachePerFunction, memo

pytestmark = pytest.mark.smoke


def row_of(name):
    (row,) = [row for row in caching.report() if row.name == name]
    return row


def test_what_is_used_stays_and_the_rest_goes():
    cache = Cache("test: values", 8)
    for i in range(1000):
        cache.keep(i, str(i))
        cache.keep("often", "kept")
        assert cache.get("often") == "kept"
        assert len(cache) <= 8
    assert cache.get(999) == "999"
    assert cache.get(0) is None
    row = row_of("test: values")
    assert (row.entries, row.limit) == (len(cache), 8)
    assert (row.hits, row.misses) == (1001, 1)
    assert row.evictions >= 990
    cache.clear()
    assert len(cache) == 0
    assert cache.get(999) is None


def test_the_first_value_stays():
    cache = Cache("test: first", 8)
    assert cache.keep("x", 1) == 1
    assert cache.keep("x", 2) == 1
    assert cache.replace("x", 2) == 2
    assert cache.get("x") == 2
    for i in range(100):
        cache.replace(i, str(i))
    assert len(cache) <= 8
    lasting = Cache("test: lasting", 8, lasting=True)
    lasting.keep("x", 1)
    caching.clear()
    assert (cache.get("x"), lasting.get("x")) == (None, 1)


def test_threads_share_a_cache():
    cache = Cache("test: threads", 32)
    failed = []

    def work(seed):
        try:
            for i in np.random.default_rng(seed).integers(0, 100, 5000):
                found = cache.get(int(i))
                assert found in (None, int(i))
                assert cache.keep(int(i), int(i)) == i
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(cache) <= 32 + 8  # each thread may be about to turn it


def test_what_is_kept_of_a_function_dies_with_it():
    per_function = CachePerFunction("test: per function", 8)

    def made():
        def f(): ...

        return f

    f, g = made(), made()
    value = np.zeros(3)
    per_function.of(f).keep("x", value)
    assert per_function.of(f).get("x") is value
    assert per_function.of(g).get("x") is None
    held = weakref.ref(value)
    del f, value
    gc.collect()
    assert held() is None
    assert row_of("test: per function").entries == 0


def test_what_is_derived_from_a_program_dies_with_it():
    program = ft.make_ir(jnp.sin)(1.0)
    made = []

    def derive(p, *key):
        made.append(key)
        return None if key == ("none",) else p.replace(name=str(key))

    assert memo(program, derive, 1, 2) is memo(program, derive, 1, 2)
    assert memo(program, derive, "none") is memo(program, derive, "none") is None
    assert made == [(1, 2), ("none",)]
    derived = weakref.ref(memo(program, derive, 1, 2))
    ft.clear_caches()
    assert derived() is None
    derived = weakref.ref(memo(program, derive, 1, 2))
    del program
    gc.collect()
    assert derived() is None


def test_what_is_derived_from_a_shared_program_stays_when_one_of_its_users_goes():
    user = ft.make_ir(ft.jit(lambda x: jnp.sin(x) * x))(1.0)
    (shared,) = user.equations[0].programs
    known = memo(shared, lambda p: p.replace(name="derived"))
    memo(user, lambda p: list(p.equations))
    del user
    gc.collect()
    assert known in shared._derived.values()


def big():
    return jnp.ones(1000) * 2


def in_jit(array):
    f = ft.jit(lambda x: x + array)
    f(array)
    return f


def in_vmap_of_jit(array):
    f = ft.jit(ft.vmap(ft.jit(lambda x: x * array[:3])))
    f(jnp.ones((2, 3)))
    return f


def in_custom_vjp(array):
    f = ft.custom_vjp(lambda x: x * array)
    f.defvjp(lambda x: (x * array, None), lambda _, ct: (ct * array,))
    ft.grad(lambda x: jnp.sum(f(x)))(array)
    ft.jit(ft.vmap(ft.grad(lambda x: jnp.sum(f(x)))))(jnp.ones((2, 1000)))
    return f


def in_from_jax(array):
    f = ft.interop.from_jax(lambda x: x * array)
    f(array)
    ft.grad(lambda x: jnp.sum(f(x)))(array)
    return f


def in_pure_callback(array):
    def host(x):
        return np.asarray(x) * np.asarray(array)

    kind = jax.ShapeDtypeStruct((1000,), "float32")
    f = ft.jit(lambda x: ft.pure_callback(host, kind, x))
    f(array)
    ft.pure_callback(host, kind, array)
    return f


USES = (in_jit, in_vmap_of_jit, in_custom_vjp, in_from_jax, in_pure_callback)


def test_functions_and_what_they_close_over_are_let_go():
    held = {}
    for use in USES:
        array = big()
        f = use(array)
        held[use.__name__] = weakref.ref(f), weakref.ref(array)
        del array, f
    gc.collect()
    gc.collect()
    assert not [name for name, refs in held.items() if any(ref() is not None for ref in refs)]
