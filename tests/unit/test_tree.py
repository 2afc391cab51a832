"""The functions of pytrees: JAX's results where trees fit, our errors where they do not, and the
user's own errors as they are."""

import operator
import random
import traceback
from collections import OrderedDict, defaultdict, namedtuple

import jax
import numpy as np
import pytest

import functrans as ft
from functrans import errors, pytrees

pytestmark = pytest.mark.smoke

Point = namedtuple("Point", "x y")
X = np.ones(3, np.float32)


class Box:
    """A container with static data and without names for its parts."""

    def __init__(self, part, kind):
        self.part, self.kind = part, kind

    def __eq__(self, other):
        return isinstance(other, Box) and (self.part, self.kind) == (other.part, other.kind)

    __hash__ = None


jax.tree_util.register_pytree_node(Box, lambda b: ((b.part,), b.kind), lambda kind, parts: Box(*parts, kind))
TREES = [
    3, None, (), {}, [1, (2, None)], {"b": [1, 2], "a": {"c": 3}}, Point(1, [2]), Box((1, 2), "k"),
    OrderedDict(b=1, a=2), defaultdict(list, x=1), [[], [None], {}],
]  # fmt: skip


def is_list(x):
    return isinstance(x, list)


@pytest.mark.parametrize("x", TREES, ids=lambda x: type(x).__name__)
def test_where_trees_fit_the_results_are_those_of_jax(x):
    def longer(path, a):
        return len(path) > 0

    def results(t):
        return [
            t.map(lambda a: a + 1, x),
            t.map(lambda a, b: (a, b), x, x),
            t.map(repr, x, is_leaf=is_list),
            t.map_with_path(lambda p, a, b: (str(p), a, b), x, x),
            t.map_with_path(lambda p, a: (len(p), a), x, is_leaf=longer, is_leaf_takes_path=True),
            *[t.flatten(x), t.flatten(x, is_leaf=is_list), t.leaves(x, is_list), t.structure(x)],
            *[t.flatten_with_path(x), t.leaves_with_path(x, is_list)],
            t.unflatten(t.structure(x), iter(range(t.structure(x).num_leaves))),
            *[t.reduce(operator.add, x, 0), t.reduce_associative(operator.add, x, identity=0)],
            *[t.all(x), t.broadcast(7, x), t.broadcast(x, x)],
        ]

    def both(run):
        for ours, theirs in zip(run(ft.tree), run(jax.tree), strict=True):
            assert ours == theirs
            assert jax.tree.structure(ours) == jax.tree.structure(theirs)

    both(results)
    outer = jax.tree.structure(x)
    if outer.num_leaves:
        pairs = jax.tree.map(lambda a: {"p": a, "q": -a}, x)
        both(lambda t: [t.transpose(outer, inner, pairs) for inner in (None, t.structure({"p": 0, "q": 0}))])
    mine, theirs = ft.tree_util, jax.tree_util
    assert mine.treedef_children(outer) == theirs.treedef_children(outer)
    assert mine.treedef_tuple([outer]) == theirs.treedef_tuple([outer])
    assert mine.treedef_is_leaf(outer) == theirs.treedef_is_leaf(outer)
    if x != 3:
        for name in ("flatten_one_level", "flatten_one_level_with_keys"):
            (parts, data), (wanted, of_jax) = getattr(mine, name)(x), getattr(theirs, name)(x)
            assert (list(parts), data) == (list(wanted), of_jax)


# --- where trees differ ---------------------------------------------------------------------------


def some_tree(rng, depth):
    kinds = ["leaf", "leaf", "none"] + ["dict", "list", "tuple", "point", "box"] * (depth > 0)
    parts = [some_tree(rng, depth - 1) for _ in range(rng.choice([0, 1, 2]))] if depth else []
    match rng.choice(kinds):
        case "leaf":
            return 1
        case "none":
            return None
        case "dict":
            return dict(zip(rng.sample("ab", len(parts)), parts, strict=True))
        case "list":
            return parts
        case "tuple":
            return tuple(parts)
        case "point":
            return Point(*[*parts, 1, 1][:2])
        case "box":
            return Box(parts, rng.choice("kl"))


def one_down(tree, key):
    if isinstance(tree, Box):
        return tree.part
    if isinstance(key, jax.tree_util.GetAttrKey):
        return getattr(tree, key.name)
    return tree[getattr(key, "key", getattr(key, "idx", None))]


@pytest.mark.parametrize("is_leaf", [None, is_list, lambda x: x is None])
def test_the_place_is_one_and_found_exactly_where_jax_fails(is_leaf):
    """Against JAX's own comparison, over random trees: some that fit and some that do not."""
    rng = random.Random(0)
    fitting = 0
    for _ in range(600):
        x, y = some_tree(rng, 2), some_tree(rng, 2)
        try:
            jax.tree.map(lambda a, b: None, x, y, is_leaf=is_leaf)
            fits = True
        except ValueError:
            fits = False
        stop = None if is_leaf is None else lambda path, part: is_leaf(part)
        found = pytrees.where_differing(x, y, stop)
        assert (found is None) == fits
        fitting += fits
        if fits:
            continue
        path, a, b = found
        for part, tree in ((a, x), (b, y)):
            for key in path:
                tree = one_down(tree, key)
            assert tree is part
        with pytest.raises(errors.TreeMismatch) as told:
            ft.tree.map(lambda a, b: None, x, y, is_leaf=is_leaf)
        where = f"at {jax.tree_util.keystr(path)}:" if path else "at the root:"
        assert where in str(told.value)
    assert 120 < fitting < 480


def test_static_data_and_named_parts_are_told_apart():
    with pytest.raises(errors.TreeMismatch, match="a Box with different static data"):
        ft.tree.map(operator.add, [Box(1, "k")], [Box(1, "l")])
    with pytest.raises(
        errors.TreeMismatch, match=r"at \[0\]\.y: a list of length 1 in tree 1, of length 2 in"
    ):
        ft.tree.map(operator.add, [Point(1, [2])], [Point(1, [2, 3])])
    many = {f"layer{i:03}": i for i in range(200)}
    with pytest.raises(errors.TreeMismatch) as told:
        ft.tree.map(operator.add, many, {"w": many})
    assert "only tree 2 has ['w']" in str(told.value)
    assert max(len(line) for line in str(told.value).split("\n")) < 180


# --- errors of the user's own ---------------------------------------------------------------------


def failing(*_):
    raise ValueError("mine")


class Picky:
    """A container that cannot be built of everything."""

    def __init__(self, part):
        if not isinstance(part, (int, float)):
            raise TypeError("mine")
        self.part = part


jax.tree_util.register_pytree_node(Picky, lambda p: ((p.part,), None), lambda _, p: Picky(*p))
OWN = {
    "a function": lambda t: t.map(failing, [1], [2]),
    "with a path": lambda t: t.map_with_path(failing, [1]),
    "of a reduction": lambda t: t.reduce(failing, [1, 2]),
    "of none of Python's": lambda t: t.map(int, ["x"]),
    "of an operator": lambda t: t.map(operator.add, [1, "a"], [2, []]),
    "the wrong number of arguments": lambda t: t.map(lambda x, y: x, [1]),
    "is_leaf": lambda t: t.map(operator.add, [1], [1, 2], is_leaf=failing),
    "is_leaf of none of Python's": lambda t: t.map(operator.add, ["a"], [1, 2], is_leaf=int),
    "leaves": lambda t: t.unflatten(t.structure([0]), (failing() for _ in range(1))),
    "leaves of none of Python's": lambda t: t.unflatten(t.structure([0]), map(int, "x")),
    "a container": lambda t: t.unflatten(t.structure(Picky(1)), ["x"]),
    "missing arguments": lambda t: t.map(),
    "unknown arguments": lambda t: t.map(int, [1], leaf=1),
}


@pytest.mark.parametrize("name", OWN)
def test_errors_of_the_user_pass(name, monkeypatch):
    monkeypatch.delenv("FUNCTRANS_TRACEBACK", raising=False)
    with pytest.raises((TypeError, ValueError)) as theirs:
        OWN[name](jax.tree)
    with pytest.raises((TypeError, ValueError)) as ours:
        OWN[name](ft.tree)
    assert ours.type is theirs.type
    assert str(ours.value) == str(theirs.value)
    assert ours.value.__cause__ is None
    files = {frame.filename for frame in traceback.extract_tb(ours.value.__traceback__)}
    assert files == {__file__}


def test_a_mismatch_inside_a_function_that_is_mapped_is_its_own():
    def inner(x):
        return ft.tree.map(operator.add, (x,), [x])

    with pytest.raises(errors.TreeMismatch, match="a tuple in tree 1, a list in tree 2"):
        ft.tree.map(inner, {"a": 1})


class Checked:
    """A class whose constructor takes arrays and axes only."""

    taken: type | tuple = (jax.Array, int)

    def __init__(self, x):
        assert isinstance(x, self.taken), x
        self.x = x


jax.tree_util.register_pytree_node(Checked, lambda c: ((c.x,), None), lambda _, parts: Checked(*parts))


def test_a_class_that_checks_its_arrays_is_built_of_arrays_only(monkeypatch):
    def step(c):
        return Checked(c.x + 1.0)

    one, lax = Checked(jax.numpy.arange(3.0)), ft.lax
    for axes in (0, (Checked(0),)):
        np.testing.assert_array_equal(ft.vmap(step, axes, Checked(0))(one).x, [1.0, 2.0, 3.0])
    monkeypatch.setattr(Checked, "taken", jax.Array)
    assert lax.fori_loop(0, 2, lambda _, c: step(c), one).x.sum() == 9.0
    assert lax.while_loop(lambda c: c.x.sum() < 5.0, step, one).x.sum() == 6.0
    assert lax.cond(True, step, step, one).x.sum() == 6.0
    last, each = lax.scan(lambda c, _: (step(c), c), one, None, length=2)
    assert (last.x.sum(), each.x.sum()) == (9.0, 9.0)
