"""The planted faults, as they stand in the texts beside this file.

A fault is a name, a sentence that says what is wrong, a file, the lines that are taken out of it
(`-`) and those that are put there (`+`):

    ## name-of-the-fault
    What is wrong.
    functrans/folder/file.py
    -    return x, y
    +    return y, x
"""

import ast
from dataclasses import dataclass
from pathlib import Path

import functrans as ft

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ft.__file__).parents[1]  # the folder around it, which may be an installation


@dataclass(frozen=True)
class Fault:
    name: str
    sentence: str
    file: str
    removed: str
    added: str

    def applied(self, root: Path = PACKAGE) -> str:
        """The text of the file with the fault in it, which must be Python."""
        text = (root / self.file).read_text()
        found = text.count(self.removed)
        if found != 1:
            raise ValueError(f"{self.name}: its lines stand {found} times in {self.file}, not once")
        wrong = text.replace(self.removed, self.added)
        ast.parse(wrong)
        return wrong


def read(text: str) -> list[Fault]:
    faults = []
    for block in text.split("## ")[1:]:
        name, sentence, file, *lines = block.rstrip("\n").split("\n")
        sides = {side: "".join([f"{line[1:]}\n" for line in lines if line[:1] == side]) for side in "-+"}
        faults.append(Fault(name, sentence, file, sides["-"], sides["+"]))
    return faults


FAULTS = {
    fault.name: fault
    for path in sorted(Path(__file__).parent.glob("*.txt"))
    for fault in read(path.read_text())
}
