"""`python -m functrans`: is everything here, and does it compute what it should?"""

import argparse
import sys

from functrans.inspect.doctor import doctor

if __name__ == "__main__":
    about = "Say what is installed, and compare every operation with the reference on each device."
    argparse.ArgumentParser(prog="python -m functrans", description=about).parse_args()
    sys.exit(0 if doctor() else 1)
