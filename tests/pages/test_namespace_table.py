"""docs/namespace.md says for every public name of JAX how we have it, and says what is so."""

from __future__ import annotations

import importlib.util
import pkgutil
from pathlib import Path

import jax.scipy
import pytest

import functrans.numpy.fft
from tests.support.versions import NEWER

pytestmark = pytest.mark.smoke

_PATH = Path(__file__).parents[2] / "docs" / "make_namespace.py"
_spec = importlib.util.spec_from_file_location("make_namespace", _PATH)
assert _spec is not None
assert _spec.loader is not None
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


@pytest.fixture(scope="module")
def found():
    return make.survey()


def test_nothing_is_absent(found):
    absent = {f"{space}.{name}" for space, kinds in found.items() for name in kinds["absent"]}
    assert absent == set()


def test_every_public_name_of_jax_is_here():
    """Also of modules that are JAX's own, its primitives, and what it loads late."""
    lines, all_there = make.coverage()
    assert all_there, "\n".join(lines)
    assert len(lines) > 90
    assert {"experimental.checkify", "experimental.ode", "export", ""} <= set(make.spaces())


def test_a_name_that_is_lacking_is_counted(monkeypatch):
    make.covered("numpy.fft")  # a module keeps the names that were asked for
    monkeypatch.setattr(jax.numpy.fft, "newest", 1, raising=False)
    monkeypatch.setattr(functrans.numpy.fft, "__getattr__", lambda name: lacks(name))
    assert make.covered("numpy.fft") == (19, ["newest"])


def lacks(name):
    raise AttributeError(name)


@pytest.mark.skipif(NEWER, reason="the page is of JAX 0.10")
def test_the_page_is_up_to_date(found):
    stale = "docs/namespace.md is stale: run python docs/make_namespace.py"
    assert make.PAGE.read_text() == make.page(found), stale


def test_every_module_of_jax_scipy_is_surveyed():
    names = {
        module.name.removeprefix("jax.")
        for module in pkgutil.walk_packages(jax.scipy.__path__, "jax.scipy.")
        if not module.ispkg or module.name.endswith("stats")
    }
    assert names <= set(make.spaces())


def test_kinds_are_told_apart(found):
    assert {"sin", "einsum"} <= set(found["numpy"]["native"])
    assert {"pi", "float32"} <= set(found["numpy"]["JAX's own"])
    assert {"spence", "bernoulli"} <= set(found["scipy.special"]["imported"])
    assert {"pad", "unique", "polyfit"} <= set(found["numpy"]["imported"])
