"""Who catches what: the tests against each planted fault.

    python -m tests.faults                       # the default run against all of them
    python -m tests.faults -m smoke              # the smoke run
    python -m tests.faults NAME ... --jobs 2 --limit 900

For each fault the checkout is copied, the fault is made in the copy, and pytest runs there until
the first failure, or until `--limit` seconds are over. The last catcher of a fault stands
in `caught.md` and is run first, so that a second round takes minutes; `--fresh` does without.
`--write` writes `caught.md` anew.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.faults.planted import FAULTS, ROOT, Fault

RECORD = Path(__file__).parent / "caught.md"
FIT = "tests/unit/test_house.py::test_planted_faults_fit_the_code_that_they_spoil"  # not in a copy
FAILED = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)
Outcome = str | None  # the test that failed; None: none did


class Verdict(NamedTuple):
    fault: str
    by: Outcome
    seconds: float


def main() -> int:
    options = _arguments()
    faults = [FAULTS[name] for name in options.names or FAULTS]
    known = {} if options.fresh else _recorded(options.marker)
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = []
        for verdict in pool.map(lambda f: _try(f, options, known.get(f.name)), faults):
            print(f"{verdict.seconds:6.0f} s  {verdict.fault}: {verdict.by or 'NOT CAUGHT'}", flush=True)
            verdicts.append(verdict)
    caught = [v for v in verdicts if v.by]
    print(f"{len(caught)} of {len(verdicts)} caught")
    if options.write:
        _write(options.marker, verdicts)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of faults; all if none is given")
    parser.add_argument("-m", dest="marker", default="", help="the marker of the tests to run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at a time")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for one fault")
    parser.add_argument("--fresh", action="store_true", help="do not begin with the last catcher")
    parser.add_argument("--write", action="store_true", help="write caught.md anew")
    return parser.parse_args()


def _try(fault: Fault, options: argparse.Namespace, catcher: Outcome) -> Verdict:
    """Who fails in a copy of the checkout that has the fault?"""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        copy = Path(folder)
        _copy_checkout(copy)
        (copy / fault.file).write_text(fault.applied())
        which = ["-m", f"{options.marker or 'not sweep and not heavy'} and not rest"]  # with a path, too
        by = None
        if catcher:
            by = _first_failure(copy, [*which, catcher.partition("[")[0]], options.limit)
        if by is None:
            by = _first_failure(copy, which, options.limit)
    return Verdict(fault.name, by, time.monotonic() - begun)


def _copy_checkout(to: Path) -> None:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in files:
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def _first_failure(copy: Path, which: list[str], limit: float) -> Outcome:
    """The first test that fails; one that ends the process has failed too."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.setdefault("FUNCTRANS_TEST_CACHE", str(ROOT / ".test_cache"))
    options = ["-x", "-n", "1", "-p", "no:cacheprovider", "--deselect", FIT]
    command = [sys.executable, "-m", "pytest", *options, *which]
    child = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return None
    if child.returncode in (0, 5):
        return None
    failed = FAILED.search(said)
    return failed.group(1) if failed else f"(pytest ended with {child.returncode}) {said[-300:]}"


def _recorded(marker: str) -> dict[str, Outcome]:
    """fault -> the test that caught it last time in this run or another."""
    if not RECORD.exists():
        return {}
    column = 2 if marker == "smoke" else 1
    rows = [line.strip("|\n ").split(" | ") for line in RECORD.read_text().splitlines()]
    return {
        row[0].strip("`"): row[column].strip("`")
        for row in rows
        if len(row) == 3 and row[0].strip("`") in FAULTS and row[column].startswith("`")
    }


def _write(marker: str, verdicts: list[Verdict]) -> None:
    """Put the verdicts of a run into its column of the record."""
    columns = {m: _recorded(m) for m in ("", "smoke")}
    for v in verdicts:
        columns[marker].pop(v.fault, None)
        if v.by:
            columns[marker][v.fault] = v.by
    lines = [
        "# Who catches which planted fault",
        "",
        "Written by `python -m tests.faults --write`, and with `-m smoke`: the first that failed.",
        "What each fault does stands in the texts beside this file.",
        "",
        f"Of {len(FAULTS)} the default run catches {len(columns[''])}, the smoke run "
        f"{len(columns['smoke'])}.",
        "",
        "| fault | default run | smoke run |",
        "|---|---|---|",
    ]
    for name in FAULTS:
        cells = [columns[m].get(name) for m in ("", "smoke")]
        shown = [f"`{c}`" if c else "not caught" for c in cells]
        lines.append(f"| `{name}` | {shown[0]} | {shown[1]} |")
    RECORD.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
