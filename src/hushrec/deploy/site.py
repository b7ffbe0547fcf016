"""A node's side of a job: packets in, packets out."""

from pathlib import Path


class Site:
    """Placeholder while the engines are built: answers with what it got."""

    def handle(self, packet: bytes) -> bytes:
        """The reply to one packet."""
        return packet


def open_site(kit: Path) -> Site:
    """The site that a kit's folder describes."""
    return Site()
