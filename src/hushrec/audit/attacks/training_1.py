"""Training on 1% of the answers; see `training.py`."""

from hushrec.audit.attacks.training import training_on

ATTACK = training_on(0.01)
