"""What is chosen by a word, in Python and on the command line. Nothing is loaded for it: help comes at once."""

from typing import Literal

SplitKind = Literal["folds", "random", "latest", "leave-one-out", "shared", "global-time", "partners", "pooled"]
Deals = Literal["each", "one"]
Measure = Literal["test", "validation"]  # validation: for choosing settings, the test part is left alone
Duplicates = Literal["error", "last", "mean"]
Side = Literal["server", "client"]  # whose model
Relay = Literal["direct", "onion"]  # how sealed mail travels
EngineName = Literal["nvflare", "flower"]  # what carries packets
