"""`make bench`: speed and memory of the engine. Ratios are measured in one run; seconds are this machine's."""

import sys

from benchmarks import engine, scale
from hushrec.errors import HushrecError

if __name__ == "__main__":
    engine.compare("ml-100k", rho=3, reference_rounds=8)
    engine.compare("ml-100k", rho=0)
    try:
        engine.compare("ml-1m", rho=3, num_rounds=30, repeats=3)
    except HushrecError as error:
        print(f"left out: {error}")
    scale.main(scale.SIZES[:2] if "--small" in sys.argv else scale.SIZES)
