"""What the parties of DRIFT and SAROS have agreed on. Used by `drift`."""

from typing import NamedTuple, Protocol

from hushrec.systems.drift.blocks import Reading, Threshold
from hushrec.systems.drift.cipher import Form
from hushrec.systems.drift.gradients import BlockLoss


class Plan(NamedTuple):
    """How they learn; names as in `drift.Config`."""

    num_factors: int
    learning_rate: float
    regularization: float
    window: int
    parts: int
    recommended: int
    ends_blocks: bool  # whether open ones end with an epoch
    theta: int
    threshold: Threshold
    max_delay: int
    form: Form
    blocks: Reading
    block_loss: BlockLoss
    has_owners: bool = True  # several, that may come and go; else one that holds everything
    min_blocks: int = 0  # of a user that is learned from: SAROS alone has these two
    max_blocks: int = 0
    unseen: int = 0  # drawn before each good event
    users_keep_vectors: bool = False  # the users' side holds users' vectors, not the orchestrator
    bias_pace: float = 0.0  # how much faster biases go than vectors; 0: there are none

    @property
    def num_columns(self) -> int:
        """Length of a vector, with the item's bias."""
        return self.num_factors + (self.bias_pace > 0)


class Planned(Protocol):
    """A config from which the plan can be read: DRIFT's, SAROS's."""

    @property
    def plan(self) -> Plan:
        """All settings that the protocol uses."""
        ...
