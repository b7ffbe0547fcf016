"""The server's side of a job: enrol the nodes, run the rounds, keep what comes out.

A run's folder on the server, `runs/NAME`, holds the operator's `order.json` and `items.msgpack`, who hosts whom
(`hosts.msgpack`) and the nodes' signatures of that (`signatures.msgpack`), the checkpoint (`fold-1/state.npz`),
`progress.json` for whoever watches, in the end `run.json`. Nothing in it is private to a client.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushrec.data import Interactions
from hushrec.data.holdings.node_files import Catalogue, ids_of
from hushrec.deploy.charter import (
    Agreement,
    Charter,
    Signature,
    appointed_by,
    charter_of,
    is_signed_by,
)
from hushrec.deploy.enrolment import numbers_digest
from hushrec.deploy.identity import KeyCard, check_key_card
from hushrec.deploy.measuring import joined, shared_digest, summed_facts, weakest_promises, without_deal
from hushrec.deploy.membership import check_standing, newest_revoked
from hushrec.deploy.orders import (
    Assignment,
    Attempt,
    Enrolled,
    HostEntry,
    Hosts,
    Invitation,
    Measure,
    Measured,
    Order,
    Ready,
)
from hushrec.draws import Draws
from hushrec.errors import HushrecError, naming_options
from hushrec.files import clear_leftovers, locked, write_passing_file, write_private_file
from hushrec.protocol import Transcript, has_alike_arrays, result_arrays
from hushrec.registry import system_named
from hushrec.runs.folds import planned_run
from hushrec.runs.record import FoldResult, write_run
from hushrec.runs.run_settings import settings_for
from hushrec.runtime.calling import Caller, NodesLost, blamed
from hushrec.runtime.checkpoint import (
    Progress,
    digest,
    load_progress,
    read_arrays,
    save_progress,
    save_train,
)
from hushrec.runtime.over_network import OverNetwork
from hushrec.runtime.packets import Kind, Packet, about
from hushrec.runtime.rounds import run_rounds
from hushrec.runtime.transport import Transport
from hushrec.runtime.wire import WireError
from hushrec.settings import shown_to_parties

_LOCK_SECONDS = 60.0

Status = Literal["running", "paused", "failed", "done"]


class Report(msgspec.Struct, frozen=True):
    """How a run is doing: `progress.json`."""

    status: Status
    attempt: int
    round_number: int = 0
    num_rounds: int = 0
    sent_bytes: int = 0
    seconds: dict[str, float] = {}  # of this attempt, by what they were spent on
    lost: dict[str, str] = {}  # nodes, and why
    reason: str = ""
    timed_rounds: int = 0  # those of this attempt
    proven: list[str] = []  # of the lost, those whose own fault it is beyond doubt
    silent: list[str] = []  # of the lost, those of whom nothing came
    consents: dict[str, str] = {}  # why nodes take part, as they told it


def read_report(folder: Path) -> Report | None:
    """How the run in a folder is doing; None before its first round."""
    try:
        return msgspec.json.decode((folder / "progress.json").read_bytes(), type=Report)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def drive(transport: Transport, nodes: list[str], folder: Path, job: bytes) -> None:
    """Run all that is left of a run, or as far as it gets; its end is told in `progress.json`."""
    attempt = msgspec.json.decode(job, type=Attempt)
    with _alone(folder / "runs" / attempt.run_name), naming_options():  # runs are ordered on the command line
        run = _ServerRun(folder / "runs" / attempt.run_name, attempt)
        try:
            run.go(transport, nodes)
        except NodesLost as error:
            proven, silent = sorted(error.proven), sorted(error.silent)
            run.report("paused", lost=error.lost, proven=proven, silent=silent, reason=str(error))
        except HushrecError as error:
            run.report("failed", reason=str(error))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no earlier job works on the run: one whose parent died may still be at its last round."""
    deadline = time.monotonic() + _LOCK_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                taken = f"an earlier job still works on {folder.name}; end its process"
                stack.enter_context(locked(folder / "lock", taken))
                break
            except HushrecError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        clear_leftovers(folder)
        yield


class _ServerRun:
    """One job of a run."""

    def __init__(self, folder: Path, attempt: Attempt) -> None:
        self._folder, self._attempt = folder, attempt
        self._order = msgspec.json.decode((folder / "order.json").read_bytes(), type=Order)
        self._catalogue = msgspec.msgpack.decode((folder / "items.msgpack").read_bytes(), type=Catalogue)
        self._system = system_named(self._order.system)
        self._config = self._system.configure(self._order.config)
        self._progress: Progress | None = None
        checkpoint = folder / "fold-1" / "state.npz"
        self._rounds_done = int(read_arrays(checkpoint)["round_number"]) if checkpoint.exists() else 0
        self._rounds_before = self._rounds_done
        self._seconds: dict[str, float] = {}
        before = read_report(folder)
        self._consents: dict[str, str] = {} if before is None else dict(before.consents)

    def go(self, transport: Transport, nodes: Collection[str]) -> None:
        """Enrol, run, measure, keep."""
        order, started = self._order, time.perf_counter()
        # Numbers of calls rise over all attempts, so that nodes can tell new packets from replayed ones.
        caller = Caller(transport, bytes.fromhex(order.run_id), order.timeout_seconds, self._attempt.attempt << 32)
        present = sorted(set(nodes) - set(self._attempt.away))
        self.report("running")
        hosts = self._enrol(caller, present)
        members = {host.card.name: np.sort(np.array(host.numbers, np.int32)) for host in hosts.hosts}
        num_clients = hosts.num_clients
        progress = self._open(num_clients)
        signing_keys = {host.card.name: host.card.signing_key for host in hosts.hosts}
        network = OverNetwork(
            self._system, self._config, Draws(order.seed), members, caller, progress.transcript,
            self._attempt.away, num_clients, signing_keys, self._folder,
        )  # fmt: skip
        self._seconds = network.seconds
        self._seconds["enrol"] = time.perf_counter() - started
        run_rounds(self._system, self._config, progress, network, self._keep)
        measured = self._measure(caller, [name for name in present if name in members])
        self._finish(progress, num_clients, measured)

    def report(
        self,
        status: Literal["running", "paused", "failed", "done"],
        lost: dict[str, str] | None = None,
        reason: str = "",
        proven: list[str] | None = None,
        silent: list[str] | None = None,
    ) -> None:
        """Tell whoever watches."""
        progress = self._progress
        sent = 0 if progress is None else sum(progress.transcript.sent_bytes().values())
        seconds = {what: round(spent, 4) for what, spent in self._seconds.items()}
        report = Report(
            status, self._attempt.attempt, self._rounds_done, self._config.num_rounds, sent, seconds, lost or {},
            reason, self._rounds_done - self._rounds_before, proven or [], silent or [],
            self._consents,
        )  # fmt: skip
        write = write_passing_file if status == "running" else write_private_file
        write(self._folder / "progress.json", msgspec.json.encode(report))

    def _enrol(self, caller: Caller, present: list[str]) -> Hosts:
        """Who hosts whom: asked at the start of the run, signed by all, and the same from then on."""
        order, path = self._order, self._folder / "hosts.msgpack"
        seed = order.seed if order.shares_seed else None
        shown = shown_to_parties(self._config)
        invitation = Invitation(order.system, shown, seed, self._catalogue, order.rating_range, order.relay)
        known = msgspec.msgpack.decode(path.read_bytes(), type=Hosts) if path.exists() else None
        agreement = self._agreement()
        if known is not None:
            present = [host.card.name for host in known.hosts if host.card.name in present]
        enrolled = self._call(caller, "enrol", Kind.ENROL, dict.fromkeys(present, invitation), Enrolled)
        self._consents |= {name: one.consent for name, one in enrolled.items()}
        if known is None or agreement is None:
            known = self._assign(caller, enrolled, known)
        revoked = newest_revoked(*self._server_and_root()).pem
        known = msgspec.structs.replace(known, away=self._attempt.away, revoked=revoked)
        write_private_file(path, msgspec.msgpack.encode(known))
        signed = self._call(caller, "start", Kind.START, dict.fromkeys(present, known), Signature)
        charter = charter_of(caller.run_id, self._system, invitation, known)
        if agreement is None:
            agreement = self._agree(charter, signed)
        self._call(caller, "agree", Kind.AGREE, dict.fromkeys(present, agreement), Ready)
        return known

    def _assign(self, caller: Caller, enrolled: dict[str, Enrolled], known: Hosts | None) -> Hosts:
        """Numbers and cards of those who are there; of those who had numbers before, the same."""
        order, system = self._order, self._system
        numbers = system.holders.number(enrolled) if known is None else _numbers_of(known)
        assignments = {name: Assignment(numbers[name]) for name in enrolled}
        cards = self._call(caller, "assign", Kind.ASSIGN, assignments, KeyCard)
        self._check_cards(cards, numbers)
        entries = [HostEntry(cards[name], numbers[name], enrolled[name].names) for name in enrolled]
        if known is not None:
            return msgspec.structs.replace(known, hosts=entries)
        pad_bytes = max(entry.letter_bytes for entry in enrolled.values()) if order.relay == "onion" else 0
        num_clients = 1 + max(max(host.numbers) for host in entries)
        appointed = appointed_by(system, num_clients, self._config, Draws(order.seed))
        return Hosts(entries, pad_bytes, num_clients, self._attempt.away, appointed)

    def _agreement(self) -> Agreement | None:
        """The signatures of all nodes; None before all have signed."""
        path = self._folder / "signatures.msgpack"
        return msgspec.msgpack.decode(path.read_bytes(), type=Agreement) if path.exists() else None

    def _agree(self, charter: Charter, signed: dict[str, Signature]) -> Agreement:
        """Keep what all have signed, before one of them learns that all did."""
        digest = charter.digest()
        for member in charter.members:
            with blamed(member.name, "start", self._rounds_done):
                one = signed[member.name]
                if one.digest != digest or not is_signed_by(member, digest, one.signature):
                    raise WireError("signed another charter than it was told")
        agreement = Agreement({name: one.signature for name, one in signed.items()})
        write_private_file(self._folder / "signatures.msgpack", msgspec.msgpack.encode(agreement))
        return agreement

    def _check_cards(self, cards: dict[str, KeyCard], numbers: dict[str, list[int]]) -> None:
        server, root = self._server_and_root()
        newest_revoked(server, root)  # a list that cannot be read is no node's fault
        for name, card in cards.items():
            with blamed(name, "assign", self._rounds_done):
                if card.name != name:
                    raise WireError("sent a card of another name")
                check_key_card(card, root, bytes.fromhex(self._order.run_id), numbers_digest(numbers[name]))
                check_standing(server, root, [card], [name])

    def _server_and_root(self) -> tuple[Path, bytes]:
        server = self._folder.parent.parent / "server"
        return server, (server / "startup" / "rootCA.pem").read_bytes()

    def _call(self, caller: Caller, phase: str, kind: Kind, requests: dict[str, Any], reply: type[Any]) -> Any:
        sequence = caller.next_sequence()
        packets = {
            name: Packet(kind, caller.run_id, 0, sequence, msgspec.msgpack.encode(request))
            for name, request in requests.items()
        }
        answers = caller.call(phase, packets, self._rounds_done)
        said = {}
        for name, answer in answers.items():
            with blamed(name, phase, self._rounds_done):
                said[name] = about(answer, reply)
                _check_sense(said[name])
        return said

    def _open(self, num_clients: int) -> Progress:
        draws = Draws(self._order.seed)
        state = self._system.start(num_clients, len(self._catalogue.ids), self._config, draws)
        progress = Progress(state, None, Transcript())
        path = self._folder / "fold-1" / "state.npz"
        self._progress = load_progress(path, self._system, progress) if path.exists() else progress
        return self._progress

    def _keep(self, progress: Progress) -> None:
        save_progress(self._folder / "fold-1" / "state.npz", self._system, progress)
        self._rounds_done = progress.round_number
        self.report("running")

    def _measure(self, caller: Caller, present: list[str]) -> list[Measured]:
        measure = Measure(self._order.at, self._order.relevant_from, self._order.min_raters)
        answers = self._call(caller, "measure", Kind.EVALUATE, dict.fromkeys(present, measure), Measured)
        return [answers[name] for name in present]

    def _finish(self, progress: Progress, num_clients: int, measured: list[Measured]) -> None:
        fold = FoldResult.of(
            1, self._system, progress,
            model_sha256=self._model_sha256(progress, measured), metrics=joined(measured),
            num_train=sum(part.num_train for part in measured), num_test=sum(part.num_test for part in measured),
            facts=summed_facts(measured) | weakest_promises(measured),
        )  # fmt: skip
        order, known = self._order, self._known(progress, num_clients)
        save_train(self._folder / "fold-1" / "train.npz", known, self._system)
        plan = planned_run(self._system, self._config, known, settings_for(self._system, order.seed, at=order.at))
        plan = without_deal(plan)
        write_run(self._folder, replace(plan, relevant_from=order.relevant_from, folds=[fold], party="server"))
        self.report("done")

    def _model_sha256(self, progress: Progress, measured: list[Measured]) -> str:
        """Digest of the server's model, or, if that is encrypted, the digest that most nodes report."""
        told = shared_digest(measured) if has_alike_arrays(type(progress.state)) else ""
        return told or digest(result_arrays(progress.state))

    def _known(self, progress: Progress, num_parties: int) -> Interactions:
        """What the server knows of the data: the items, how many users and parties there are; no rating."""
        order, catalogue, system = self._order, self._catalogue, self._system
        count_users = system.result.num_users
        num_users = num_parties if count_users is None else count_users(progress.state)
        titles = None if catalogue.titles is None else np.array(catalogue.titles, np.str_)
        none: NDArray[np.int32] = np.empty(0, np.int32)
        data = Interactions(
            none, none, np.empty(0, np.float32), None, None, np.arange(num_users),
            ids_of(catalogue.ids, catalogue.are_numbers), titles, order.rating_range, order.data_name,
            order.data_sha256, order.is_synthetic,
        )  # fmt: skip
        return system.holders.known(data, num_parties)


def _numbers_of(hosts: Hosts) -> dict[str, list[int]]:
    return {host.card.name: host.numbers for host in hosts.hosts}


def _check_sense(said: object) -> None:
    """Refuse what cannot be true."""
    if isinstance(said, Enrolled | Measured) and not said.has_sense():
        raise WireError("says of its clients or of its measurements what cannot be")
