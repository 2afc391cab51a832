"""`python -m functrans` checks the installation and compares all operations with their references.
`python -m functrans run SCRIPT` runs a JAX script with `jax.jit` replaced by ours."""

import argparse
import sys

import functrans
from functrans.interop.scripts import run

if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])  # before JAX is imported: the script may configure it
        sys.exit()
    about = "Show what is installed, and compare every operation with its reference on each device."
    parser = argparse.ArgumentParser(prog="python -m functrans", description=about)
    told = "doctor is the default; for run, see: python -m functrans run --help"
    parser.add_argument("command", nargs="?", choices=("doctor", "run"), help=told)
    parser.parse_args()
    sys.exit(0 if functrans.doctor() else 1)
