"""What the owner of a node decided, and what the node needs room for."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hushrec.data.holdings.node_files import NodeFiles
from hushrec.errors import HushrecError
from hushrec.files import write_private_file
from hushrec.protocol import AnySystem
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import cohort_bounds
from hushrec.runtime.packets import MAX_PACKET_BYTES


def _guarded_systems() -> list[str]:
    """Systems in which the server does not get the ratings themselves; others must be allowed by name."""
    return sorted(
        name for name in SYSTEMS if SYSTEMS.is_built_in(name) and not SYSTEMS[name].about.hands_over_data
    )


@dataclass(frozen=True)
class NodeSettings:
    """What the owner of a node decided. Kept on the node; the server never sees or sets it."""

    files: NodeFiles
    systems: list[str] = field(default_factory=_guarded_systems)
    required: dict[str, str] = field(default_factory=dict)  # settings without which the node does not take part
    accepts_shared_seed: bool = False
    max_packet_bytes: int = MAX_PACKET_BYTES
    accepted: dict[str, str] = field(default_factory=dict)  # what is exposed, in words, and since when
    accepts_everything: bool = False  # a rehearsal, with data that is nobody's secret
    budget: dict[str, float] = field(default_factory=dict)  # as in `node_ledger`
    min_writers: int = 2  # clients whose noise a denoiser of this node sums up, at least

    @classmethod
    def for_everything(cls, files: NodeFiles) -> "NodeSettings":
        """A rehearsal: takes part in every system, whatever it exposes, and lets the server know its draws."""
        return cls(files, systems=list(SYSTEMS), accepts_shared_seed=True, accepts_everything=True)


def check_required(required: Mapping[str, str], systems: Sequence[str]) -> None:
    """Refuse a setting that no order of these systems shows to a node: nothing would ever be agreed to."""
    if not required:
        return
    told = [fields(SYSTEMS[system].config) for system in systems]
    known = sorted({entry.name for entries in told for entry in entries if not entry.metadata.get("is_secret")})
    for name in required:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise HushrecError(f"--require {name}: no order of {', '.join(systems)} tells nodes of it; {hint}")


def is_as_wanted(value: object, wanted: str) -> bool:
    """Whether a setting has the value that an owner has typed: `0.80` is 0.8, and `false` False."""
    if isinstance(value, bool):
        return wanted.lower() == str(value).lower()
    if isinstance(value, int | float):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    return str(value) == wanted


def write_settings(kit: Path, settings: NodeSettings) -> None:
    """Keep what the owner decided."""
    write_private_file(kit / "private" / "node.json", msgspec.json.encode(settings))


def read_settings(kit: Path) -> NodeSettings:
    """What the owner decided."""
    path = kit / "private" / "node.json"
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        # Older settings name the files beside the rest.
        return msgspec.convert({"files": kept, **kept}, NodeSettings)
    except FileNotFoundError:
        raise HushrecError(f"{kit} has no settings; start the node with: hushrec deploy node") from None
    except msgspec.MsgspecError as error:
        raise HushrecError(f"{path} is damaged ({error}); run hushrec deploy node again") from None


def accepted_before(kit: Path) -> dict[str, str]:
    """What the owner accepted in words when the node was started before; of damaged settings, nothing."""
    try:
        return read_settings(kit).accepted
    except HushrecError:
        return {}


def letter_bytes(system: AnySystem, private: Any, config: Any) -> int:
    """What a letter has room for: the mail of one cohort, rounded up to two digits in binary."""
    reply_bytes = system.reply_bytes(private, config)
    largest = max(int(reply_bytes[first:last].sum()) for first, last in cohort_bounds(reply_bytes))
    needed = largest + int(reply_bytes.max()) + 16 * len(reply_bytes) + 64
    unit = 1 << max(needed.bit_length() - 2, 0)
    return -(-needed // unit) * unit


def numbers_digest(numbers: Sequence[int]) -> bytes:
    """What a key card is bound to: the numbers of the clients behind it."""
    return sha256(np.array(numbers, "<i4").tobytes()).digest()
