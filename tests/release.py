"""`python -m tests.release`: build the sdist and the wheel, and test each where nothing else is.

    python -m tests.release                                # both, in environments of this Python
    python -m tests.release --only wheel --python python3.13

Both are checked by twine. Each is installed, with the extra `test`, into a new environment, or into one
that holds what it needs already (`--environment FOLDER`). The smoke tests, and the two that read the
types, are then run there in the unpacked sdist without its `functrans/`. So the installed package is
what is tested, and the sdist holds all that its tests need. The files are left in `dist/`. Needs the
extra `release`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
KINDS = {"wheel": "*.whl", "sdist": "*.tar.gz"}
WHERE = "import functrans; print(functrans.__version__, functrans.__file__)"


def build() -> dict[str, Path]:
    """The files: the sdist is made of the checkout, the wheel of the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", DIST, ROOT, quiet=True)
    files = {kind: next(DIST.glob(pattern)) for kind, pattern in KINDS.items()}
    _run(sys.executable, "-m", "twine", "check", "--strict", *files.values())
    return files


def unpack_without_package(sdist: Path, to: Path) -> Path:
    """The folder of the sdist, with everything but the package."""
    with tarfile.open(sdist) as archive:
        archive.extractall(to, filter="data")
    (folder,) = to.iterdir()
    shutil.rmtree(folder / "functrans")
    return folder


def environment(python: str, file: Path, at: Path) -> Path:
    """The Python of an environment in which the file is installed; a new one, if none is there."""
    if not at.exists():
        _run(python, "-m", "venv", at)
    inside = at / ("Scripts" if os.name == "nt" else "bin") / "python"
    _run(inside, "-m", "pip", "install", "-q", "--no-compile", f"{file}[test]")
    return inside


def check(python: Path, folder: Path) -> None:
    """Run the tests of a folder against the package that is installed in an environment."""
    where = _run(python, "-c", WHERE, folder=folder, quiet=True).split(maxsplit=1)
    print(f"functrans {where[0]} in {where[1]}", flush=True)
    assert python.parents[1] in Path(where[1].strip()).parents, "not the installed package"
    _run(python, "-m", "tests.known_types", folder=folder)
    _run(python, "-m", "pytest", "-m", "sweep", "tests/unit/test_types.py", folder=folder)
    _run(python, "-m", "pytest", "tests", "-n", "2", "-m", "smoke and not rest", folder=folder)


def _run(*words: str | Path, folder: Path = ROOT, quiet: bool = False) -> str:
    print("$", *words, flush=True)
    around = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    around.setdefault("FUNCTRANS_TEST_CACHE", str(ROOT / ".test_cache"))
    pipe = subprocess.PIPE if quiet else None
    done = subprocess.run(words, cwd=folder, env=around, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout or ''}failed: {' '.join(map(str, words))}")
    return done.stdout or ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--only", choices=KINDS, help="install and test this one only")
    parser.add_argument("--python", default=sys.executable, help="makes the environments")
    parser.add_argument(
        "--environment", type=Path, metavar="FOLDER", help="where to install, if not in new ones"
    )
    options = parser.parse_args()
    files = build()
    for kind in [options.only] if options.only else KINDS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="functrans-") as name:
            folder = unpack_without_package(files["sdist"], Path(name, "unpacked"))
            at = options.environment or Path(name, "environment")
            check(environment(options.python, files[kind], at), folder)
        print(f"{kind}: well, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
