"""Orders that did not fit a node's files: a few, and then its owner has to look.

Whether an order fits depends on what is rated here. By orders whose catalogues lack an item each, a server could
read off the refusals which of these somebody has. So a node keeps a list of orders that it could not use, in
`private/misfits.txt`, and after `MOST_MISFITS` it takes part in no new run, whatever the order, until its owner
has removed the list. The same catalogue again tells nothing new, and does not count.

Not protected: so many items of the server's choice each time; that nobody has what a catalogue lacks that fits.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from hushrec.deploy.consent import NotAgreed
from hushrec.deploy.orders import Invitation

MOST_MISFITS = 3


class Misfits:
    """The list of a node."""

    def __init__(self, kit: Path) -> None:
        self._path = kit / "private" / "misfits.txt"

    @contextmanager
    def counting(self, invitation: Invitation) -> Iterator[None]:
        """Refuse a new order after too many that did not fit; if this one does not, note it, then tell."""
        told = [invitation.system, invitation.catalogue, invitation.rating_range]
        order = sha256(msgspec.msgpack.encode(told)).hexdigest()
        known = self._known()
        if len(known) >= MOST_MISFITS and order not in known:
            raise NotAgreed(
                f"{len(known)} orders did not fit this node's files; its owner can look at private/misfits.txt "
                "and remove it, then order again"
            )
        try:
            yield
        except Exception:
            if order not in known:
                self._note(order)
            raise

    def _known(self) -> set[str]:
        if not self._path.exists():
            return set()
        return {line.partition(" ")[0] for line in self._path.read_text(encoding="utf-8").splitlines()}

    def _note(self, order: str) -> None:
        line = f"{order} {datetime.now(UTC).isoformat(timespec='seconds')} see node.log\n"
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb", 0) as file:
            file.write(line.encode())
            os.fsync(file.fileno())
