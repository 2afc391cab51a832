"""Small simulators, as their authors write them, each written once for both libraries.

Every function takes a `Library` and returns the function that is compiled, most of them a loss of
the first argument. A step is a few operations on a few numbers, and loops repeat it hundreds of
times. The inputs, at the end of the file, are NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.models import Library

Function = Callable[..., Any]

# --- ordinary differential equations --------------------------------------------------------------


def rk4(lib: Library, slope: Function, y: Any, dt: float) -> Any:
    """Take one step of the classical Runge-Kutta method; `y` is a tree of arrays."""

    def moved(k, by):
        return lib.ft.tree.map(lambda a, b: a + by * b, y, k)

    k1 = slope(y)
    k2 = slope(moved(k1, dt / 2))
    k3 = slope(moved(k2, dt / 2))
    k4 = slope(moved(k3, dt))
    mean = lib.ft.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
    return moved(mean, dt)


def lotka_volterra(lib: Library) -> Function:
    """Mean squared distance of prey and predators from what was observed, (steps, 2)."""
    jnp = lib.np

    def loss(rates, observed):
        alpha, beta, gamma, delta = rates

        def slope(y):
            prey, predators = y
            return jnp.array(
                [alpha * prey - beta * prey * predators, delta * prey * predators - gamma * predators]
            )

        def step(y, seen):
            y = rk4(lib, slope, y, 0.01)
            return y, jnp.sum((y - seen) ** 2)

        _, errors = lib.lax.scan(step, jnp.array([1.0, 0.5]), observed)
        return jnp.mean(errors)

    return loss


def lorenz(lib: Library, steps: int = 300) -> Function:
    """Mean height of an orbit that starts at `start`, (3,); its state is three scalars."""

    def slope(state):
        x, y, z = state
        return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8 / 3 * z

    def loss(start):
        def step(state, _):
            state = rk4(lib, slope, state, 0.01)
            return state, state[2]

        _, heights = lib.lax.scan(step, (start[0], start[1], start[2]), None, length=steps)
        return lib.np.mean(heights)

    return loss


def bodies(lib: Library, steps: int) -> Function:
    """How far bodies under gravity are from the origin after `steps` leapfrog steps."""
    jnp = lib.np
    dt = 0.005

    def loss(start, masses):
        def acceleration(x):
            apart = x[None, :, :] - x[:, None, :]
            squared = jnp.sum(apart**2, axis=-1) + 0.01
            return jnp.sum(masses[None, :, None] * apart * squared[..., None] ** -1.5, axis=1)

        def step(_, state):
            x, v = state
            v = v + dt / 2 * acceleration(x)
            x = x + dt * v
            return x, v + dt / 2 * acceleration(x)

        x, _ = lib.lax.fori_loop(0, steps, step, start)
        return jnp.sum(x**2)

    return loss


def hodgkin_huxley(lib: Library) -> Function:
    """Squared mean voltage of a cable of compartments, driven at its end by one current per step."""
    jnp = lib.np
    exp = jnp.exp
    dt = 0.01

    def rates(v):
        return (
            (0.1 * (v + 40) / (1 - exp(-(v + 40) / 10)), 4 * exp(-(v + 65) / 18)),
            (0.07 * exp(-(v + 65) / 20), 1 / (1 + exp(-(v + 35) / 10))),
            (0.01 * (v + 55) / (1 - exp(-(v + 55) / 10)), 0.125 * exp(-(v + 65) / 80)),
        )

    def loss(conductances, rest, currents):
        sodium, potassium, leak = conductances

        def step(state, current):
            v, gates = state
            m, h, n = gates = tuple(
                gate + dt * (opens * (1 - gate) - closes * gate)
                for gate, (opens, closes) in zip(gates, rates(v), strict=True)
            )
            padded = jnp.pad(v, 1, mode="edge")
            flow = padded[2:] - 2 * v + padded[:-2]
            ions = sodium * m**3 * h * (v - 50) + potassium * n**4 * (v + 77) + leak * (v + 54.4)
            v = (v + dt * (flow - ions)).at[0].add(dt * current)
            return (v, gates), jnp.mean(v)

        gates = tuple(jnp.full_like(rest, gate) for gate in (0.05, 0.6, 0.32))
        _, voltages = lib.lax.scan(step, (rest, gates), currents)
        return jnp.mean((voltages / 50) ** 2)

    return loss


# --- control --------------------------------------------------------------------------------------


def policy(lib: Library, params: Any, seen: Any) -> Any:
    """A push between -1 and 1, from a network with one hidden layer."""
    hidden = lib.np.tanh(seen @ params["w1"] + params["b1"])
    return lib.np.tanh(hidden @ params["w2"])


def cart_pole(lib: Library, steps: int = 200) -> Function:
    """Cost of holding up a pole on a cart that starts at `start`: position, speed, angle, spin."""
    jnp = lib.np
    dt = 0.02

    def rollout(params, start):
        def step(state, _):
            x, speed, angle, spin = state
            force = 10 * policy(lib, params, state)
            sin, cos = jnp.sin(angle), jnp.cos(angle)
            pull = (force + 0.05 * spin**2 * sin) / 1.1
            turn = (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
            push = pull - 0.05 * turn * cos / 1.1
            state = state + dt * jnp.stack([speed, push, spin, turn])
            return state, 1 - cos + 0.1 * x**2 + 0.001 * force**2

        return jnp.mean(lib.lax.scan(step, start, None, length=steps)[1])

    return rollout


def pendulum(lib: Library, steps: int = 200) -> Function:
    """Cost of swinging up a pendulum; its state is two numbers, and the policy sees three."""
    jnp = lib.np

    def rollout(params, start):
        def step(state, _):
            angle, spin = state
            torque = 2 * policy(lib, params, jnp.stack([jnp.cos(angle), jnp.sin(angle), spin]))
            cost = (1 - jnp.cos(angle)) ** 2 + 0.1 * spin**2 + 0.001 * torque**2
            spin = jnp.clip(spin + 0.05 * (15 * jnp.sin(angle) + 3 * torque), -8.0, 8.0)
            return (angle + 0.05 * spin, spin), cost

        return jnp.mean(lib.lax.scan(step, (start[0], start[1]), None, length=steps)[1])

    return rollout


def many(rollout: Function) -> Function:
    """Mean cost from many starts."""

    def made(lib: Library) -> Function:
        each = lib.ft.vmap(rollout(lib), (None, 0))
        return lambda params, starts: lib.np.mean(each(params, starts))

    return made


# --- a robot arm ----------------------------------------------------------------------------------


def link(lib: Library, angle: Any, geometry: Any) -> Any:
    """Return the transform from one joint's frame to the next; `geometry`: offset, length, cos and
    sin of the twist (Denavit and Hartenberg)."""
    offset, length, ca, sa = geometry
    c, s = lib.np.cos(angle), lib.np.sin(angle)
    zero = 0 * c
    return lib.np.array(
        [
            [c, -s * ca, s * sa, length * c],
            [s, c * ca, -c * sa, length * s],
            [zero, zero + sa, zero + ca, zero + offset],
            [zero, zero, zero, zero + 1],
        ]
    )


def kinematics(lib: Library) -> Function:
    """Position of the hand, by a scan over the joints."""

    def hand(angles, arm):
        def step(frame, joint):
            return frame @ link(lib, *joint), None

        frame, _ = lib.lax.scan(step, lib.np.eye(4), (angles, arm))
        return frame[:3, 3]

    return hand


def mass_matrix(lib: Library) -> Function:
    """Inertia seen by the joints, each link a point mass with a spin; written without a loop."""
    jnp = lib.np

    def mass(angles, arm):
        frame, frames = jnp.eye(4), []
        for i in range(len(arm)):
            frames.append(frame)
            frame = frame @ link(lib, angles[i], arm[i])
        ends = [f[:3, 3] for f in (*frames[1:], frame)]
        axes = jnp.stack([f[:3, 2] for f in frames])
        origins = jnp.stack([f[:3, 3] for f in frames])
        total = 0.01 * jnp.eye(len(arm))
        for i, end in enumerate(ends):
            moves = jnp.arange(len(arm))[:, None] <= i
            linear = jnp.where(moves, jnp.cross(axes, end - origins), 0.0)
            angular = jnp.where(moves, axes, 0.0)
            total = total + 2.0 * linear @ linear.T + 0.05 * angular @ angular.T
        return total

    return mass


def log_volume(lib: Library) -> Function:
    """log det of the mass matrix."""
    mass = mass_matrix(lib)
    return lambda angles, arm: lib.np.linalg.slogdet(mass(angles, arm))[1]


def kinetic_energy(lib: Library) -> Function:
    mass = mass_matrix(lib)

    def energy(angles, arm):
        speeds = lib.np.ones(len(arm))
        return 0.5 * speeds @ mass(angles, arm) @ speeds

    return energy


# --- fields ---------------------------------------------------------------------------------------


def heat(lib: Library, steps: int) -> Function:
    """Squared temperatures, after `steps`, of a plate that is periodic in both directions."""
    roll = lib.np.roll

    def loss(u):
        def step(_, u):
            around = roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1)
            return u + 0.2 * (around - 4 * u)

        return lib.np.sum(lib.lax.fori_loop(0, steps, step, u) ** 2)

    return loss


def wave(lib: Library, steps: int = 300) -> Function:
    """Squared displacement of a string that is held at its ends."""

    def loss(u):
        def step(state, _):
            before, now = state
            bend = lib.np.pad(now[2:] - 2 * now[1:-1] + now[:-2], 1)
            after = 2 * now - before + 0.25 * bend
            return (now, after), None

        (_, u), _ = lib.lax.scan(step, (u, u), None, length=steps)
        return lib.np.sum(u**2)

    return loss


# --- Newton's method ------------------------------------------------------------------------------


def kepler(lib: Library) -> Function:
    """The angle of a planet on its ellipse, by Newton's method until it converges."""
    jnp = lib.np

    def angle(mean_angle, eccentricity):
        def step(state):
            e, _ = state
            change = (e - eccentricity * jnp.sin(e) - mean_angle) / (1 - eccentricity * jnp.cos(e))
            return e - change, jnp.abs(change)

        start = mean_angle + eccentricity, jnp.ones_like(mean_angle)
        return lib.lax.while_loop(lambda state: state[1] > 1e-5, step, start)[0]

    return angle


def newton(lib: Library) -> Function:
    """Sum of the root of x + a tanh(x) = b, with the derivative of the implicit function."""
    jnp = lib.np

    def residual(x, a, b):
        return x + a @ jnp.tanh(x) - b

    @lib.ft.custom_vjp
    def root(a, b):
        def step(state):
            x, _, count = state
            r = residual(x, a, b)
            jacobian = lib.ft.jacfwd(residual)(x, a, b)
            return x - jnp.linalg.solve(jacobian, r), jnp.max(jnp.abs(r)), count + 1

        def unsolved(state):
            return (state[1] > 1e-5) & (state[2] < 20)

        return lib.lax.while_loop(unsolved, step, (b, jnp.ones(()), 0))[0]

    def forward(a, b):
        x = root(a, b)
        return x, (x, a, b)

    def backward(saved, ct):
        x, a, b = saved
        weights = jnp.linalg.solve(lib.ft.jacfwd(residual)(x, a, b).T, -ct)
        return lib.ft.vjp(lambda a, b: residual(x, a, b), a, b)[1](weights)

    root.defvjp(forward, backward)
    return lambda a, b: jnp.sum(root(a, b))


# --- inputs ---------------------------------------------------------------------------------------


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def near(x: Any, n: int) -> np.ndarray:
    """`n` points within a tenth of `x`."""
    x = np.asarray(x, float)
    return x + 0.1 * np.random.default_rng(1).uniform(-1, 1, (n, *x.shape))


def observed_animals(steps: int = 1000) -> np.ndarray:
    t = 0.01 * np.arange(steps)
    return np.stack([1 + 0.5 * np.sin(t), 0.5 + 0.3 * np.cos(t)], axis=1)


def cluster(n: int) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Positions, speeds and masses of `n` bodies."""
    return (normal(n, 3), 0.3 * normal(n, 3, seed=1)), 1 + np.arange(n) / n


def cable(n: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Conductances, resting voltages and currents of `n` compartments."""
    return np.array([120.0, 36.0, 0.3]), np.linspace(-65, -60, n), np.full(steps, 20.0)


def policy_params(inputs: int, width: int = 16) -> dict[str, np.ndarray]:
    return {"w1": normal(inputs, width) / 2, "b1": np.zeros(width), "w2": normal(width, seed=1) / 4}


def arm(joints: int = 7) -> np.ndarray:
    """Offset, length, cos and sin of the twist of each joint."""
    i = np.arange(joints)
    twist = np.where(i % 2 == 0, np.pi / 2, -np.pi / 2)
    return np.stack([0.3 - 0.02 * i, 0.05 + 0.01 * i, np.cos(twist), np.sin(twist)], axis=1)


def bump(*shape: int) -> np.ndarray:
    """One hill in the middle of a field."""
    away = [np.linspace(-1, 1, n) ** 2 for n in shape]
    return np.exp(-8 * sum(np.meshgrid(*away, indexing="ij")))
