"""Programs as text, before and after a pass."""

import re

from functrans.ir import Program, parse, show
from functrans.passes import pipeline

ALONE = {p.name: p.run for p in pipeline.TABLE}
EXACT = {p.name: p.exact for p in pipeline.TABLE if p.exact is not None}


def body(program: Program) -> list[str]:
    """The equations and the result of a program, without types of results."""
    lines = [re.sub(r"(\w+): [~\w]+\[[^]]*\]( =|,)", r"\1\2", x) for x in show(program).split("\n")]
    return [line.strip() for line in lines[1:-1]]


X = "program (x: f32[3]) {"


INPUTS = {**dict.fromkeys("xyz", "f32[3]"), "n": "i32[3]", "m": "f32[2,3]", "s": "f32[]", "p": "bool[3]"}


def inputs_of(text: str) -> str:
    """Those of INPUTS that a program reads."""
    names = re.findall(r"\b[a-z]\b", re.sub(r"\[[^]]*\]|\w+ =", "", text))
    return ", ".join([f"{name}: {INPUTS[name]}" for name in sorted({*names} & {*INPUTS})])


def read(text: str, inputs: str) -> Program:
    """A program of lines `a = sin x; return a`, with the types that follow from those of its inputs,
    `x: f32[3], y: i32[2]`; or one that is written out."""
    if text.startswith("program"):
        return parse(text)
    types = dict(re.findall(r"(\w+): ([^ ]+?)(?:, |$)", inputs))
    lines = []
    for line in text.split("; "):
        names, _, operation = line.partition(" = ")
        if operation:
            given = ", ".join([f"{name}: {t}" for name, t in types.items()])
            (e,) = parse(f"program ({given}) {{ result: f32[] = {operation}; return result }}").equations
            made = e.primitive.abstract_eval(*[v.type for v in e.inputs], **e.params)
            made = made if isinstance(made, (list, tuple)) else [made]
            results = dict(zip(names.split(", "), map(str, made), strict=True))
            types |= results
            line = f"{', '.join([f'{name}: {t}' for name, t in results.items()])} = {operation}"
        lines.append(line)
    return parse(f"program ({inputs}) {{ {'; '.join(lines)} }}")
