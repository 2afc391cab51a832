"""docs/namespace.md says for every public name of JAX how we have it, and says what is so."""

import importlib.util
from pathlib import Path

import pytest

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


@pytest.mark.skipif(NEWER, reason="the page is of JAX 0.10")
def test_the_page_is_up_to_date(found):
    stale = "docs/namespace.md is stale: run python docs/make_namespace.py"
    assert make.PAGE.read_text() == make.page(found), stale
