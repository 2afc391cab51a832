"""Libraries of the JAX world as their users have them: one word changed, `jax.` to `ft.`.

A row is a function of the library that jits, differentiates and maps: of `jax`, for what is
expected, and of `ft`. What it returns is compared leaf by leaf.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import functrans as ft
from tests.support.closeness import assert_close
from tests.support.extras import library

KEY = jax.random.key(0)
X, Y = jnp.arange(6.0).reshape(2, 3) / 5, jnp.ones((2, 4))
PARAMS = {"w": jnp.full((3, 4), 0.3), "b": jnp.arange(4.0) / 10}


def same(f: Any, tolerance: float = 2e-3) -> None:
    """The same by ft as by jax. Keys and what is no array are left out."""
    assert_close(_arrays(f(ft)), _arrays(f(jax)), tolerance)


def _arrays(tree: Any) -> list[Any]:
    leaves = [x for x in jax.tree.leaves(tree) if isinstance(x, (jax.Array, float, int))]
    keys = jax.dtypes.prng_key
    return [x for x in leaves if not jax.dtypes.issubdtype(jnp.result_type(x), keys)]


def loss(p, x, y):
    return jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) - y) ** 2)


# --- optax ----------------------------------------------------------------------------------------


def two_steps(D: Any, optimizer: Any) -> Any:
    p, state = PARAMS, optimizer.init(PARAMS)
    for _ in range(2):
        value, g = D.value_and_grad(loss)(p, X, Y)
        given = {"value": value, "grad": g, "value_fn": lambda q: loss(q, X, Y)}
        updates, state = optimizer.update(g, state, p, **given)
        p = jax.tree.map(lambda a, b: a + b, p, updates)
    return p


@pytest.mark.rest
def test_optax():
    optax = library("optax")
    decay = optax.exponential_decay(0.1, 2, 0.9)
    made = {
        "hyperparameters": optax.inject_hyperparams(optax.adam)(decay),
        "finite": optax.apply_if_finite(optax.adam(0.1), 3),
        "several": optax.MultiSteps(optax.adam(0.1), 2),
        "line search": optax.lbfgs(),
        "polyak": optax.polyak_sgd(),
        "chain": optax.chain(
            optax.clip_by_global_norm(0.1),
            optax.add_noise(0.1, 0.5, 0),
            optax.scale_by_schedule(optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)),
            optax.ema(0.9),
        ),
        "factored": optax.adafactor(),
        "orthogonal": optax.contrib.muon(0.1),
        "momentum": optax.contrib.momo(),
    }
    made = {name: optax.with_extra_args_support(one) for name, one in made.items()}
    same(lambda D: D.jit(lambda: {k: two_steps(D, o) for k, o in made.items()})())


# --- flax -----------------------------------------------------------------------------------------


def linen_model() -> Any:
    nn = library("flax.linen")

    class Block(nn.Module):
        @nn.compact
        def __call__(self, carry, _):
            return nn.tanh(nn.Dense(3)(carry)), None

    class Classifier(nn.Module):
        @nn.compact
        def __call__(self, x):
            options = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
            x = nn.scan(Block, length=3, **options)()(x, None)[0]
            x = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Dense(5)(x)))
            x = nn.Dropout(0.3, deterministic=False)(nn.LayerNorm()(x))
            return nn.remat(nn.Dense)(2)(x)

    return Classifier()


@pytest.mark.smoke
def test_linen():
    model, keys = linen_model(), {"params": KEY, "dropout": KEY}

    def trained(D):
        def run(x):
            variables = model.init(keys, x)

            def cost(p):
                given = {**variables, "params": p}
                out, state = model.apply(given, x, rngs={"dropout": KEY}, mutable=["batch_stats"])
                return sum(jnp.sum(o * o) for o in jax.tree.leaves(out)), state

            return D.value_and_grad(cost, has_aux=True)(variables["params"])

        return D.jit(run)(X)

    same(trained)


def test_nnx():
    nnx = library("flax.nnx")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 5, rngs=rngs)
            self.norm = nnx.BatchNorm(5, rngs=rngs)
            self.dropout = nnx.Dropout(0.2, rngs=rngs)
            self.last = nnx.Linear(5, 2, rngs=rngs)

        def __call__(self, x):
            return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))

    graph, state = nnx.split(Model(nnx.Rngs(0)))

    def trained(D):
        def step(state, x):
            model = nnx.merge(graph, state)
            found = nnx.value_and_grad(lambda m: jnp.sum(m(x) ** 2))(model)
            return found, nnx.jit(lambda m, x: m.last(m.first(x)))(model, x)

        return D.jit(step)(state, X)

    same(trained)


def test_nnx_variables_of_a_high_level_type():
    nnx = library("flax.nnx")
    with nnx.var_defaults(hijax=True):
        model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        with pytest.raises(ft.errors.NotAnArray, match=r"hijax=True, are not supported.*to_pure_dict"):
            ft.jit(lambda m, x: m(x))(model, X)
        arrays = nnx.to_pure_dict(nnx.state(model))
        same(lambda D: D.jit(lambda w, x: x @ w["kernel"] + w["bias"])(arrays, X))


# --- equinox, haiku -------------------------------------------------------------------------------


@pytest.mark.smoke
def test_equinox():
    eqx = library("equinox")
    mlp = eqx.nn.MLP(3, 2, 8, 2, key=KEY)
    arrays, static = eqx.partition(mlp, eqx.is_array)
    attend = eqx.nn.MultiheadAttention(2, 4, key=KEY)
    rows = jnp.arange(12.0).reshape(3, 4) / 5

    def run(D):
        def of(arrays, x):
            model = eqx.combine(arrays, static)
            return eqx.filter_value_and_grad(lambda m: jnp.sum(jax.vmap(m)(x) ** 2))(model)

        linear = eqx.nn.Linear(3, 2, key=KEY)
        return (
            D.jit(of)(arrays, X),
            D.jit(D.grad(lambda m, x: jnp.sum(eqx.filter_vmap(m)(x) ** 2)))(linear, X),
            D.grad(lambda x: jnp.sum(eqx.filter_jit(lambda m, x: jax.vmap(m)(x))(mlp, x)))(X),
            D.jit(D.grad(lambda x: jnp.sum(attend(x, x, x) ** 2)))(rows),
        )

    same(run)


# --- solvers --------------------------------------------------------------------------------------


def decay(t, y, a):
    return -a * y


def predators(t, y, a):
    return jnp.stack([a[0] * y[0] - a[1] * y[0] * y[1], a[3] * y[0] * y[1] - a[2] * y[1]])


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("solver", "slope", "rates", "start", "end", "first", "tolerances"),
    [
        ("Tsit5", decay, [0.5, 0.7], [1.0, 2.0], 1.0, 0.1, (1e-4, 1e-5)),
        # stiff: the gradient is that of the steps which were taken
        ("Kvaerno5", predators, [1.1, 0.4, 0.4, 0.1], [10.0, 5.0], 5.0, 0.05, (1e-5, 1e-6)),
    ],
)
def test_diffrax(solver, slope, rates, start, end, first, tolerances):
    diffrax = library("diffrax")

    def solved(a):
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            getattr(diffrax, solver)(),
            0.0,
            end,
            first,
            jnp.array(start),
            args=a,
            stepsize_controller=diffrax.PIDController(*tolerances),
        )
        return jnp.sum(found.ys)

    same(lambda D: D.jit(D.value_and_grad(solved))(jnp.array(rates)))


@pytest.mark.rest
def test_lineax_and_optimistix():
    lx, optx = library("lineax"), library("optimistix")
    matrix, b = jnp.array([[3.0, 1.0], [1.0, 2.0]]), jnp.array([1.0, 2.0])

    def solve(m):
        return jnp.sum(lx.linear_solve(lx.MatrixLinearOperator(m), b).value)

    def root(a):
        newton = optx.Newton(1e-5, 1e-5)
        return jnp.sum(optx.root_find(lambda y, a: y**3 - a * y - 1, newton, jnp.array([2.0]), args=a).value)

    same(lambda D: (D.jit(D.grad(solve))(matrix), D.jit(D.grad(root))(1.5)))


# --- distributions, assertions --------------------------------------------------------------------


@pytest.mark.sweep
def test_distributions():
    numpyro, distrax = library("numpyro"), library("distrax")
    dist = numpyro.distributions
    log_density = numpyro.infer.util.log_density

    def model(y):
        m = numpyro.sample("m", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(m, numpyro.sample("s", dist.HalfNormal(1.0))), obs=y)

    def run(D):
        density = D.value_and_grad(lambda p: log_density(model, (jnp.array([0.1, 0.3]),), {}, p)[0])
        normal = D.grad(
            lambda m: (
                distrax.MultivariateNormalDiag(m, jnp.ones(3)).log_prob(jnp.zeros(3))
                + distrax.Categorical(m).entropy()
            )
        )
        draws = lambda m: distrax.Normal(m, 1.0).sample(seed=KEY, sample_shape=(2,))  # noqa: E731
        means = jnp.arange(3.0)
        return D.jit(lambda: (density({"m": 0.3, "s": 1.2}), normal(means), draws(means)))()

    same(run)
