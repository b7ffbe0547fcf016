"""A server that makes secure sums over people of its choice: what `docs/trust.md` says of it is so, and no more.

The nodes are real ones (`Site`), in one process. An honest driver ends round 1; then the server is ours, with the
runtime and the protocol of the honest one, and asks for sums of its own choice over round 2.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deploy.federation import Federation, Leg, ServerKilled, Wire, opened, quick, small
from hushrec.deploy.orders import Hosts
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum import server as sums
from hushrec.privacy.secure_sum.messages import SendCounts, SendShares
from hushrec.privacy.secure_sum.parties import Summed
from hushrec.privacy.secure_sum.plan import plan_for
from hushrec.privacy.secure_sum.server import Graph, secure_sum
from hushrec.protocol import Ask, Message, Numbers, Ragged, Sealed, Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.calling import Caller, NodesLost
from hushrec.runtime.checkpoint import Progress, load_progress
from hushrec.runtime.guard import Guard, GuardError, Limits
from hushrec.runtime.over_network import OverNetwork
from hushrec.runtime.packets import about
from hushrec.runtime.post import Post
from hushrec.systems.fedrec import UPLOADS, ItemFactors

SYSTEM = "fedrec"
CONFIG = small(SYSTEM, biases=False, shrinkage=0.0, participation=1.0, rho=0, secure_sums=True)


class Server:
    """Ours, from round 2 on."""

    def __init__(self, federation: Federation, num_rounds: int = 3) -> None:
        chosen = CONFIG | {"num_rounds": num_rounds}
        self.federation, self.ordered = federation, federation.order(SYSTEM, chosen)

        def stopped(_deliver: Any, _packet: bytes) -> bytes:
            raise ServerKilled

        def mishap(leg: Leg) -> Any:
            return stopped if leg.round_number == 2 else None

        self.wire = Wire(federation, mishap)
        with pytest.raises(ServerKilled):
            self.ordered.drive(self.wire)
        told = next(data for leg, data in self.wire.requests if leg.phase == "start")
        hosts = about(opened(told), Hosts).hosts
        self.members = {host.card.name: np.sort(np.array(host.numbers, np.int32)) for host in hosts}
        self.everybody = np.sort(np.concatenate(list(self.members.values())))
        self.system, config = SYSTEMS[SYSTEM], SYSTEMS[SYSTEM].configure(chosen)
        self.config = self.system.in_full(config)
        caller = Caller(Wire(federation), self.ordered.run_id, 60.0, 1000 << 32)
        self.network = OverNetwork(self.system, config, Draws(0), self.members, caller, Transcript())
        state = self.system.start(len(self.everybody), federation.split.train.num_items, config, Draws(0))
        path = self.ordered.folder / "fold-1" / "state.npz"
        self.vectors = load_progress(path, self.system, Progress(state, None, Transcript())).state.item_factors

    def sum_of(self, numbers: Numbers, vectors: Any = None, round_number: int = 2) -> Any:
        """The sum over some, as it is unmasked, for the V that was learned or one of our choice."""
        shown = self.vectors if vectors is None else vectors.astype(np.float32)
        request = ItemFactors(shown, np.full(len(numbers), round_number - 1, np.int32))
        summed: Summed = UPLOADS[ItemFactors]
        total: Any = summed.empty(request, self.config, len(numbers))
        steps = secure_sum(Ask(numbers, request, total), "again", summed, round_number, self.config, Draws(1))
        with quick():
            ask = next(steps)
            try:
                while True:
                    ask = steps.send(self.network._serve(ask, round_number))
            except StopIteration:
                return total
            finally:
                self.network._mailroom.empty()
                self.network._letters.clear()


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation"))


@pytest.fixture(scope="module")
def server(federation: Federation) -> Server:
    return Server(federation)


@pytest.mark.parametrize("num_parties", [1, 2])
def test_fewer_than_the_least_are_not_summed_up(server: Server, num_parties: int) -> None:
    """Whoever says that there are more: see the next."""
    with pytest.raises(HushrecError, match="not secure below"):
        server.sum_of(server.everybody[:num_parties])


def test_nodes_refuse_neighbours_that_do_not_write(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients are told that they are among ten."""
    plan = plan_for(10, server.config)
    two = server.everybody[:2]

    def graph(present: Numbers, keys: Any, *_: Any) -> Graph:
        others = np.broadcast_to(np.arange(plan.degree), (len(present), plan.degree))
        made = Graph(present, keys, others, plan)
        told = np.stack([np.setdiff1d(server.everybody, [number])[: plan.degree] for number in present])
        monkeypatch.setattr(Graph, "request", lambda _self: request_of(told, len(server.everybody)))
        return made

    def request_of(told: Any, _num: int) -> SendShares:
        keys = np.zeros((told.size, 32), np.uint8)
        keys[:] = 9
        starts = np.arange(len(told) + 1, dtype=np.int64) * plan.degree
        return SendShares(np.array(10), Ragged(starts, told.ravel().astype(np.int32)), Ragged(starts, keys))

    monkeypatch.setattr(sums, "_draw_graph", graph)
    monkeypatch.setattr(Graph, "check_enough", lambda *_: None)
    with pytest.raises(NodesLost, match=r"fewer than \d+ neighbours shared|of another sum|no neighbour wrote"):
        server.sum_of(two)


def test_a_sum_is_not_over_more_than_there_are(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise, each of a million would add next to none."""
    guard = Guard(Limits(3, num_clients=30))
    nobody = Ragged(np.zeros(1, np.int64), np.empty(0, np.int32))
    no_keys = Ragged(np.zeros(1, np.int64), np.empty((0, 32), np.uint8))
    asked = np.array([0], np.int32)
    for count in (30, 31, 10**6, 2**62):
        request = SendShares(np.array(count), nobody, no_keys)
        if count == 30:
            guard.admit(1, request, asked)
            continue
        with pytest.raises(GuardError, match="more clients than the 30 of this run"):
            guard.admit(1, request, asked)

    honest = Graph.request
    monkeypatch.setattr(Graph, "request", lambda graph: replace(honest(graph), num_parties=np.array(10**6)))
    with pytest.raises(NodesLost, match="more clients than the 30 of this run"):
        server.sum_of(server.everybody)


def test_the_noise_of_counts_is_not_less_for_what_the_server_says() -> None:
    """Each client adds its share, by the number that it is told."""
    guard, asked = Guard(Limits(3, num_clients=30)), np.array([0], np.int32)
    guard.admit(1, SendCounts(np.array(9), np.array(30)), asked)
    with pytest.raises(GuardError, match="more clients than the 30 of this run"):
        guard.admit(1, SendCounts(np.array(9), np.array(31)), asked)


def test_keys_that_were_swapped_on_their_way_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own keys for all neighbours would give it all masks but one, and that one's shares besides."""
    honest = Graph.request

    def swapped(graph: Graph) -> SendShares:
        request = honest(graph)
        keys = np.full_like(request.keys.values, 9)
        return replace(request, keys=Ragged(request.keys.starts, keys))

    monkeypatch.setattr(Graph, "request", swapped)
    with pytest.raises(NodesLost, match="of another sum"):
        server.sum_of(server.everybody)


def test_a_node_does_not_write_for_clients_of_others(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that works with the server could be all neighbours of somebody, and so know all masks of that one."""
    liar, victim = sorted(server.members)[:2]
    honest = Post.write

    def forged(post: Any, mail: Sequence[Sealed], *rest: Any) -> Any:
        if post._hosts[post._own].name == liar:
            other = server.members[victim][:1]
            mail = [replace(one, message=_signed_by(one.message, other)) for one in mail]
        return honest(post, mail, *rest)

    monkeypatch.setattr(Post, "write", forged)
    with pytest.raises(NodesLost, match="in the name of a party that its writer does not host"):
        server.sum_of(server.everybody)


def test_the_noise_in_a_sum_is_not_less_for_what_a_letter_says(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard sees what the server tells; neighbours that work with it could tell of a million instead."""
    honest = Post.write

    def inflated(post: Any, mail: Sequence[Sealed], *rest: Any) -> Any:
        told = [np.full_like(one.message.num_parties, 10**6) for one in mail]
        return honest(
            post,
            [
                replace(one, message=replace(one.message, num_parties=count))
                for one, count in zip(mail, told, strict=True)
            ],
            *rest,
        )

    monkeypatch.setattr(Post, "write", inflated)
    with pytest.raises(NodesLost, match="more clients than the 30 of this run"):
        server.sum_of(server.everybody)


def test_whose_numbers_are_too_large_is_not_told_and_ends_the_run_on_the_node(federation: Federation) -> None:
    """Long vectors of items make long vectors of users; then V is zero but for one item. Who has it cannot answer.

    If nodes refused again and again, each refusal would be a question about somebody's items.
    """
    server = Server(federation, num_rounds=5)
    num_items, width = server.vectors.shape
    long = np.full(width, 31.9 / np.sqrt(width))
    server.sum_of(server.everybody, np.tile(long, (num_items, 1)), 2)
    told = set()
    for item in range(4):
        probe = np.zeros((num_items, width))
        probe[item] = long
        with pytest.raises(HushrecError) as caught:
            server.sum_of(server.everybody, probe, 3)
        told.add(str(caught.value))
    assert all("an update is not finite or far too large" in line for line in told)
    assert not any(re.search(r"client \d", line) for line in told)
    # None of the nodes answers anything more, which would tell that nobody of it has an item.
    ended = {name for name in server.members if list((federation.folder / name).glob("private/runs/*/diverged"))}
    assert ended
    for name in ended:
        for vectors in (probe, server.vectors):
            with pytest.raises(HushrecError, match="far too large"):
                server.sum_of(server.members[name], vectors, 3)


def test_nodes_that_are_told_different_models_give_noise(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server could have read the sum of one node alone, if the others are told a V of its choice."""
    server = Server(federation, num_rounds=5)
    name = sorted(server.members)[0]
    honest = server.network._request
    server.sum_of(server.everybody)

    def lying(head: Any, message: Message, numbers: Numbers, *rest: Any) -> Any:
        if isinstance(message, ItemFactors) and np.isin(numbers, server.members[name]).all():
            message = replace(message, item_factors=np.zeros_like(message.item_factors))
        return honest(head, message, numbers, *rest)

    with monkeypatch.context() as told:
        told.setattr(server.network, "_request", lying)
        with pytest.raises(HushrecError, match=r"a sum counts fewer than none|larger than its rows can be"):
            server.sum_of(server.everybody, round_number=3)


def _signed_by(message: Message, number: Numbers) -> Message:
    return replace(message, writer=np.repeat(number, len(message.lengths)))


def test_sums_of_the_servers_choice_differ_by_one_client(server: Server) -> None:
    """Not protected, as the docs say: in one round a server can begin a sum again without somebody."""
    data = server.federation.split.train
    total, without = server.sum_of(server.everybody), server.sum_of(server.everybody[1:])
    items = np.flatnonzero(total.counts - without.counts)
    assert items.tolist() == sorted(data.items[data.users == server.everybody[0]].tolist())
