"""Speed and memory, as ratios measured in one run; no part of the tests."""
