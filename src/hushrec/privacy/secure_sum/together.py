"""Participants that stay together, so that no difference of sums is of few.

All sums that a server has seen cut the clients into blocks: those who were in the same sums. Whatever it computes
of the sums is computed of sums over blocks. So with blocks of at least k, nothing that sums tell, those of all
rounds together, is of fewer than k clients. Participants are drawn in fixed groups, as drawn anew they would soon
be cut into single ones. Who is missing when a sum begins may cut a block, if both parts have k; some others stay
out if that is needed for it, or the whole block. If some are lost later so that a block would be cut otherwise,
nothing is unmasked, and the round passes without an update.

Guarantee: of a server that follows the protocol. Clients do not know the blocks, and do not check this.
"""

from collections.abc import Sequence
from dataclasses import fields, make_dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.errors import HushrecError, option
from hushrec.privacy.secure_sum.settings import SecureSums, is_secure
from hushrec.protocol import NO_ONE, Numbers, draw_participants, kept

Blocks = NDArray[np.int32]
State = TypeVar("State")


def fixed_groups(num_parties: int, num_groups: int, config: SecureSums, draws: Draws) -> list[Numbers]:
    """All parties in groups of equal size, the same in all rounds of a run, each ascending."""
    order = draws.generator("secure-sum-groups").permutation(num_parties).astype(np.int32)
    bounds = np.linspace(0, num_parties, num_groups + 1).astype(np.int64)
    smallest = int(np.diff(bounds).min())
    if smallest < config.secure_together:
        raise HushrecError(
            f"{option('secure_together', config.secure_together)} is more than the {smallest} who take part in a "
            f"sum; let more take part in each"
        )
    return [np.sort(order[first:last]) for first, last in pairwise(bounds)]


def draw_group(num_parties: int, share: float, round_number: int, config: object, draws: Draws) -> Numbers:
    """Participants of a round, ascending: a fixed group if the settings say so, each in turn; else drawn anew."""
    if not is_together(config) or share >= 1:
        return draw_participants(num_parties, share, round_number, draws)
    assert isinstance(config, SecureSums)
    groups = fixed_groups(num_parties, max(round(1 / share), 1), config, draws)
    turn, place = divmod(round_number - 1, len(groups))
    return groups[int(draws.generator("secure-sum-turns", turn).permutation(len(groups))[place])]


def is_together(config: object) -> bool:
    """Whether participants stay together."""
    return is_secure(config) and isinstance(config, SecureSums) and config.secure_together > 0


class Together:
    """The blocks that sums have cut the clients into, and which sums may be made."""

    def __init__(self, blocks: Blocks, least: int, generator: np.random.Generator) -> None:
        self.blocks, self._least, self._generator = blocks.copy(), least, generator

    def admitted(self, present: Numbers) -> Numbers:
        """Those of who is present whose sum cuts no block into fewer than the least; ascending."""
        return np.sort(
            np.concatenate([NO_ONE, *(self._of_block(own, block) for own, block in self._met(present))])
        )

    def _of_block(self, own: Numbers, block: int) -> Numbers:
        if block == 0:  # never summed: what is not in this sum either is in none
            return own if len(own) >= self._least else NO_ONE
        size = int((self.blocks == block).sum())
        missing = size - len(own)
        if missing == 0 or (missing >= self._least and len(own) >= self._least):
            return own
        if len(own) < self._least or size < 2 * self._least:
            return NO_ONE
        return np.sort(self._generator.permutation(own)[: size - self._least])

    def allows(self, survivors: Numbers) -> bool:
        """Whether their sum leaves every block whole, or cuts it into parts that are large enough."""
        return len(self.admitted(survivors)) == len(survivors)

    def note(self, survivors: Numbers) -> None:
        """Their sum was seen."""
        for own, _ in self._met(survivors):
            self.blocks[own] = self.blocks.max() + 1

    def _met(self, numbers: Numbers) -> Sequence[tuple[Numbers, int]]:
        """Some clients by their blocks."""
        of = self.blocks[numbers]
        return [(numbers[of == block], int(block)) for block in np.unique(of)]


def with_blocks(state: State, num_parties: int) -> State:
    """The same state of a server, which remembers blocks besides."""
    values = {entry.name: getattr(state, entry.name) for entry in fields(state)}  # type: ignore[arg-type]
    kind: Any = type(state)
    made: State = _kind(kind)(**values, sum_blocks=np.zeros(num_parties, np.int32))
    return made


@cache
def _kind(kind: Any) -> Any:
    columns = [("sum_blocks", NDArray[np.int32], kept())]
    return make_dataclass(f"{kind.__name__}WithBlocks", columns, bases=(kind,), kw_only=True, frozen=True)
