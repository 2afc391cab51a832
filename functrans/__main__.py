"""`python -m functrans`: is everything here, and does it compute what it should?"""

import sys

from functrans.inspect.doctor import doctor

if __name__ == "__main__":
    sys.exit(0 if doctor() else 1)
