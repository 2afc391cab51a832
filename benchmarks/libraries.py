"""`python -m benchmarks libraries [--rows WORD] [--repeats N]`: simulators and samplers of libraries.

The functions are JAX's and the libraries', as their users write them; only `jax.jit` is ours in one of the
columns. Needs `pip install blackjax brax diffrax dynamax gymnax jaxley jaxopt mujoco-mjx numpyro optax pgx
tinygp`; a row whose library is not there is named before the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import small_loops
from benchmarks.simulators import normal
from benchmarks.small_loops import Program

Row = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of JAX's, and its arguments

KEY = jax.random.PRNGKey(0)
# Roundings that a row may be off: two orders of a sum lead to two trajectories, but not to two solutions.
CHAOS, SOLUTIONS = 1e6, 1e3


# --- reinforcement learning, robots, games --------------------------------------------------------


def gymnax(name: str) -> Row:
    """Rewards of 200 random actions."""
    import gymnax

    env, params = gymnax.make(name)

    def rollout(key: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            key, state = carry
            key, drawn, used = jax.random.split(key, 3)
            action = env.action_space(params).sample(drawn)
            _, state, reward, *_ = env.step(used, state, action, params)
            return (key, state), jnp.asarray(reward, "float32")

        return jax.lax.scan(step, (key, env.reset(key, params)[1]), None, length=200)[1]

    return rollout, (KEY,)


CART = """<mujoco><option timestep="0.01"><flag contact="disable"/></option><worldbody><body>
<joint name="slide" type="slide" axis="1 0 0"/><geom type="box" size=".2 .1 .1" mass="1"/><body>
<joint type="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .6" size=".05" mass=".1"/>
</body></body></worldbody><actuator><motor joint="slide" gear="10"/></actuator></mujoco>"""


def mjx(model: str, steps: int) -> Row:
    """Positions in some steps with random controls, from a model's text or a file of mjx' tests."""
    import mujoco
    from mujoco import mjx

    if model.endswith(".xml"):
        system = mujoco.MjModel.from_xml_path(str(Path(mjx.__file__).parent / "test_data" / model))
    else:
        system = mujoco.MjModel.from_xml_string(model)
    on_device = mjx.put_model(system)

    def rollout(controls: Any) -> Any:
        def step(data: Any, control: Any) -> Any:
            data = mjx.step(on_device, data.replace(ctrl=control))
            return data, data.qpos

        return jax.lax.scan(step, mjx.make_data(on_device), controls)[1]

    return rollout, (0.1 * normal(steps, system.nu),)


def brax(name: str, backend: str, steps: int = 50) -> Row:
    """Observations of some actions."""
    from brax import envs

    env = envs.get_environment(name, backend=backend)
    start = jax.jit(env.reset)(KEY)

    def rollout(actions: Any) -> Any:
        def step(state: Any, action: Any) -> Any:
            state = env.step(state, action)
            return state, state.obs

        return jax.lax.scan(step, start, actions)[1]

    return rollout, (0.1 * normal(steps, env.action_size),)


def pgx(name: str, steps: int) -> Row:
    """Rewards of eight random games."""
    import pgx

    env = pgx.make(name)

    def game(key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            action = jax.random.categorical(key, jnp.log(state.legal_action_mask.astype("float32")))
            state = env.step(state, action, key)
            return state, state.rewards

        return jax.lax.scan(step, env.init(key), jax.random.split(key, steps))[1]

    return jax.vmap(game), (jax.random.split(KEY, 8),)


# --- sampling and filtering -----------------------------------------------------------------------


def blackjax(method: str, **options: Any) -> Row:
    """100 samples of a logistic regression."""
    import blackjax

    x = normal(100, 4)
    sign = jnp.sign(x[:, 0])

    def log_density(w: Any) -> Any:
        return jnp.sum(jax.nn.log_sigmoid(sign * (x @ w))) - jnp.sum(w**2)

    kernel = getattr(blackjax, method)(log_density, step_size=0.1, inverse_mass_matrix=jnp.ones(4), **options)

    def samples(key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, kernel.init(jnp.zeros(4)), jax.random.split(key, 100))[1]

    return samples, (KEY,)


def numpyro_nuts() -> Row:
    """100 samples of a logistic regression."""
    import numpyro
    from numpyro.distributions import Bernoulli, Normal
    from numpyro.infer import NUTS

    x = normal(100, 4)

    def model() -> None:
        w = numpyro.sample("w", Normal(0, 1).expand([4]).to_event(1))
        numpyro.sample("y", Bernoulli(logits=x @ w), obs=x[:, 0] > 0)

    kernel = NUTS(model, max_tree_depth=6)
    start = kernel.init(KEY, 0, init_params=None, model_args=(), model_kwargs={})

    def samples(state: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            state = kernel.sample(state, (), {})
            return state, state.z["w"]

        return jax.lax.scan(step, state, None, length=100)[1]

    return samples, (start,)


def dynamax(model: str) -> Row:
    """Gradient of the log likelihood of a state-space model."""
    from dynamax.hidden_markov_model import GaussianHMM
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    made = GaussianHMM(6, 2) if model == "HMM" else LinearGaussianSSM(state_dim=4, emission_dim=2)
    return jax.grad(made.marginal_log_prob), (made.initialize(KEY)[0], normal(200, 2))


def tinygp() -> Row:
    """Gradient of the log likelihood of a Gaussian process with a quasiseparable kernel."""
    import tinygp

    x = jnp.linspace(0, 10, 200)

    def fit(p: Any) -> Any:
        kernel = tinygp.kernels.quasisep.Matern32(scale=jnp.exp(p[0]), sigma=jnp.exp(p[1]))
        return tinygp.GaussianProcess(kernel, x, diag=0.1).log_probability(jnp.sin(x))

    return jax.grad(fit), (jnp.zeros(2),)


# --- differential equations, neurons, optimizers --------------------------------------------------


def diffrax(solver: str = "Tsit5", examples: int = 0, adaptive: bool = True) -> Row:
    """Gradient of a fit of Lotka-Volterra's rates."""
    import diffrax as dfx

    def rate(t: Any, y: Any, a: Any) -> Any:
        return jnp.stack([a[0] * y[0] - a[1] * y[0] * y[1], a[2] * y[0] * y[1] - a[3] * y[1]])

    steps = dfx.PIDController(rtol=1e-4, atol=1e-6) if adaptive else dfx.ConstantStepSize()
    # The error of a smaller first step is a rounding, which would decide about the next one.
    first = 0.2 if adaptive else 0.02

    def solved(start: Any, rates: Any) -> Any:
        term, save = dfx.ODETerm(rate), dfx.SaveAt(ts=jnp.linspace(0.0, 10.0, 20))
        how: dict[str, Any] = {"stepsize_controller": steps, "saveat": save, "max_steps": 1000}
        return dfx.diffeqsolve(term, getattr(dfx, solver)(), 0.0, 10.0, first, start, rates, **how).ys

    def fit(rates: Any, start: Any) -> Any:
        one = partial(solved, rates=rates)
        return jnp.mean((jax.vmap(one) if examples else one)(start) ** 2)

    start = 1 + 0.01 * jnp.arange(2.0 * max(1, examples))
    return jax.grad(fit), (jnp.array([1.1, 0.4, 0.1, 0.4]), start.reshape((examples, 2) if examples else 2))


def jaxley() -> Row:
    """Gradient of a neuron's recording with respect to a conductance."""
    import jaxley as jx
    from jaxley.channels import HH

    cell = jx.Cell(jx.Branch(jx.Compartment(), ncomp=4), parents=[-1, 0, 0])
    cell.insert(HH())
    current = jx.step_current(i_delay=1.0, i_dur=2.0, i_amp=0.1, delta_t=0.025, t_max=10.0)
    cell.branch(0).loc(0.0).stimulate(current)
    cell.branch(1).loc(1.0).record()
    cell.branch(0).make_trainable("HH_gNa")
    return jax.grad(lambda p: jnp.sum(jx.integrate(cell, params=p, delta_t=0.025))), (cell.get_parameters(),)


def rosenbrock(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def optax_adam() -> Row:
    """200 steps of training a small network."""
    import optax

    x, optimizer = normal(32, 2), optax.adam(1e-2)
    start = (0.1 * normal(2, 16), jnp.zeros(16), 0.1 * normal(16, 1))

    def loss(p: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ p[0] + p[1]) @ p[2] - x[:, :1]) ** 2)

    def trained(params: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            params, state = carry
            value, grads = jax.value_and_grad(loss)(params)
            updates, state = optimizer.update(grads, state)
            return (optax.apply_updates(params, updates), state), value

        return jax.lax.scan(step, (params, optimizer.init(params)), None, length=200)[1]

    return trained, (start,)


def jaxopt_bfgs() -> Row:
    """The minimum of Rosenbrock's function."""
    import jaxopt

    return lambda x: jaxopt.BFGS(rosenbrock, maxiter=50).run(x).params, (jnp.zeros(4),)


ROWS: dict[str, Callable[[], Row]] = {
    "gymnax CartPole": partial(gymnax, "CartPole-v1"),
    "gymnax Pendulum": partial(gymnax, "Pendulum-v1"),
    "gymnax Acrobot": partial(gymnax, "Acrobot-v1"),
    "gymnax Breakout (MinAtar)": partial(gymnax, "Breakout-MinAtar"),
    "mjx cart-pole": partial(mjx, CART, 200),
    "mjx humanoid, 20 steps": partial(mjx, "humanoid/humanoid.xml", 20),
    "mjx pendula with contacts, 20 steps": partial(mjx, "pendula.xml", 20),
    "brax pendulum, positional": partial(brax, "inverted_pendulum", "positional"),
    "brax reacher, generalized": partial(brax, "reacher", "generalized"),
    "brax ant, generalized, 10 steps": partial(brax, "ant", "generalized", 10),
    "brax ant, positional": partial(brax, "ant", "positional"),
    "brax ant, spring": partial(brax, "ant", "spring"),
    # after more steps JAX's own answer depends on the last bit of the actions
    "brax half-cheetah, spring, 20 steps": partial(brax, "halfcheetah", "spring", 20),
    "pgx 2048 x 8": partial(pgx, "2048", 40),
    "pgx Connect Four x 8": partial(pgx, "connect_four", 40),
    "blackjax HMC": partial(blackjax, "hmc", num_integration_steps=10),
    "blackjax NUTS": partial(blackjax, "nuts"),
    "numpyro NUTS": numpyro_nuts,
    "dynamax linear Gaussian model, gradient": partial(dynamax, "LGSSM"),
    "dynamax hidden Markov model, gradient": partial(dynamax, "HMM"),
    "tinygp quasiseparable kernel, gradient": tinygp,
    "diffrax Tsit5, adaptive, gradient": diffrax,
    "diffrax Tsit5, adaptive, x 16, gradient": partial(diffrax, examples=16),
    "diffrax Tsit5, fixed steps, gradient": partial(diffrax, adaptive=False),
    "diffrax Kvaerno3, adaptive, gradient": partial(diffrax, "Kvaerno3"),
    "jaxley neuron of 12 compartments, gradient": jaxley,
    "optax Adam, 200 steps": optax_adam,
    "jaxopt BFGS": jaxopt_bfgs,
}


def programs(rows: str) -> Iterator[Program]:
    for name, make in ROWS.items():
        if rows not in name:
            continue
        try:
            fun, args = make()
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        amplifies = SOLUTIONS if name.startswith("diffrax") else CHAOS
        yield Program(name, lambda lib, fun=fun: fun, args, amplifies=amplifies)


def run(rows: str = "", repeats: int = 15) -> Any:
    """Measure the rows whose name contains `rows`, and print the table line by line."""
    return small_loops.table(list(programs(rows)), repeats)
