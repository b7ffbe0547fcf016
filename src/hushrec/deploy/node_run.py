"""One run on a node: its own file of ratings, its private state on its own disk.

Its folder holds the secret seed, the charter, the private vectors and the ratings that were trained on, or what
the system's own store keeps, and what the guard remembers of the round.
"""

import secrets
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hushrec.data import Interactions
from hushrec.data.holdings.node_files import NodeData, read_catalogue
from hushrec.deploy.charter import (
    Agreed,
    Agreement,
    Charter,
    CharterError,
    Signature,
    charter_of,
    check_appointed,
    check_same,
    check_signatures,
    pledges_of,
    sign_charter,
)
from hushrec.deploy.consent import consent_to
from hushrec.deploy.enrolment import NodeSettings, letter_bytes, numbers_digest
from hushrec.deploy.identity import check_key_card, key_card, own_keys
from hushrec.deploy.kits import node_names, read_kit
from hushrec.deploy.measuring import measure
from hushrec.deploy.membership import standing_hosts
from hushrec.deploy.misfits import Misfits
from hushrec.deploy.orders import Assignment, Enrolled, Hosts, Invitation, Measure, Measured, Ready
from hushrec.draws import Draws
from hushrec.errors import (
    DivergedError,
    HushrecError,
    LostForGoodError,
    ModelDivergedError,
    NotAsOrderedError,
    PublicError,
)
from hushrec.files import write_private_file
from hushrec.limits import check_sizes
from hushrec.privacy.sealing import PublicKeys
from hushrec.protocol import NO_MARK, Numbers, ReplayMark, Spending, Store
from hushrec.protocol.padding import padding_of
from hushrec.registry import system_named
from hushrec.runtime.checkpoint import load_train, read_arrays, save_train, write_arrays
from hushrec.runtime.guard import Guard, Memory, check_catalogue
from hushrec.runtime.node import Node
from hushrec.runtime.node_store import open_store
from hushrec.runtime.packets import Kind, Packet
from hushrec.runtime.post import Host, Post
from hushrec.runtime.rounds import diverged
from hushrec.runtime.training import prepared
from hushrec.runtime.wire import WireError

_NONCE_BYTES = 16


class Refused(PublicError):
    """What a node will not do, whatever it is asked again."""


def _check_apart(hosts: Hosts) -> None:
    """Refuse a client that is there twice: another node would get the letters that are for the first."""
    node_of: dict[int, str] = {}
    for host in hosts.hosts:
        for number in host.numbers:
            if number in node_of:
                raise CharterError(f"a charter with one client twice, on {node_of[number]} and {host.card.name}")
            node_of[number] = host.card.name


class _Told(msgspec.Struct, frozen=True):
    """What a node told of its test ratings, and for which order."""

    order: bytes
    measured: Measured


class NodeRun:
    """One run on this node: what it was invited to, who takes part, the private state."""

    def __init__(self, kit: Path, folder: Path, settings: NodeSettings, invitation: Invitation) -> None:
        self._kit, self._folder, self._settings, self.invitation = kit, folder, settings, invitation
        self.system = system_named(invitation.system)
        self.config = self.system.configure(invitation.config)
        self._name = read_kit(kit).name
        self._node: Node | None = None
        self._charter: Charter | None = None  # that all have signed, once it was read
        self._store: Store[Any] | None = None
        self.last = NO_MARK

    @classmethod
    def enrol(cls, kit: Path, folder: Path, settings: NodeSettings, invitation: Invitation) -> "NodeRun":
        """Take part in a run, for the first time or again after a restart of the server."""
        run = cls(kit, folder, settings, invitation)
        known = folder / "invitation.msgpack"
        if known.exists():
            if known.read_bytes() != msgspec.msgpack.encode(invitation):
                raise Refused("the same run with other settings; order a new run")
            run._restore()
        else:
            held = run._fitting()
            save_train(folder / "fold-1" / "train.npz", held.train, run.system)
            if held.lists_users:
                lines = [f"{user}\t{number}\n" for number, user in enumerate(held.train.user_ids.tolist())]
                write_private_file(folder / "users.tsv", "".join(lines).encode())
            write_arrays(folder / "numbers.npz", {} if held.numbers is None else {"agreed": held.numbers})
            run._restore(is_new=True)
            write_private_file(known, msgspec.msgpack.encode(invitation))
        return run

    @classmethod
    def reopen(cls, kit: Path, folder: Path, settings: NodeSettings) -> "NodeRun":
        """Go on with a run in a new process."""
        known = folder / "invitation.msgpack"
        if not known.exists():
            raise WireError("a packet of a run that this node does not take part in")
        run = cls(kit, folder, settings, msgspec.msgpack.decode(known.read_bytes(), type=Invitation))
        run._restore()
        return run

    def _fitting(self) -> NodeData:
        """Who is on this node, if the order fits that; few orders may not fit."""
        if self._settings.files.items is not None:
            self._check_known_items(Path(self._settings.files.items))
        counted = (
            nullcontext() if self._settings.accepts_everything else Misfits(self._kit).counting(self.invitation)
        )
        with counted:
            try:
                held = self._read_own()
            except NotAsOrderedError as error:
                raise HushrecError(error.for_log) from None
            except HushrecError:
                # Its words may quote a rating or an id.
                raise HushrecError("the node's files cannot be used; start it again to see why") from None
            self._check_items(held.train)
            system = self.system
            system.feedback.check_trainable(prepared(system, held.train, self.config), system.name)
        return held

    def _read_own(self) -> NodeData:
        """Who is on this node, as its owner's files say."""
        invitation = self.invitation
        return self.system.holders.read(
            self._settings.files, self._name, invitation.catalogue, invitation.rating_range
        )

    def _check_known_items(self, items: Path) -> None:
        """Refuse a catalogue with items that its owner does not know, whatever is rated here."""
        is_of_run = self.system.holders.knows_all_items and self._settings.files.data is not None
        if is_of_run and set(self.invitation.catalogue.ids) - set(read_catalogue(items, as_texts=True).ids):
            raise Refused("a catalogue with items that are not in the list of this node's owner")

    def _check_items(self, train: Interactions) -> None:
        """Refuse a catalogue that cannot be meant, where its owner has no list."""
        files, holders = self._settings.files, self.system.holders
        if holders.knows_all_items and files.data is not None and files.items is None:
            check_catalogue(len(self.invitation.catalogue.ids), len(np.unique(train.items)))

    def check_not_older(self, last_round: int) -> None:
        """Refuse to go on with less than this node remembered when it answered, by its ledger, the last round.

        State is on disk before a line of the ledger. Who has lost it, or put an older one back, would answer a
        round again with other contents, and with secrets that were used.
        """
        if self.last.round_number < last_round:
            raise LostForGoodError(
                f"{self._folder} is older than private/ledger.jsonl, which has round {last_round} of this run: "
                "put a newer copy back, or order a new run"
            )

    def check_new(self, packet: Packet, data: bytes) -> ReplayMark:
        """Refuse a packet that was here before, unless it is the last one, asked for again."""
        last, digest = self.last, sha256(data).digest()
        is_repeated = packet.sequence == last.sequence and digest == last.digest
        is_past = packet.kind in (Kind.ASK, Kind.RELAY) and packet.round_number < last.round_number
        if not is_repeated and (packet.sequence <= last.sequence or is_past):
            raise WireError("a packet that is replayed or altered")
        return ReplayMark(packet.sequence, max(last.round_number, packet.round_number), digest)

    def enrolled(self) -> Enrolled:
        """How many parties are here, and their names if they have some."""
        system, train = self.system, self._train()
        num_parties = system.holders.num_parties(train)
        agreed = read_arrays(self._folder / "numbers.npz").get("agreed")
        private = self._first_private()
        room = letter_bytes(system, private, self.config)
        known = None if agreed is None else agreed.tolist()
        consent = consent_to(self._settings, system, self.config)
        return Enrolled(num_parties, known, room, system.holders.names(train), consent)

    def assign(self, run_id: bytes, assignment: Assignment) -> Any:
        """Keep the clients' numbers; the card that proves whose mail key this is."""
        numbers = np.array(assignment.numbers, np.int32)
        kept = read_arrays(self._folder / "numbers.npz")
        known = kept.get("assigned", kept.get("agreed"))
        if known is not None and not np.array_equal(known, numbers):
            raise Refused("other numbers than were agreed on or assigned before")
        num_clients = self.system.holders.num_parties(self._train())
        if len(numbers) != num_clients or len(np.unique(numbers)) != num_clients:
            raise Refused("not one number for each client")
        nonce = kept.get("nonce") if self._agreed() is not None else None
        if nonce is None:
            nonce = np.frombuffer(secrets.token_bytes(_NONCE_BYTES), np.uint8)
        write_arrays(self._folder / "numbers.npz", kept | {"assigned": numbers, "nonce": nonce})
        pledges = self._pledges(numbers)
        return key_card(self._kit, run_id, numbers_digest(assignment.numbers), nonce.tobytes(), pledges)

    def _pledges(self, numbers: Numbers) -> tuple[bytes, ...]:
        """What the parties here are bound to."""
        system = self.system
        return () if system.pledges is None else tuple(system.pledges.of(self._private(numbers)))

    def start(self, run_id: bytes, hosts: Hosts, root: bytes) -> Signature:
        """Check everybody's card and the charter, and sign it. Nothing is answered before all others did, too."""
        names = [host.card.name for host in hosts.hosts]
        if len(set(names)) < len(names):
            raise Refused("one of the hosts twice")
        if self._name not in names:
            raise Refused("hosts without this node itself")
        for host in hosts.hosts:
            check_key_card(host.card, root, run_id, numbers_digest(host.numbers))
        _check_apart(hosts)
        charter = charter_of(run_id, self.system, self.invitation, hosts)
        agreed = self._agreed()
        if agreed is not None:
            check_same(agreed, charter)
        self._check_own(hosts)
        check_appointed(charter, self.system, self.config, self._settings.min_writers)
        self._node = self._open_node(hosts)
        write_private_file(self._folder / "hosts.msgpack", msgspec.msgpack.encode(hosts))
        return sign_charter(charter, self._name, own_keys(self._kit).signing)

    def _check_own(self, hosts: Hosts) -> None:
        """Whether what is said of this node is what it said, the last time that it was asked."""
        (own,) = (host for host in hosts.hosts if host.card.name == self._name)
        kept = read_arrays(self._folder / "numbers.npz")
        is_own = (
            own.card.nonce == kept["nonce"].tobytes()
            and (own.card.public_key, own.card.signing_key) == own_keys(self._kit).public
            and own.numbers == kept["assigned"].tolist()
            and own.names == self.system.holders.names(self._train())
        )
        if not is_own:
            raise CharterError("a charter with other keys, numbers or names of this node than it gave last")

    def agree(self, run_id: bytes, agreement: Agreement) -> Ready:
        """Keep the charter that this node signed last, if all hosts have signed the same."""
        hosts = self._hosts()
        self._check_own(hosts)
        charter = charter_of(run_id, self.system, self.invitation, hosts)
        check_signatures(charter, agreement.signatures)
        if self._agreed() is None:
            signatures = {member.name: agreement.signatures[member.name] for member in charter.members}
            path = self._folder / "charter.msgpack"
            write_private_file(path, msgspec.msgpack.encode(Agreed(charter, signatures)))
        return Ready()

    def _agreed(self) -> Charter | None:
        """What all hosts have signed, as this node keeps it; None before that."""
        path = self._folder / "charter.msgpack"
        if self._charter is None and path.exists():
            try:
                self._charter = msgspec.msgpack.decode(path.read_bytes(), type=Agreed).charter
            except msgspec.MsgspecError:
                raise LostForGoodError(f"{path} is damaged: put a good copy back, or order a new run") from None
        return self._charter

    def answer(self, packet: Packet, mark: ReplayMark) -> Packet:
        """Serve an ask; what it changed, or what was asked, is on disk before a reply or an error leaves."""
        node = self._opened()
        if self._agreed() is None:
            raise WireError("an ask before all nodes have signed the charter")
        assert node.guard is not None
        before = node.guard.memory
        try:
            reply = self._answered(node, packet)
        except Exception:
            if node.guard.memory is not before:
                self._save(node, self.last)
            raise
        if packet.kind in (Kind.ASK, Kind.RELAY):
            self._save(node, mark)
        return reply

    def _answered(self, node: Node, packet: Packet) -> Packet:
        """The node's answer; the end of the run on this node, if a client's numbers are too large."""
        end = self._folder / "diverged"
        if end.exists():
            raise DivergedError(end.read_text(encoding="utf-8"))
        try:
            return node.answer(packet)
        except ModelDivergedError:
            raise  # which no client has a part in
        except DivergedError as error:
            # Whether numbers are too large depends on ratings: for a V of its choice a server could ask who has an
            # item, again and again. So it is told once in a run, and not of whom.
            told = diverged(self.config, packet.round_number, "an update is not finite or far too large")
            write_private_file(end, str(told).encode())
            raise told from error

    def _save(self, node: Node, mark: ReplayMark) -> None:
        """Write the state and what the guard remembers."""
        assert self._store is not None
        assert node.guard is not None
        memory = node.guard.memory
        kept = msgspec.msgpack.encode(memory) if memory.round_number else b""
        self._store.save(node.private, mark._replace(memory=kept))

    def measure(self, order: Measure) -> Measured:
        """Finish: keep a folder that `hushrec recommend` can use, and measure if there are test ratings.

        Once: asked again for the same, a node says the same, whatever model it was sent since. Many measurements,
        of models that a server chose, would tell the test ratings one by one.
        """
        node = self._opened()
        if self._agreed() is None:
            raise WireError("a measurement before all nodes have signed the charter")
        path, asked = self._folder / "measured.msgpack", msgspec.msgpack.encode(order)
        if path.exists():
            told = msgspec.msgpack.decode(path.read_bytes(), type=_Told)
            if told.order != asked:
                raise Refused("another measurement than this run's first; order a new run")
            return told.measured
        measured = measure(
            self._folder, self._settings, self.invitation, self.system, self.config, self._train(),
            node.private, order,
        )  # fmt: skip
        write_private_file(path, msgspec.msgpack.encode(_Told(asked, measured)))
        return measured

    def spent(self) -> Spending | None:
        """What the noise of all that was answered comes to."""
        return self.system.result.spends(self._opened().private, self.config)

    def _opened(self) -> Node:
        if self._node is None:
            self._node = self._open_node(self._hosts())
        return self._node

    def _train(self) -> Interactions:
        return load_train(self._folder / "fold-1" / "train.npz", self.system, "own ratings", "", False)

    def _private(self, numbers: Numbers) -> Any:
        train = prepared(self.system, self._train(), self.config)
        rows = self.system.holders.rows(train)
        check_sizes(self.config, len(numbers), train.num_items)
        return self.system.enrol(numbers, rows, train.num_items, self.config, self._draws())

    def _first_private(self) -> Any:
        """The state before the server has given numbers."""
        return self._private(np.arange(self.system.holders.num_parties(self._train()), dtype=np.int32))

    def _draws(self) -> Draws:
        if self.invitation.seed is not None:
            return Draws(self.invitation.seed)
        path = self._folder / "secret-seed"
        if not path.exists():
            write_private_file(path, secrets.token_hex(32).encode())
        return Draws(int(path.read_bytes(), 16))

    def _hosts(self) -> Hosts:
        path = self._folder / "hosts.msgpack"
        if not path.exists():
            raise WireError("an ask before the start of the run")
        return msgspec.msgpack.decode(path.read_bytes(), type=Hosts)

    def _open_node(self, hosts: Hosts) -> Node:
        numbers = read_arrays(self._folder / "numbers.npz")["assigned"]
        private = self._private(numbers)
        assert self._store is not None
        self._store.restore(private)
        try:
            pledges = pledges_of(self.system, hosts)
            if self.system.pledges is not None:
                self.system.pledges.hold(private, pledges)
            root = (self._kit / "startup" / "rootCA.pem").read_bytes()
            standing = standing_hosts(self._kit / "private", root, hosts, node_names(self._kit))
        except PublicError as error:
            raise Refused(str(error)) from None
        known = [
            Host(
                host.card.name,
                PublicKeys(host.card.public_key, host.card.signing_key),
                np.sort(np.array(host.numbers, np.int32)),
            )
            for host in sorted(standing.hosts, key=lambda host: host.card.name)
        ]
        run_id = bytes.fromhex(self._folder.name)
        post = Post(
            run_id,
            known,
            self._name,
            own_keys(self._kit),
            secrets.randbelow,
            hosts.pad_bytes,
            hosts.away,
            hosts.num_clients,
            padding_of(self.config),
        )
        charter = charter_of(run_id, self.system, self.invitation, hosts)
        kept = self._store.mark.memory
        memory = msgspec.msgpack.decode(kept, type=Memory) if kept else None
        num_hosted = sum(len(host.numbers) for host in hosts.hosts)  # as their cards are signed for
        limits = replace(charter.limits(self._settings.min_writers), num_clients=num_hosted)
        guard = Guard(limits, memory)
        return Node(self.system, self.config, self._draws(), numbers, private, post, guard)

    def _restore(self, is_new: bool = False) -> None:
        self._store = open_store(self.system, self._folder / "fold-1", self._first_private, is_new)
        self.last = self._store.mark
