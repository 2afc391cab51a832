"""`profile`: that what was measured is led back to the right lines; never how long it took."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as jnp
from functrans import errors, lax
from functrans.inspect.explore import explore
from functrans.inspect.profile import placing
from functrans.inspect.profile.placing import RUN, Compiled, Span, Work, at_work, kernels, pieces, spans
from functrans.ir.source import text_of

pytestmark = pytest.mark.smoke

W, X = np.full((64, 32), 0.1, np.float32), np.full((48, 64), 0.1, np.float32)


def profiled(f, *args, **how):
    return ft.profile(f, repeats=2, **how)(*args)


def texts(rows) -> set[str]:
    """The text of the lines that rows are named by."""
    return {row.name.partition("  ")[2] or row.name for row in rows}


def loss(w, x):
    h = jnp.tanh(x @ w)
    return jnp.sum(h * h)


# --- lines ----------------------------------------------------------------------------------------


def test_what_was_measured_is_placed():
    report = profiled(loss, W, X)
    assert texts(report.lines) == {"h = jnp.tanh(x @ w)", "return jnp.sum(h * h)"}
    assert all(row.name.startswith(f"{__file__}:") for row in report.lines)
    found = {row.name: row for row in report.operations}
    assert {"dot_general", "tanh", "reduce_sum"} <= set(found)
    assert found["dot_general"].flops == 2 * 48 * 64 * 32
    assert found["dot_general"].calls == 1
    assert found["dot_general"].flops_per_second > 0
    assert report.repeats == 2
    assert min(report.milliseconds, report.profiled, report.busy) > 0


@pytest.mark.parametrize(
    ("f", "x"),
    [(ft.jit(ft.grad(loss)), X), (ft.vmap(ft.grad(loss), (None, 0)), np.stack([X, X]))],
    ids=["jitted", "batched"],
)
def test_shares_add_up(f, x):
    report = profiled(f, W, x)
    assert {"h = jnp.tanh(x @ w)"} <= texts(report.lines)
    for rows in (report.lines, report.operations, report.equations):
        assert sum(row.share for row in rows) == pytest.approx(1)
        assert sum(row.milliseconds for row in rows) == pytest.approx(report.busy)
        assert [r.milliseconds for r in rows] == sorted([r.milliseconds for r in rows])[::-1]
    assert sum(k.milliseconds for k in report.kernels) == pytest.approx(report.busy)


def two_lines(x):
    y = jnp.sin(x)
    return y * 2.0 + 1.0


def test_a_fused_operation_is_shared_among_its_lines_by_flops():
    report = profiled(two_lines, X)
    (kernel,) = [k for k in report.kernels if len(k.equations) > 1]
    assert {text_of(e.source) for e in kernel.equations} == texts(report.lines)
    found = {row.name: row for row in report.operations}
    assert found["sin"].share == pytest.approx(10 * found["mul"].share)  # as `ft.cost` has it
    # One reads the argument and one writes the result; what is between stays inside.
    moved = [found[name].bytes for name in ("sin", "mul", "add")]
    assert moved == pytest.approx([4 * X.size, 0, 4 * X.size])


# --- loops ----------------------------------------------------------------------------------------


def test_steps_of_a_loop_are_added_up():
    def f(w, x):
        def step(c, _):
            return jnp.tanh(c @ w), None

        return lax.scan(step, x, None, length=5)[0]

    report = profiled(f, W[:32], X[:, :32])
    (row,) = [row for row in report.operations if row.name == "dot_general"]
    assert (row.calls, row.flops) == (5, 5 * 2 * 48 * 32 * 32)
    assert "return jnp.tanh(c @ w), None" in texts(report.lines)
    assert any("lax.scan" in line for line in texts(report.lines))  # what the loop does itself

    def until(x):
        return lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 1, c[1] @ c[1]), (0, x))

    report = profiled(until, W[:32])  # as they ran
    (row,) = [row for row in report.operations if row.name == "dot_general"]
    assert row.calls == 7
    assert row.flops == pytest.approx(7 * 2 * 32**3, rel=1e-3)


def small_loop(x):
    def step(i, c):
        s = jnp.sin(c)
        return s * c + 1.0

    return lax.fori_loop(0, 50, step, x)


def test_a_loop_as_one_kernel_is_one_row_with_its_lines():
    report = profiled(small_loop, np.ones(4, np.float32))  # XLA makes a kernel of so small a loop
    (row,) = [row for row in report.lines if row.inside]
    assert row.name.startswith("one kernel (loop at ")
    assert "test_profile.py" in row.name
    shown = {line.partition("  ")[2] for line in row.inside}
    assert {"s = jnp.sin(c)", "return s * c + 1.0"} <= shown
    assert row.flops == 50 * (10 + 1 + 1) * 4
    assert "scan (one kernel)" in texts(report.operations)
    assert "cannot see into" in " ".join(str(report).split())
    assert all(line in str(report) for line in row.inside)


def test_what_is_compiled_is_measured_also_where_jit_is_disabled():
    with jax.disable_jit():
        assert texts(profiled(jnp.sin, X).operations) == {"sin"}


# --- what it is given -----------------------------------------------------------------------------


def test_static_arguments_programs_and_nothing():
    power = ft.jit(lambda x, n, mode="sum": getattr(x**n, mode)(), static_argnames=("n", "mode"))
    assert "reduce_prod" in texts(ft.profile(power, repeats=1)(X, 3, mode="prod").operations)
    program = ft.make_ir(loss)(W, X)
    assert "dot_general" in texts(profiled(program, W, X, passes=()).operations)
    report = profiled(lambda x: (), X)
    assert (report.lines, report.busy) == ([], 0)
    assert "0 XLA operations" in str(report)


def test_a_callback_without_effects_is_repeated():
    doubled = profiled(lambda x: ft.pure_callback(lambda a: 2 * a, x, x) @ x.T, X)
    assert "dot_general" in texts(doubled.operations)


def test_what_is_not_measured(monkeypatch, tmp_path):
    """Where another profile is running, or the device tells nothing."""
    with jax.profiler.trace(tmp_path), pytest.raises(errors.NotMeasured, match="stop the other one first"):
        profiled(loss, W, X)
    monkeypatch.setattr(placing, "recorded", lambda *_: ([], 0.0))
    with pytest.raises(errors.NotMeasured, match=r"(?s)recorded no operation on.*ft\.cost"):
        profiled(loss, W, X)


# --- shown ----------------------------------------------------------------------------------------


def test_new_pages_of_memory():
    report = ft.profile(jnp.sin, repeats=1)(jnp.ones(4))
    assert 0 <= report.new_pages == report.as_dict()["new_pages"]
    report.new_pages = 11_003
    for text in (str(report), report.as_html()):
        assert "11,003 new pages of memory" in text
        assert "ft.keep_memory()" in text


LARGE_RESULTS = """
import resource, jax, jax.numpy as jnp
f, x, pages = jax.jit(lambda x: x + 1), jnp.ones(10_000_000), []
for _ in range(12):
    f(x).block_until_ready()
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(min(after - before for before, after in zip(pages, pages[1:])))
"""


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux", reason="asks glibc")
def test_kept_memory(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LARGE_RESULTS)

    def started(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "functrans", "run", *words, str(script)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    both = started("--keep-memory"), started()
    kept, plain = [int(process.communicate()[0]) for process in both]
    assert kept < 100
    assert plain > 4_000


def test_memory_is_not_kept(monkeypatch):
    monkeypatch.setattr("functrans.api.memory._KEEPING", ())
    jax.devices()
    with pytest.warns(UserWarning, match=r"Call ft.keep_memory\(\) before the first computation"):
        ft.keep_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not ft.keep_memory()


def test_saved_reports(tmp_path):
    report = profiled(ft.grad(loss), W, X)
    report.save(tmp_path / "p.json")
    report.save(tmp_path / "p.html")
    data = json.loads((tmp_path / "p.json").read_text())
    assert [row["name"] for row in data["lines"]] == [row.name for row in report.lines]
    assert report.kernels[0].name in (tmp_path / "p.html").read_text()


def test_times_on_the_page_of_stages(tmp_path):
    report = profiled(loss, W, X)
    page = explore(loss, tmp_path / "p.html", profile=report)(W, X)
    data = json.loads(page.read_text().partition('id="data">')[2].partition("</script>")[0])
    took = {s["name"]: sum(s["columns"][-1]) for s in data["stages"]}
    assert took["source"] == pytest.approx(report.busy, abs=1e-5)
    assert took["optimized"] == pytest.approx(report.busy, abs=1e-5)
    assert took["traced"] == took["StableHLO"] == 0


# --- its parts, by hand ---------------------------------------------------------------------------

MODULE = """HloModule jit_run, is_scheduled=true

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %a.1 = f32[4]{0} sine(%p), metadata={op_name="jit(run)/functrans_equation_0/f" stack_frame_id=1}
  ROOT %b.1 = f32[4]{0} add(%a.1, %p), metadata={op_name="jit(run)/functrans_equation_9/g/functrans_equation_1/f"}
}

%body (t: (s32[], f32[4])) -> (s32[], /*index=1*/f32[4]) {
  %t = (s32[], f32[4]{0}) parameter(0)
  %copy.1 = f32[4]{0} copy(%t)
  ROOT %fusion.1 = (s32[], /*index=1*/f32[4]{0}) fusion(%copy.1), kind=kLoop, calls=%fused
}

%other (q: f32[4]) -> f32[4] {
  ROOT %q = f32[4]{0} parameter(0)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0), metadata={op_name="x"}
  %copy.2 = f32[4]{0} copy(%x)
  %loop.1 = (s32[], f32[4]{0}) while(%copy.2), condition=%cond, body=%body, metadata={op_name="jit(run)/functrans_equation_2/f"}
  ROOT %end = f32[4]{0} conditional(%loop.1), branch_computations={%other, %body}
}
"""  # noqa: E501


def test_the_text_of_a_compiled_program():
    compiled = Compiled(MODULE)
    operations = compiled.operations
    assert compiled.name == "jit_run"
    assert operations["end"].computations == ("other", "body")
    assert operations["loop.1"].kind == "while"
    assert compiled.numbers(operations["fusion.1"], False) == (0, 1)
    assert compiled.numbers(operations["loop.1"], True) == (2,)
    assert compiled.numbers(operations["copy.2"], False) == ()


def test_moments_are_shared_by_what_runs_then():
    found = [Span(0, 0, 100, "loop"), Span(0, 10, 30, "a"), Span(0, 20, 40, "b")]
    assert at_work(found, {"loop"}) == {"loop": 70, "a": 15, "b": 15}
    again = [Span(0, 0, 10, "a"), Span(0, 20, 30, "a"), Span(0, 30, 30, "b")]
    assert at_work(again, ()) == {"a": 20}


def event(name: str, start: float, long: float, **stats: Any) -> Any:
    return SimpleNamespace(name=name, start_ns=start, duration_ns=long, stats=stats.items())


def plane(name: str, **lines: Any) -> Any:
    made = [SimpleNamespace(name=n.replace("_", " "), events=e) for n, e in lines.items()]
    return SimpleNamespace(name=name, lines=made)


RUNS = [event(RUN, 0, 90), event(RUN, 100, 90)]


def test_the_events_of_a_cpu():
    """An operation ends when its work on other threads does."""
    mine = {"hlo_op": "dot.1", "hlo_module": "jit_run"}
    started = [event("dot.1", 10, 5, **mine, _p=7), event("x", 20, 1, hlo_op="x", hlo_module="y")]
    other = [event("end: dot.1", 40, 1, _c=7), event("dot.1", 120, 30, **mine)]
    found = spans([plane("/host:CPU", python=RUNS, one=started, two=other)], "jit_run")
    assert found == [Span(0, 10, 40, "dot.1"), Span(1, 120, 150, "dot.1")]


def test_the_events_of_a_gpu():
    """Those of its streams count; not what the host did to start them, nor lines for viewers."""
    mine = {"hlo_op": "fusion.1", "hlo_module": "jit_run"}
    host = plane("/host:CPU", python=[*RUNS, event("fusion.1", 1, 2, **mine)])
    kernel = event("loop_add_fusion", 110, 30, **mine, correlation_id=3)
    streams = {"Stream_#13(Compute)": [kernel], "XLA_Ops": [event("fusion.1", 110, 30, **mine)]}
    found = spans([host, plane("/device:GPU:0", **streams)], "jit_run")
    assert found == [Span(1, 110, 140, "fusion.1")]


def test_an_operation_without_an_equation_is_not_placed():
    program = ft.make_ir(lambda x: jnp.sin(x) + x)(np.ones(4, np.float32))
    equations = [*program.equations, program.equations[0]]
    seen = [Span(0, 0, 4e6, "copy.2"), Span(0, 4e6, 10e6, "fusion.1"), Span(0, 10e6, 11e6, "new")]
    found = kernels(Compiled(MODULE), seen, equations)
    assert [(k.name, k.milliseconds) for k in found] == [("fusion.1", 6), ("copy.2", 4), ("new", 1)]
    sine, total = program.equations
    made = pieces(found, {sine: Work(10, 0), total: Work(2, 0)}, 100)
    assert [(p.equation, p.milliseconds) for p in made] == [(sine, 5), (total, 1), (None, 4), (None, 1)]
    alike = pieces(found[:1], {}, 100)
    assert [p.milliseconds for p in alike] == [3, 3]
