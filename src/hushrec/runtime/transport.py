"""What an engine must do for us: carry bytes to nodes and bring their replies back. Losses are data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Delivery:
    """What became of one call: replies by node, and why the others sent none (one line each)."""

    replies: dict[str, bytes]
    lost: dict[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """Carries packets between the driving side and nodes. It knows nothing of recommenders."""

    def call(
        self, phase: str, requests: Mapping[str, bytes], round_number: int, timeout_seconds: float
    ) -> Delivery:
        """Send each node its packet, all at once, and wait for the replies; a late one is lost."""
        ...
