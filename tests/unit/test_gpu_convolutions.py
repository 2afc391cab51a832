"""Kernel gradients of examples on GPUs: which convolutions become products, and with what results."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import lax
from functrans.api.programs import make_ir
from functrans.backends import convolutions, reference
from functrans.ir.program import Equation
from functrans.ir.text import with_nested
from functrans.primitives.contractions.convolution import conv_general_dilated
from tests.support.closeness import assert_close

RNG = np.random.default_rng(0)
FORMS: dict[str, dict[str, Any]] = {
    "plain": {"padding": "SAME"},
    "strides": {"padding": "SAME", "window_strides": (2, 1)},
    "edges": {"padding": [(3, -1), (0, 2)]},
    "spread kernel": {"padding": "VALID", "rhs_dilation": (2, 3)},
    "channels last": {"padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")},
    "groups": {"padding": "SAME", "feature_group_count": 2},
}


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def squares(form: dict[str, Any]) -> Any:
    """Return the loss of an example, and examples."""

    def loss(kernel: Any, image: Any) -> Any:
        options = {"window_strides": (1, 1), **form}
        made = lax.conv_general_dilated(image[None], kernel, **options)
        return jnp.sum(jnp.sin(made))

    last, groups = "dimension_numbers" in form, form.get("feature_group_count", 1)
    kernel, images = normal(8, 8 // groups, 3, 2), normal(8, 8, 9, 8)
    if last:
        kernel, images = kernel.transpose(2, 3, 1, 0), images.transpose(0, 2, 3, 1)
    return loss, kernel, images


def rewritten(equations: Iterator[Equation]) -> Iterator[tuple[Equation, Any]]:
    for e in equations:
        (x, y), (out,) = [v.type for v in e.inputs], [v.type for v in e.outputs]
        axes = {k: v for k, v in e.params.items() if k not in ("precision", "preferred")}
        if (form := convolutions.on_gpu(x, y, out, axes, None)) is not None:
            yield e, form


def of(program: ft.ir.Program) -> Iterator[Equation]:
    return (e for p in with_nested(program) for e in p.equations if e.primitive is conv_general_dilated)


@pytest.mark.parametrize("name", FORMS)
def test_results(name: str):
    """The form computes what the convolution does."""
    loss, kernel, images = squares(FORMS[name])
    program = make_ir(ft.vmap(ft.grad(loss), (None, 0)))(kernel, images)
    ((e, form),) = rewritten(of(program))
    operands = [normal(*v.type.shape) for v in e.inputs]
    (expected,) = reference.run_one(e.primitive, operands, e.params)
    assert_close(form(*operands), expected, 1e-4, name)


def lowered(f: Any, *args: Any) -> str:
    return ft.jit(f).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def test_which():
    """Kernel gradients of examples, in programs for GPUs; not those of a batch, of few examples or
    of channels, and not where the patches would take gigabytes."""
    loss, kernel, images = squares(FORMS["plain"])
    private = ft.vmap(ft.grad(loss), (None, 0))
    text = lowered(private, kernel, images)
    assert text.count("stablehlo.convolution") == 1  # the forward one
    assert text.count("stablehlo.dot_general") == 1
    assert lowered(private, kernel, images[:7]).count("stablehlo.convolution") == 2

    def batch(kernel: Any) -> Any:
        return jnp.sum(ft.vmap(loss, (None, 0))(kernel, images))

    assert lowered(ft.grad(batch), kernel).count("stablehlo.convolution") == 2
    alone = squares({"padding": "SAME", "feature_group_count": 8})
    wide = ft.vmap(ft.grad(alone[0]), (None, 0))
    assert lowered(wide, *alone[1:]).count("stablehlo.dot_general") == 0
    big = ft.ShapeDtypeStruct((64, 64, 512, 512), np.dtype("float32"))
    weights = ft.ShapeDtypeStruct((64, 64, 3, 3), np.dtype("float32"))
    assert lowered(private, weights, big).count("stablehlo.convolution") == 2


def test_precision_is_kept():
    def loss(kernel: Any, image: Any) -> Any:
        made = lax.conv_general_dilated(image[None], kernel, (1, 1), "SAME", precision="highest")
        return jnp.sum(jnp.sin(made))

    _, kernel, images = squares(FORMS["plain"])
    text = lowered(ft.vmap(ft.grad(loss), (None, 0)), kernel, images)
    assert "precision = [HIGHEST, HIGHEST]" in text.partition("stablehlo.dot_general")[2].partition("\n")[0]
