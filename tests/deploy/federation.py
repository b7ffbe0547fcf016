"""A federation in one process: real kits, sites and driver, an engine made of function calls, and its mishaps."""

import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from hushrec import settings
from hushrec.data import Deal, Holding, Owners, Partners, Split, copies, k_folds, latest_share, owned, synthetic
from hushrec.data.holdings import OWNERS, PARTNERS, SOLE_OWNER, USERS, Holders
from hushrec.data.holdings.owners import owners_of
from hushrec.deploy.certificates import Authority, issue, new_authority
from hushrec.deploy.driver import Report, drive, read_report
from hushrec.deploy.enrolment import NodeSettings, write_settings
from hushrec.deploy.orders import Attempt, Order, place_order
from hushrec.deploy.site import Site, open_site
from hushrec.protocol import result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runs import folds as runs
from hushrec.runs.record import read_run
from hushrec.runtime.checkpoint import Progress, digest, model_digest, read_arrays
from hushrec.runtime.in_process import Losses, RuntimeOptions
from hushrec.runtime.packets import Packet, decode_packet
from hushrec.runtime.training import job_for, run_job
from hushrec.runtime.transport import Delivery
from hushrec.systems.drift import store as owner_store
from hushrec.systems.fedcore.partners import Partnership
from systems.runs import SMALL, settings_of


def small(name: str, **values: Any) -> dict[str, Any]:
    """A system's settings for a run of a moment."""
    sizes = settings_of(name, {"num_factors": 4, "num_rounds": 3})
    served = SERVED if SYSTEMS[name].holders is PARTNERS else {}
    return settings.to_dict(SYSTEMS[name].configure({**sizes, **SMALL[name], **served, **values}))


SERVED: dict[str, Any] = {"activation": "quadratic", "inference": "ckks", "num_asked": 3, "batch_size": 64}
"""With encryption at the end, and fewer asks before it."""


@cache
def some_split(num_users: int = 30, num_items: int = 40, num_ratings: int = 400) -> Split:
    """Ratings of a small crowd, the first fold held out."""
    return next(iter(k_folds(synthetic(num_users, num_items, num_ratings), 5, 0)))


@cache
def partner_split(num_partners: int) -> Split:
    """Ratings dealt to partners, each of which has users of its own, common ones and visitors."""
    return next(iter(copies(synthetic(40, 50, 900), Deal(num_partners=num_partners), 0)))


@cache
def owner_split(num_owners: int = 5) -> Split:
    """Events of a small crowd, the latest held out, with items that have one owner or two."""
    data = owned(synthetic(30, 40, 600).as_signed(), str(num_owners), 0)
    return latest_share(replace(data, timestamps=np.random.default_rng(0).permutation(len(data))), 0.2)


def split_for(name: str, num_nodes: int) -> Split:
    """What the nodes of a small run of a system hold together."""
    holders = SYSTEMS[name].holders
    if holders in (OWNERS, SOLE_OWNER):
        return owner_split(5 if holders is OWNERS else 1)
    return partner_split(num_nodes) if holders is PARTNERS else some_split()


def holders_of(split: Split) -> Holders[Any]:
    """Who holds the rows of a split."""
    kinds = {Owners: OWNERS, Partners: PARTNERS, Holding: USERS}
    return kinds[type(split.train.holding)]


# --- Certificates, made once ---------------------------------------------------------------------------------


OURS = "our federation"


@cache
def _authority(name: str) -> Authority:
    return new_authority(name)


@cache
def certificate(name: str, authority: str = OURS, hosts: tuple[str, ...] = ()) -> tuple[bytes, bytes]:
    """A certificate and its key, of this federation or of a foreign one; with hosts, of a server."""
    return issue(_authority(authority), name, hosts)


def make_kits(folder: Path, nodes: Sequence[str]) -> None:
    """Kits as `kits.make_kits` leaves them, without an engine's own files."""
    for name in ("server", *nodes):
        startup = folder / name / "startup"
        startup.mkdir(parents=True)
        (startup / "rootCA.pem").write_bytes(_authority(OURS).root)
    for name in nodes:
        own, key = certificate(name)
        (folder / name / "startup" / "client.crt").write_bytes(own)
        (folder / name / "startup" / "client.key").write_bytes(key)
        card = {"engine": "nvflare", "name": name, "nodes": sorted(nodes)}
        (folder / name / "startup" / "nodes.json").write_bytes(msgspec.json.encode(card))


_version = cache(runs.version)


@contextmanager
def quick() -> Iterator[None]:
    """Without what costs time and changes nothing here: waiting for the disk, reading versions of packages."""
    with (
        patch.object(os, "fsync", lambda _file: None),
        patch.object(owner_store, "SYNCHRONOUS", "OFF"),
        patch.object(runs, "version", _version),
    ):
        yield


# --- The federation --------------------------------------------------------------------------------------------


class Federation:
    """Kits, shares of data and open sites of some nodes, and the server's folder."""

    def __init__(self, folder: Path, num_nodes: int = 3, split: Split | None = None, seed: int = 0) -> None:
        self.folder, self.split = folder, split or some_split()
        holders = holders_of(self.split)
        self.nodes = [f"node-{number}" for number in range(1, num_nodes + 1)]
        if holders is OWNERS:
            self.nodes = OWNERS.node_names(self.split.train, num_nodes)
        make_kits(folder, self.nodes)
        self.shares = holders.deal(self.split, self.nodes, seed, folder / "shares")
        for name in self.nodes:
            self.settle(name)
        self._sites: dict[str, Site] = {}

    def settle(self, name: str, **values: Any) -> None:
        """Write a node's settings, by default those of `deploy local`; the node starts anew."""
        usual = NodeSettings.for_everything(self.shares[name])
        files = {key: values.pop(key) for key in list(values) if hasattr(usual.files, key)}
        write_settings(self.folder / name, replace(usual, files=replace(usual.files, **files), **values))
        self.__dict__.setdefault("_sites", {}).pop(name, None)

    def site(self, name: str) -> Site:
        """The node's site, which stays open until it is killed."""
        if name not in self._sites:
            self._sites[name] = open_site(self.folder / name)
        return self._sites[name]

    def kill(self, *names: str) -> None:
        """End nodes: all that they did not write down is gone. They start again with the next packet."""
        for name in names or self.nodes:
            self._sites.pop(name, None)

    def numbers(self, name: str) -> np.ndarray:
        """The clients of a node, by their agreed numbers."""
        path = self.shares[name].numbers
        if holders_of(self.split) is OWNERS:
            owners = owners_of(self.split.train).names
            held = Path(self.shares[name].owned or os.devnull).read_text().splitlines()
            numbers = [owners.index(owner) for owner in {line.split("\t")[1] for line in held}] or [len(owners)]
            return np.sort(np.array(numbers, np.int32))
        if path is None:  # a partner
            return np.array([self.nodes.index(name)], np.int32)
        lines = Path(path).read_text().splitlines()
        return np.sort(np.array([int(line.split("\t")[1]) for line in lines], np.int32))

    def order(self, system: str, config: dict[str, Any] | None = None, **values: Any) -> "Ordered":
        """Order a run, under a new name."""
        train = self.split.train
        order = Order(
            run_id=secrets.token_hex(16), run_name=f"run-{secrets.token_hex(4)}", system=system,
            config=small(system) if config is None else config,
            **{
                "seed": 0, "shares_seed": True, "data_name": train.name, "rating_range": train.rating_range,
                **values,
            },
        )  # fmt: skip
        folder = place_order(self.folder, order, SYSTEMS[system].holders.catalogue(train), resume=False)
        return Ordered(self, order, folder)

    def log(self, name: str) -> list[dict[str, Any]]:
        """A node's log."""
        path = self.folder / name / "private" / "node.log"
        return [msgspec.json.decode(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass
class Ordered:
    """A run on its way."""

    federation: Federation
    order: Order
    folder: Path
    attempt: int = 0

    def drive(self, wire: "Wire | None" = None, away: Collection[str] = ()) -> Report:
        """One more attempt."""
        self.attempt += 1
        nodes = [name for name in self.federation.nodes if name not in away]
        job = msgspec.json.encode(Attempt(self.order.run_name, self.attempt, sorted(away)))
        with quick():
            drive(wire or Wire(self.federation), nodes, self.federation.folder, job)
        report = read_report(self.folder)
        assert report is not None
        assert report.attempt == self.attempt
        return report

    def finish(self, wire: "Wire | None" = None, away: Collection[str] = (), most: int = 8) -> list[Report]:
        """Attempts until the run is done, as an operator makes them whatever is killed."""
        wire, reports = wire or Wire(self.federation), []
        for _ in range(most):
            try:
                reports.append(self.drive(wire, away))
            except ServerKilled:
                continue
            assert reports[-1].status != "failed", reports[-1].reason
            if reports[-1].status == "done":
                return reports
        raise AssertionError(f"not done after {most} attempts: {reports[-1:]}")

    @property
    def run_id(self) -> bytes:
        return bytes.fromhex(self.order.run_id)

    def node_folder(self, name: str) -> Path:
        return self.federation.folder / name / "private" / "runs" / self.order.run_id

    def model_sha256(self) -> str:
        """Of the finished run."""
        return read_run(self.folder).folds[0].model_sha256

    def private(self, away: Collection[str] = ()) -> dict[str, np.ndarray]:
        """The nodes' private results, put together in the order of the clients' numbers."""
        system = SYSTEMS[self.order.system]
        job = job_for(system, system.configure(self.order.config), 0, self.federation.split.train)
        results = list(result_arrays(job.start().private))
        parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in results}
        for node in self.federation.nodes:
            if node in away or not results:
                continue
            numbers = read_arrays(self.node_folder(node) / "numbers.npz")["assigned"]
            state = read_arrays(self.node_folder(node) / "fold-1" / "state.npz")
            for name, of_nodes in parts.items():
                array = state[f"private.{name}"]
                whose = owners(name, len(array), numbers, state.get("private.num_slots"))
                if system.holders is PARTNERS:
                    whose = np.repeat(numbers, len(array))
                of_nodes.append((whose, array))
        return {name: _joined(of_nodes) for name, of_nodes in parts.items()}

    def assert_equals(self, expected: "Expected", away: Collection[str] = ()) -> None:
        """The result is that of a run in one process, to the bit."""
        assert self.model_sha256() == expected.model_sha256
        if away:
            gone = np.concatenate([self.federation.numbers(name) for name in away])
            kept = {name: array[~np.isin(expected.owners(name), gone)] for name, array in expected.private.items()}
        else:
            kept = expected.private
        assert digest(self.private(away)) == digest(kept)


@dataclass(frozen=True)
class Expected:
    """What `hushrec run` gives."""

    model_sha256: str
    private: dict[str, np.ndarray]
    progress: Progress

    def owners(self, name: str) -> np.ndarray:
        """Whose the rows of a private array are."""
        private = self.progress.private
        if isinstance(private, Partnership):
            starts = {"user_factors": private.rows.user_starts, "item_factors": private.rows.item_starts}
            each = np.diff(starts[name]) if name in starts else 1
            return np.repeat(private.numbers, each)
        numbers = np.arange(len(private.starts) - 1)
        return owners(name, len(self.private[name]), numbers, getattr(private, "num_slots", None))


ALL = -1


def owners(name: str, num_rows: int, numbers: np.ndarray, num_slots: np.ndarray | None) -> np.ndarray:
    """Whose the rows of a private array are: a row or some rows of each client, or all have the same rows."""
    if name.startswith("used_"):
        assert num_slots is not None
        return np.repeat(numbers, num_slots)
    return numbers if num_rows == len(numbers) else np.full(num_rows, ALL)


def _joined(of_nodes: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """In the order of the clients; what all have must be the same everywhere."""
    whose = np.concatenate([numbers for numbers, _ in of_nodes])
    if (whose == ALL).all():
        for _, array in of_nodes:
            np.testing.assert_array_equal(array, of_nodes[0][1])
        return of_nodes[0][1]
    return np.concatenate([array for _, array in of_nodes])[np.argsort(whose, kind="stable")]


def in_process(
    system: str, config: dict[str, Any], split: Split, losses: Losses | None = None, seed: int = 0
) -> Expected:
    """The same run in one process."""
    chosen = SYSTEMS[system]
    built = chosen.configure(config)
    progress = run_job(job_for(chosen, built, seed, split.train), RuntimeOptions(threads=1, losses=losses))
    return Expected(model_digest(progress.state, progress.private), result_arrays(progress.private), progress)


def losing_from(first_round: int, numbers: np.ndarray) -> Losses:
    """Clients that are lost from a round on."""
    return lambda round_number, _request, to: np.isin(to, numbers) & (round_number >= first_round)


# --- The engine ------------------------------------------------------------------------------------------------


class ServerKilled(BaseException):
    """The server's process ends here."""


class NodeKilled(BaseException):
    """A node's process ends here."""


@dataclass(frozen=True)
class Leg:
    """One packet on its way to a node."""

    place: int  # of the call within all calls of this wire
    phase: str
    round_number: int
    node: str


Deliver = Callable[[bytes], bytes]
Fate = Callable[[Deliver, bytes], bytes]
"""What happens to a packet: gets the way to the node and the packet, returns a reply, or raises `Lost`."""


class Lost(Exception):
    """No reply comes."""


@dataclass
class Wire:
    """Carries packets by function calls. `mishap` may choose another fate for a packet."""

    federation: Federation
    mishap: Callable[[Leg], Fate | None] = lambda _leg: None
    reopens: bool = False  # whether nodes are new processes for every packet, as with Flower
    calls: int = 0
    legs: list[Leg] = field(default_factory=list)
    requests: list[tuple[Leg, bytes]] = field(default_factory=list)
    replies: list[tuple[Leg, bytes]] = field(default_factory=list)

    def call(
        self, phase: str, requests: Mapping[str, bytes], round_number: int, timeout_seconds: float
    ) -> Delivery:
        """One call to all."""
        assert timeout_seconds > 0
        place, self.calls = self.calls, self.calls + 1
        replies, lost = {}, {}
        for name, packet in requests.items():
            leg = Leg(place, phase, round_number, name)
            self.legs.append(leg)
            self.requests.append((leg, packet))
            if self.reopens:
                self.federation.kill(name)
            deliver = self._way_to(name)
            fate = self.mishap(leg)
            try:
                replies[name] = deliver(packet) if fate is None else fate(deliver, packet)
                self.replies.append((leg, replies[name]))
            except Lost as error:
                lost[name] = str(error) or "no reply"
        return Delivery(replies, lost)

    def _way_to(self, name: str) -> Deliver:
        def deliver(packet: bytes) -> bytes:
            if name not in self.federation.nodes:
                raise Lost("no such node")
            try:
                return self.federation.site(name).handle(packet)
            except NodeKilled:
                self.federation.kill(name)
                raise Lost("connection closed") from None

        return deliver


def once(place: int, node: str, fate: Fate) -> Callable[[Leg], Fate | None]:
    """That fate for the packet to one node in one call."""
    return lambda leg: fate if (leg.place, leg.node) == (place, node) else None


def opened(data: bytes) -> Packet:
    """A packet, decoded."""
    return decode_packet(data)


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files of a folder but its log."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "node.log"
    }


@contextmanager
def killed_at_write(number: int, folder: Path, ended: BaseException, is_after: bool) -> Iterator[list[str]]:
    """A process that ends right before, or after, its file `number` within a folder is put in its place."""
    replace_file, written = os.replace, list[str]()

    def replace_or_end(source: Any, target: Any) -> None:
        is_ours = Path(target).is_relative_to(folder)
        if is_ours:
            written.append(Path(target).name)
        if is_ours and len(written) == number and not is_after:
            raise ended
        replace_file(source, target)
        if is_ours and len(written) == number:
            raise ended

    with patch.object(os, "replace", replace_or_end):
        yield written
