"""Misuses of transformations: derivatives, vmap, control flow, jit, random keys."""

from functools import partial

from functrans import errors
from tests.pages.misuse_table import M, X, misuse

# --- grad and its relatives -----------------------------------------------------------------------


@misuse(errors.NonScalarLoss, "f32[3]", "jnp.sum", "jacrev")
def gradient_of_a_vector(m, jnp):
    m.grad(lambda x: x**2)(X)  # <-


@misuse(errors.NonScalarLoss, "tuple", "has_aux=True")
def gradient_of_a_loss_and_metrics(m, jnp):
    m.grad(lambda x: (x.sum(), {"mean": x.mean()}))(X)  # <-


@misuse(errors.NonDifferentiable, "i32[]", "astype(float)", "allow_int=True")
def gradient_with_respect_to_an_integer(m, jnp):
    m.grad(lambda x: x**2)(3)  # <-


@misuse(errors.MissingArgument, "argnums=1", "1 positional")
def argnums_beyond_the_arguments(m, jnp):
    m.grad(lambda x, y=1.0: x * y, argnums=1)(2.0)  # <-


@misuse(errors.InvalidArgument, "cotangent", "f32[3]", "f32[]")
def a_cotangent_of_another_shape(m, jnp):
    _, pullback = m.vjp(jnp.sin, X)
    pullback(1.0)  # <-


@misuse(errors.RuleMismatch, "bwd", "2", "1")
def a_bwd_rule_with_too_few_cotangents(m, jnp):
    @m.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, g: (g * res[1],))
    m.grad(f)(1.0, 2.0)


@misuse(errors.RuleMismatch, "fwd", "pair")
def a_fwd_rule_without_residuals(m, jnp):
    @m.custom_vjp
    def f(x):
        return x * x

    f.defvjp(lambda x: x * x, lambda res, g: (g,))
    m.grad(f)(1.0)


@misuse(errors.MissingCustomRule, "defvjp")
def a_custom_vjp_without_rules(m, jnp):
    f = m.custom_vjp(lambda x: x * x)
    f(1.0)  # <-


@misuse(errors.MissingArgument, "argnums=0", "by position")
def gradient_with_respect_to_a_keyword(m, jnp):
    m.grad(lambda x: x**2)(x=1.0)  # <-


@misuse(errors.NotAnArray, "has_aux=True", "f32[]", "loss, aux")
def has_aux_without_aux(m, jnp):
    m.value_and_grad(lambda x: x.sum(), has_aux=True)(X)  # <-


@misuse(errors.RuleMismatch, "fwd", "(*args)", "takes 1 positional argument but 2 were given")
def a_fwd_rule_of_too_few_arguments(m, jnp):
    f = m.custom_vjp(lambda x, y: x * y)

    def fwd(x):
        return x, None

    f.defvjp(fwd, lambda res, g: (g, g))
    m.grad(f)(1.0, 2.0)


@misuse(errors.NotAnArray, "'dots_saveable'", "checkpoint_policies.dots_saveable")
def a_checkpoint_policy_by_its_name(m, jnp):
    m.grad(m.checkpoint(lambda x: jnp.sin(x).sum(), policy="dots_saveable"))(X)  # <-


# --- vmap and named axes --------------------------------------------------------------------------


@misuse(errors.InvalidArgument, "in_axes=(0,)", "2 positional", "None")
def in_axes_for_too_few_arguments(m, jnp):
    m.vmap(lambda x, y: x + y, in_axes=(0,))(X, X)  # <-


@misuse(errors.InvalidArgument, "in_axes", "prefix", "'b'")
def in_axes_of_a_different_structure(m, jnp):
    m.vmap(lambda p: p["w"], in_axes=({"b": 0},))({"w": M})  # <-


@misuse(errors.BatchSizeMismatch, "x: axis 0", "size 3", "y: axis 0", "size 2")
def batches_of_different_sizes(m, jnp):
    m.vmap(lambda x, y: x + y)(X, X[:2])  # <-


@misuse(errors.UnboundAxis, "'batch'", "axis_name")
def a_collective_without_its_axis(m, jnp):
    m.vmap(lambda x: x - m.lax.pmean(x, "batch"))(X)  # <-


# --- control flow ---------------------------------------------------------------------------------


@misuse(errors.TypeMismatch, "carry", "i32[]", "f32[]")
def a_scan_whose_carry_changes_its_dtype(m, jnp):
    m.lax.scan(lambda c, x: (c + x, None), jnp.int32(0), X)  # <-


@misuse(errors.TypeMismatch, "pair", "(carry, y)")
def a_scan_that_returns_the_carry_alone(m, jnp):
    m.lax.scan(lambda c, x: c + x, 0.0, X)  # <-


@misuse(errors.TypeMismatch, "branch", "f32[3]", "f32[]")
def branches_of_cond_that_differ(m, jnp):
    m.lax.cond(True, lambda x: x, lambda x: x.sum(), jnp.asarray(X))  # <-


@misuse(errors.TypeMismatch, "bool[3]", ".all()")
def a_while_loop_whose_condition_is_an_array(m, jnp):
    m.lax.while_loop(lambda x: x < 3, lambda x: x + 1, jnp.asarray(X))  # <-


@misuse(errors.TypeMismatch, "carry has the structure *,", "returned (*, *)")
def a_fori_loop_with_its_counter(m, jnp):
    m.lax.fori_loop(0, 3, lambda i, x: (i + 1, x), 0.0)  # <-


# --- jit, static arguments, random numbers --------------------------------------------------------


@misuse(errors.UnknownOption, "xla_cpu_enable_fast_mth", "xla_cpu_enable_fast_math")
def a_compiler_option_that_does_not_exist(m, jnp):
    m.jit(jnp.sin, compiler_options={"xla_cpu_enable_fast_mth": True})(X)  # <-


@misuse(errors.UnhashableStatic, "argument 1", "[3, 3]", "tuple")
def a_static_list(m, jnp):
    m.jit(lambda x, shape: x, static_argnums=1)(X, [3, 3])  # <-


@misuse(errors.UnhashableStatic, "Model", "__hash__", "argument 0")
def jit_of_a_method_of_an_unhashable_object(m, jnp):
    class Model:
        __hash__ = None

        @partial(m.jit, static_argnums=0)
        def __call__(self, x):
            return x

    Model()(X)  # <-


@misuse(errors.InvalidArgument, "static_argnums=2", "0 (x), 1 (n)")
def static_argnums_beyond_the_arguments(m, jnp):
    m.jit(lambda x, n: x**n, static_argnums=2)  # <-


@misuse(errors.InvalidArgument, "static_argnames='m'", "1 (n)")
def a_static_argument_that_does_not_exist(m, jnp):
    m.jit(lambda x, n: x**n, static_argnames="m")  # <-


@misuse(errors.UnhashableStatic, "traced", "static in the enclosing function")
def a_traced_value_for_a_static_argument(m, jnp):
    power = m.jit(lambda x, n: x**n, static_argnums=1)
    m.jit(lambda x, n: power(x, n))(X, 2)  # <-


@misuse(errors.NotAnArray, "'text'", "result['name']")
def a_string_returned_from_jit(m, jnp):
    def f(x):  # <-
        return {"x": x, "name": "text"}

    m.jit(f)(X)


@misuse(errors.TypeMismatch, "key", "random.key(")
def random_numbers_without_a_key(m, jnp):
    m.random.normal((3,))  # <-


@misuse(errors.TypeMismatch, "key<fry>[]", "The key is the first argument")
def a_shape_before_the_key(m, jnp):
    m.random.normal((3,), m.random.key(0))  # <-


@misuse(errors.InvalidArgument, "(2,)", "vmap")
def several_keys_for_one_draw(m, jnp):
    m.random.normal(m.random.split(m.random.key(0)), (3,))  # <-


@misuse(errors.TypeMismatch, "key", "key_data")
def arithmetic_with_a_key(m, jnp):
    m.jit(lambda key: key + 1)(m.random.key(0))  # <-


# --- pytrees --------------------------------------------------------------------------------------


@misuse(errors.TreeMismatch, "tree.map", "['w']", "of length 2", "3", "tree 1: {'b': *, 'w': (*, *)}")
def trees_of_different_lengths(m, jnp):
    m.tree.map(jnp.add, {"w": (X, X), "b": X}, {"w": (X, X, X), "b": X})  # <-


@misuse(errors.TreeMismatch, "only tree 1 has ['b']", "only tree 3 has ['bias']", "at the root")
def trees_of_different_keys(m, jnp):
    params = {"w": X, "b": X}
    m.tree.map(lambda p, m, v: p, params, params, {"w": X, "bias": X})  # <-


@misuse(errors.TreeMismatch, "None in tree 1", "is_leaf=lambda x: x is None")
def none_as_a_leaf(m, jnp):
    m.tree.map(lambda mask, x: x, {"w": None}, {"w": X})  # <-


@misuse(errors.TreeMismatch, "a leaf in tree 2", "tree.broadcast(tree 2, tree 1)")
def a_leaf_for_a_container(m, jnp):
    m.tree.map(lambda x, rate: rate * x, {"w": (X, X)}, {"w": 0.1})  # <-


@misuse(errors.TreeMismatch, "tree.unflatten", "has 3 leaves, got 2", "['w'][1]", "tree.leaves")
def too_few_leaves(m, jnp):
    structure = m.tree.structure({"w": (X, X), "b": X})
    m.tree.unflatten(structure, [X, X])  # <-


@misuse(errors.NotAStructure, "tree.unflatten", "type list", "tree.structure(x)")
def leaves_before_the_structure(m, jnp):
    leaves, structure = m.tree.flatten({"w": X})
    m.tree.unflatten(leaves, structure)  # <-


@misuse(errors.TreeMismatch, "tree.flatten:", "['w']", "0 (int), 'b' (str)", "use only str")
def keys_without_an_order(m, jnp):
    m.tree.flatten({"w": {0: X, "b": X}})  # <-


@misuse(errors.DonatedTwice, "x and y", "f32[3]", "jnp.array(x)")
def a_donated_array_given_twice(m, jnp):
    x = jnp.asarray(X) + 1
    m.jit(lambda x, y: x + y, donate_argnums=0)(x, x)  # <-
