"""Makes `benchmarks.reference`, the slow implementation, importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
