"""What server and nodes tell each other around a run: what will be run, who hosts whom, how good it was."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hushrec import choices, limits
from hushrec.data.holdings.node_files import Catalogue
from hushrec.deploy.identity import KeyCard
from hushrec.errors import HushrecError
from hushrec.files import write_private_file
from hushrec.registry import system_named

Relay = choices.Relay
Number = Annotated[int, msgspec.Meta(ge=0, lt=limits.MOST_PARTIES)]  # of a client
Count = Annotated[int, msgspec.Meta(ge=0, le=limits.MOST_COUNTED)]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run as its operator ordered it. Stays on the server; nodes get the part in `Invitation`."""

    run_id: str  # 32 hex digits
    run_name: str
    system: str
    config: dict[str, Any]
    seed: int
    shares_seed: bool  # whether nodes draw from the run's seed, as `hushrec run` does, or from secrets
    data_name: str
    is_synthetic: bool = False
    data_sha256: str = ""
    rating_range: tuple[float, float] | None = None
    at: tuple[int, ...] = (10,)
    relevant_from: float | None = None
    min_raters: int | None = None
    relay: Relay = "direct"
    timeout_seconds: float = 60.0


def place_order(folder: Path, order: Order, catalogue: Catalogue, resume: bool) -> Path:
    """Keep an order in its run's folder; with `resume`, go on with the same one."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,80}", order.run_name):
        raise HushrecError(f"{order.run_name!r} cannot be a run's name; use letters, digits, . _ + -")
    if order.relay == "onion" and not system_named(order.system).holders.hides_writers:
        raise HushrecError(
            f"--relay onion hides who writes to whom; in {order.system} everybody knows: use --relay direct"
        )
    run = folder / "runs" / order.run_name
    path = run / "order.json"
    if path.exists():
        if not resume:
            raise HushrecError(f"{run} exists; use --resume to go on with it, or another --run-name")
        known = msgspec.json.decode(path.read_bytes(), type=Order)
        if msgspec.structs.replace(order, run_id=known.run_id, timeout_seconds=known.timeout_seconds) != known:
            raise HushrecError(f"{run} was ordered with other settings; choose another --run-name")
        return run
    write_private_file(run / "items.msgpack", msgspec.msgpack.encode(catalogue))
    write_private_file(path, msgspec.json.encode(order))
    return run


def nodes_of(run: Path, nodes: list[str]) -> list[str]:
    """Who takes part in a run: the nodes that are there when it begins, whoever joins or is revoked after that."""
    path = run / "hosts.msgpack"
    if not path.exists():
        return nodes
    return [host.card.name for host in msgspec.msgpack.decode(path.read_bytes(), type=Hosts).hosts]


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One job of an engine: all or the rest of an ordered run."""

    run_name: str
    attempt: int
    away: list[str] = []  # nodes to go on without


class Invitation(msgspec.Struct, frozen=True):
    """To a node: what will be run."""

    system: str
    config: dict[str, Any]
    seed: int | None  # None: draw from a secret of your own
    catalogue: Catalogue
    rating_range: tuple[float, float] | None
    relay: Relay


class Enrolled(msgspec.Struct, frozen=True):
    """From a node. Reveals: how many clients it has, and roughly how much they can send in a round.

    Of parties that have names: those. Why its owner agrees to the run.
    """

    num_clients: Annotated[int, msgspec.Meta(ge=1, le=limits.MOST_PARTIES)]
    numbers: list[Number] | None  # if they were agreed on beforehand
    # No letter of its clients is longer; coarsely rounded.
    letter_bytes: Annotated[int, msgspec.Meta(ge=1, le=limits.MOST_LETTER_BYTES)]
    names: list[Annotated[str, msgspec.Meta(max_length=limits.MOST_NAME)]] = []  # ascending
    consent: Annotated[str, msgspec.Meta(pattern="^[ -~]{0,300}$")] = ""

    def has_sense(self) -> bool:
        """Whether each party has a number of its own, if they have numbers, and each name is of another one."""
        has_names = self.names == sorted(set(self.names)) and len(self.names) <= self.num_clients
        has_numbers = self.numbers is None or len(set(self.numbers)) == len(self.numbers) == self.num_clients
        return has_names and has_numbers


class Assignment(msgspec.Struct, frozen=True):
    """To a node: the numbers of its clients."""

    numbers: list[Number]


class HostEntry(msgspec.Struct, frozen=True):
    """A node as others are told of it, with the proof that its keys are its own."""

    card: KeyCard
    numbers: list[Number]
    names: list[str] = []  # of its parties, if they have some


class Hosts(msgspec.Struct, frozen=True):
    """To a node: all nodes."""

    hosts: list[HostEntry]
    pad_bytes: Annotated[
        int, msgspec.Meta(ge=0, le=limits.MOST_LETTER_BYTES)
    ]  # 0: mail is neither padded nor wrapped
    num_clients: Annotated[int, msgspec.Meta(ge=0, le=limits.MOST_PARTIES)] = 0  # with those whom no node hosts
    away: list[str] = []  # those who do not take part now
    appointed: dict[str, list[Number]] = {}  # who may be asked in a role that not all have
    revoked: bytes = b""  # the authority's newest list of revoked certificates, in PEM


class Measure(msgspec.Struct, frozen=True):
    """To a node: measure the model on test ratings, if you have some."""

    at: tuple[int, ...]
    relevant_from: float | None
    min_raters: Annotated[int, msgspec.Meta(ge=0)] | None = None  # among the node's own users; None: as is usual


class Measured(msgspec.Struct, frozen=True):
    """From a node. Reveals: means over all its test ratings and users; of a partner, also over visitors.

    Of owners: what became of the messages to them, in sum. Of who adds noise: the epsilons, and how many releases
    one of its ratings or users is in at most. Where the server cannot read the model: its digest.
    """

    metrics: dict[str, float] = {}
    num_test: Count = 0
    num_users: Count = 0  # whose rankings were measured
    num_train: Count = 0
    facts: dict[str, float] = {}  # summed over the node's parties
    promises: dict[str, float] = {}  # what noise promises; of the node's parties, the least
    model_sha256: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""  # of the shared arrays

    def has_sense(self) -> bool:
        """Whether these can be means over that many."""
        told = (*self.metrics.values(), *self.facts.values(), *self.promises.values())
        is_possible = all(abs(value) <= limits.MOST_MEASURED for value in told)
        return is_possible and (self.num_test > 0 or not self.metrics)


class Ready(msgspec.Struct, frozen=True):
    """From a node: done."""
