"""What is chosen by a word, in Python and on the command line. Nothing is loaded for it: help comes at once."""

from typing import Literal

SplitKind = Literal["folds", "random", "latest", "leave-one-out", "shared", "global-time", "partners", "pooled"]
Deals = Literal["each", "one"]
Measure = Literal["test", "validation"]  # validation: for choosing settings, the test part is left alone
Duplicates = Literal["error", "last", "mean"]
Side = Literal["server", "client"]  # whose model
Relay = Literal["direct", "onion"]  # how sealed mail travels
EngineName = Literal["nvflare", "flower"]  # what carries packets
ExportForm = Literal["arrow", "parquet", "onnx"]  # what a model is handed over as
TrackerName = Literal["mlflow", "tensorboard", "wandb", "trackio"]  # who is told of every round
