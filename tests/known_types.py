"""`python -m tests.known_types`: how many of the public names have types that a checker knows.

basedpyright counts them, and this fails below the share that we keep. It reads the environment
whose Python runs it, and the package that is imported there: the one beside this folder or, where
none is, the installed one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import functrans

WANTED = 0.98


def report() -> dict[str, object]:
    """What basedpyright says of the package."""
    around = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        # an editable installation has no folder that it would find
        "PYTHONPATH": str(Path(functrans.__file__).parents[1]),
    }
    asked = ["-m", "basedpyright", "--verifytypes", "functrans", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(
        [sys.executable, *asked], env={**os.environ, **around}, capture_output=True, text=True
    )
    return json.loads(done.stdout)["typeCompleteness"]


def main() -> None:
    said = report()
    score = float(said["completenessScore"])
    unknown = [s["name"] for s in said["symbols"] if s["isExported"] and not s["isTypeKnown"]]
    print(f"{score:.2%} of the public names of {said['packageRootDirectory']} have known types;")
    print(f"{WANTED:.0%} are wanted.")
    if score < WANTED:
        print("Unknown or guessed:", *sorted(unknown), sep="\n  ")
        sys.exit(1)


if __name__ == "__main__":
    main()
