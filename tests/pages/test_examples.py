"""The examples of the README, run as they are, with the claims they make."""

import importlib
import io
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
from functrans.passes.explanation import measured
from functrans.passes.pipeline import optimize
from tests.support.closeness import assert_close
from tests.support.matrices import marked

ROOT = Path(__file__).parents[2]


def imported(name: str) -> Any:
    """A module of the examples, as a fixture."""

    @pytest.fixture
    def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        monkeypatch.syspath_prepend(str(ROOT / "examples"))
        yield importlib.import_module(name)
        sys.modules.pop(name, None)

    return example


digits, own = imported("train_digits"), imported("own_transformation")
simulator, private = imported("fit_simulator"), imported("dp_sgd")
flax, kernel, noise = imported("private_flax"), imported("equinox_kernel"), imported("noise_scale")


@pytest.mark.sweep
def test_train_digits(digits, tmp_path):
    data = digits.load()
    images, labels, test_images, test_labels = data
    assert len(images) + len(test_images) == 1797
    assert digits.compare_gradients(images, labels) < 1e-6

    params, state, step, losses, accuracy = digits.train(
        "conv net", digits.conv_net, digits.CONV, data, epochs=25
    )
    assert accuracy >= 0.97
    assert losses[-1] < 0.1 * losses[0]

    chosen, lengths = digits.hardest(params, test_images, test_labels)
    assert list(lengths[chosen]) == sorted(lengths, reverse=True)[:5]
    assert digits.check_step(step, params, state, images[:64], labels[:64]) < 1e-4

    picture = tmp_path / "digits.png"
    digits.draw(str(picture), {"conv net": losses}, test_images, test_labels, chosen, lengths)
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize("name", [*marked("rest", "MLP"), *marked("sweep", "conv net")])
def test_interval_bounds(own, name):
    images, labels, test_images, test_labels = own.load()
    params = own.train(name, images, labels)
    assert own.accuracy(name, params, test_images, test_labels) > 0.94
    shares = []
    for epsilon in (0.002, 0.01, 0.03):
        share, box = own.certify(name, params, test_images, test_labels, epsilon)
        shares.append(share)
        for i in range(3):
            seen = own.sample(name, params, test_images[i], epsilon, n=1000, seed=i)
            assert (box.low[i] <= seen.low + 1e-5).all()
            assert (seen.high <= box.high[i] + 1e-5).all()
            # as wide as they must be, within the factor that corners of a box are rarely met
            assert (box.high[i] - box.low[i]).mean() < 10 * (seen.high - seen.low).mean()
    assert shares[0] > 0.9
    assert shares[1] > 0.7
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("name", [*marked("sweep", "MLP"), *marked("rest", "conv net")])
def test_mixed_precision(own, name):
    images, labels, test_images, test_labels = own.load()
    error, program = own.gradient_error(name, own.initial(name), images[:256], labels[:256])
    assert 1e-5 < error < 0.02  # bfloat16 rounds by 0.4 %; some maxima change sides
    ft.ir.check(program)
    assert ft.ir.equal(ft.ir.parse(str(program), program.values), program)
    products = [e for e in program.equations if e.primitive.name in own.BILINEAR - {"mul"}]
    assert len(products) >= 4
    assert {str(v.type.dtype) for e in products for v in e.inputs} == {"bfloat16"}
    assert {str(v.type.dtype) for e in products for v in e.outputs} == {"float32"}

    params = own.train(name, images, labels, own.mixed_precision)
    assert own.accuracy(name, params, test_images, test_labels) > 0.94


@pytest.mark.rest
def test_fitted_simulator(simulator, monkeypatch, capsys, tmp_path):
    """Of fewer steps, whose cell fires once."""
    monkeypatch.setattr(simulator, "STEPS", 250)
    exact = np.asarray(ft.jit(partial(simulator.voltages, ft))(np.log(simulator.TRUE)))
    recorded = exact + np.random.default_rng(0).normal(size=exact.shape).astype("float32")
    monkeypatch.setattr(simulator, "NOISE", 1.0)
    step = ft.jit(partial(simulator.adam, ft))
    fitted, uncertainty, errors = simulator.fit(step, recorded, 200)
    assert errors[0] > 50
    assert 0.9 < errors[-1] < 1.1
    assert (abs(np.log(fitted / simulator.TRUE)) < 4 * uncertainty).all()

    args = simulator.START, np.float32(0.05), recorded
    assert simulator.in_turn([step], args, rounds=2) > 0
    simulator.show_profile("a step", step, args)
    shown = capsys.readouterr().out
    assert "one kernel; in it are" in shown
    assert int(shown.split()[2]) < 100
    picture = tmp_path / "fit.png"
    simulator.draw(str(picture), recorded, fitted)
    assert picture.stat().st_size > 10_000


@pytest.mark.rest
def test_private_training(private, monkeypatch):
    monkeypatch.setattr(private, "SIZES", (64, 128, 10))
    data = private.load()
    params, accuracy = private.train(100, 2.5, data)
    assert accuracy > 0.8
    epsilon, delta = private.guarantee(len(data[0]), 2.5, 100)
    assert 3 < epsilon < 5
    assert private.DELTA <= delta < 1.001 * private.DELTA

    batch = private.sample(np.random.default_rng(0), *data[:2])
    args = (params, ft.random.key(0), 2.5, *batch)
    _, size = private.cost(args, repeats=1)
    _, without = private.cost(args, repeats=1, passes=("dead_code",))
    assert size < without / 10


@pytest.mark.rest
def test_private_gradient_is_what_it_says(private):
    """Each image alone, clipped in NumPy, and summed; padding adds nothing."""
    images, labels = private.load()[:2]
    images, labels, present = private.sample(np.random.default_rng(1), images, labels)
    assert 150 < present.sum() < private.ROOM
    params = private.init(ft.random.key(0))
    sums = None
    for image, label in zip(images, labels[present > 0], strict=False):
        grads = [
            np.asarray(g, "float64") for pair in ft.grad(private.loss)(params, image, label) for g in pair
        ]
        scale = min(1.0, private.CLIP / np.sqrt(sum((g**2).sum() for g in grads)))
        sums = [scale * g + s for g, s in zip(grads, sums or [0.0] * len(grads), strict=True)]
    made = ft.jit(private.private_gradient)(params, images, labels, present)
    for a, b in zip([g for pair in made for g in pair], sums, strict=True):
        assert np.abs(a - b).max() < 1e-5 * np.abs(b).max()


@pytest.mark.parametrize("order", [2, 3, 8, 32])
@pytest.mark.parametrize(("rate", "noise"), [(0.18, 2.5), (0.01, 1.1), (0.5, 4.0)])
def test_renyi_divergence_by_integration(private, rate, noise, order):
    """E_{x ~ N(0, s)} of ((1 - q) + q N(1, s) / N(0, s)) ** order, on a grid."""
    x = np.linspace(-40 * noise, 40 * noise + order, 400_001)
    ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + (2 * x - 1) / (2 * noise**2))
    density = -(x**2) / (2 * noise**2) - np.log(noise * np.sqrt(2 * np.pi))
    expected = np.log(np.sum(np.exp(order * ratio + density)) * (x[1] - x[0])) / (order - 1)
    assert abs(private.renyi(rate, noise, order) - expected) < 1e-9 * max(1, expected)


@pytest.mark.sweep
def test_existing_private_training(flax):
    """A program of JAX's, flax's and optax's: one word changed, and the step is the same."""
    accuracies, params, batch = flax.train(60)
    assert accuracies[-1] > 0.85
    steps = {}
    for name, jit in (("ours", ft.jit), ("theirs", jax.jit)):
        optimizer, step = flax.private(jit)
        steps[name] = step(params, optimizer.init(params), *batch)[0]
    assert_close(steps["ours"], steps["theirs"], 1e-4)
    optimizer, step = flax.private(lambda step: step)
    program = ft.make_ir(step)(params, optimizer.init(params), *batch)
    largest = max(v.type.size for e in optimize(program).equations for v in e.outputs)
    assert largest < flax.BATCH * 512 * 512 / 8  # no gradient of an example is made


@pytest.mark.rest
def test_existing_kernel(kernel, capsys, tmp_path):
    error, apart, _ = kernel.main(48, 150, str(tmp_path / "kernel.png"), rounds=1)
    assert error < 0.2
    assert apart < 1e-5
    assert "ft.jit" in capsys.readouterr().out
    assert (tmp_path / "kernel.png").stat().st_size > 10_000


@pytest.mark.rest
def test_script_of_jax_alone(noise):
    """A script that is not changed, with `jax.jit` taken over."""
    theirs = noise.train(2)[:3]
    with ft.interop.take_over(explain=True, output=io.StringIO()) as taken:
        noise = importlib.reload(noise)
        assert_close(np.array(noise.train(2)[:3]), np.array(theirs), 1e-3)
    (function,) = taken.functions
    (report,) = function.reports
    assert not function.refused
    assert measured(report.after).bytes < measured(report.before).bytes / 10
