"""Lies to small systems: what they tell today, that they tell nothing where uploads are hidden, and refusals."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

import hushrec
from hushrec.audit.active import another_v, invented_items, large_v, lone_letter, lone_shares
from hushrec.audit.attacks import ATTACKS, attacks_named, attacks_on
from hushrec.audit.colluders import parse_colluders
from hushrec.audit.driver import Audited, audit
from hushrec.audit.lying import bare_name
from hushrec.audit.scoreboard import Finding, Own
from hushrec.audit.told import Told
from hushrec.audit.uploads import items_of
from hushrec.data import Interactions, synthetic
from hushrec.errors import HushrecError, MissingExtraError
from hushrec.protocol import Ask, Collect, Handler, Message, Ragged, Recorded, Role, Seat, each, ragged, shared
from hushrec.registry import SYSTEMS
from hushrec.runtime.checkpoint import model_digest
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, prepared, run_job

ACTIVE = (Role.ACTIVE_SERVER,)


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=30,items=200,ratings=450")


def job_of(name: str, data: Interactions, **settings: Any) -> Job:
    system = SYSTEMS[name]
    factors = "client_factors" if name == "ptf-fedrec" else "num_factors"
    return job_for(system, system.configure({"num_rounds": 2, factors: 4, **settings}), 0, data)


def lied_to(job: Job, *names: str) -> Audited:
    attacks = [ATTACKS[name] for name in names] if names else None
    return audit(job, RuntimeOptions(1), lambda _progress, _scores: None, attacks, ACTIVE)


def found(job: Job, name: str, suffix: str = "") -> Finding:
    """What a lie tells if handlers answer it as they are."""
    (finding,) = (one for one in lied_to(job, name).findings if one.attack.name == name + suffix)
    return finding


def deployed(job: Job, name: str) -> Finding:
    """The same on a node with a guard."""
    return found(job, name, " (deployed)")


# --- What lies tell today --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedrec", "fedrec++"])
@pytest.mark.parametrize("settings", [{}, {"predict_after": 0}, {"resample": "once"}, {"biases": True}])
def test_another_v_tells_rated_items(name: str, settings: dict[str, Any], data: Interactions) -> None:
    """But for clients whose mean rating is a rating that they gave."""
    finding = found(job_of(name, data, rho=3, **settings), "another V")
    assert finding.score > 0.9
    assert finding.chance < 0.45
    assert finding.refusal == ""


def test_large_v_tells_rated_items_whatever_the_noise(data: Interactions) -> None:
    """But for clients that report one rated item alone, with which nothing can agree."""
    for temperature in (0.1, 1.0):
        finding = found(job_of("sdcf", data, temperature=temperature), "large V")
        assert finding.score > 0.95
        assert finding.chance < 0.8


def test_a_lone_letter_tells_all_of_both(data: Interactions) -> None:
    finding = found(job_of("fedrec++", data, rho=3, denoisers=2), "lone letter")
    assert finding.score == 1
    assert finding.chance < 0.6


def test_three_with_denoisers_of_their_own_are_told(data: Interactions) -> None:
    finding = found(job_of("fedrec++", data, rho=3, denoisers=3, shares=2), "lone shares")
    assert finding.score > 0.8
    assert finding.chance < 0.45


def test_rounds_that_never_count_intersect(data: Interactions) -> None:
    assert found(job_of("fedrec", data, rho=3), "rounds that never count").score > 0.95
    once = found(job_of("fedrec", data, rho=3, resample="once"), "rounds that never count")
    assert once.score == once.chance


@pytest.mark.parametrize(
    ("name", "settings", "least"),
    [
        ("fedrec", {"rho": 3}, 0.99),
        ("fedrec", {"rho": 3, "resample": "once", "filling": "drawn"}, 0.99),
        ("fedrec++", {"rho": 3, "denoisers": 3, "shares": 2}, 0.99),
        ("fedrec-bpr", {"rho": 3, "denoisers": 2}, 0.99),
        ("fedncf", {"rho": 3, "denoisers": 2, "participation": 1.0}, 0.98),
        ("ptf-fedrec", {}, 0.98),
    ],
)
def test_what_exists_among_invented_items_is_rated(
    name: str, settings: dict[str, Any], least: float, data: Interactions
) -> None:
    """Of 100,200 items 200 exist: a virtual item is one of these twice in a thousand times."""
    finding = found(job_of(name, data, **settings), "invented items")
    assert finding.score > least
    assert finding.chance < 0.7
    assert finding.refusal == ""


# --- Where nothing is told -------------------------------------------------------------------------------


def test_without_virtual_items_invented_ones_add_nothing(data: Interactions) -> None:
    finding = found(job_of("fedrec", data, rho=0), "invented items")
    assert finding.score == finding.chance == 1


@pytest.mark.parametrize(("name", "settings"), [("fedrec", {"secure_sums": True}), ("sdcf", {})])
def test_invented_items_are_not_told_where_they_attract_nothing(
    name: str, settings: dict[str, Any], data: Interactions
) -> None:
    done = lied_to(job_of(name, data, **settings), "invented items")
    assert not done.findings
    assert "invented items" in done.left_out


@pytest.mark.parametrize(("name", "attacks"), [("fedrec", ["another V", "rounds that never count"])])
def test_secure_sums_leave_lies_at_chance(name: str, attacks: list[str], data: Interactions) -> None:
    done = lied_to(job_of(name, data, secure_sums=True), *attacks)
    assert {bare_name(finding.attack.name) for finding in done.findings} == set(attacks)
    assert len(done.findings) == 2 * len(attacks)
    for finding in done.findings:
        assert finding.score == finding.chance
        assert finding.num_victims == data.num_users


def test_sdcf_with_secure_sums_refuses_a_large_v(data: Interactions) -> None:
    finding = found(job_of("sdcf", data, secure_sums=True), "large V")
    assert finding.score == finding.chance
    assert "It was refused: the update of client" in finding.said()


def test_ratings_drawn_from_the_clients_own_leave_another_v_at_chance(data: Interactions) -> None:
    finding = found(job_of("fedrec", data, rho=3, filling="drawn"), "another V")
    assert finding.score == finding.chance


def test_shares_leave_another_v_at_chance(data: Interactions) -> None:
    finding = found(job_of("fedrec++", data, denoisers=3, shares=2), "another V")
    assert finding.score == finding.chance


def test_who_masks_refuses_to_answer_in_the_clear(data: Interactions) -> None:
    """Clients that did answer would be read; these refuse, and the attack is at chance."""
    job = job_of("fedrec++", data, rho=3, denoisers=3, shares=2)
    finding = found(job, "asked in the clear")
    assert finding.score == finding.chance
    assert "refused: a client that masks its rows is asked for them in the clear" in finding.said()

    (request,) = [kind for kind in job.system.handlers if kind.__name__ == "ItemFactors"]
    firm = job.system.handlers[request].answer
    soft = Handler(lambda cohort, ask, config, draws: firm(cohort, ask, replace(config, shares=0), draws))
    system = replace(job.system, handlers={**job.system.handlers, request: soft})
    finding = found(replace(job, system=system), "asked in the clear")
    assert finding.score > 0.9
    assert finding.refusal == ""


# --- On nodes with a guard ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "settings", "lie", "said"),
    [
        ("fedrec", {"rho": 3}, "another V", "asked again in round 2 with another item_factors"),
        ("fedrec++", {"rho": 3, "denoisers": 2}, "another V", "with another item_factors"),
        ("sdcf", {"temperature": 0.1}, "large V", "item_factors is longer than 32"),
        ("fedrec++", {"rho": 3, "denoisers": 2}, "forged letter", "not signed"),
        ("fedrec++", {"rho": 3, "denoisers": 2}, "lone letter", "another ItemFactors"),
        ("fedrec++", {"rho": 3, "denoisers": 3, "shares": 2}, "lone shares", "another FactorsToShare"),
        ("fedrec", {"rho": 3}, "rounds beyond the last", "asked for round 3 of 2"),
        ("fedrec", {"rho": 3}, "invented items", "20 times as many items as are rated here"),
    ],
)
def test_a_guard_refuses_a_lie_and_leaves_it_at_chance(
    system: str, settings: dict[str, Any], lie: str, said: str, data: Interactions
) -> None:
    job = job_of(system, data, **settings)
    bare, guarded = found(job, lie), deployed(job, lie)
    assert bare.score > 0.8
    assert bare.score > bare.chance + 0.15
    assert guarded.score == guarded.chance
    assert said in guarded.refusal
    assert "On a deployed node" in guarded.said()


def test_a_forged_letter_tells_every_rated_item(data: Interactions) -> None:
    """Of all clients, exactly: one ask is enough."""
    finding = found(job_of("fedrec++", data, rho=3, denoisers=2), "forged letter")
    assert finding.score == 1
    assert finding.num_victims >= data.num_users - 2


def test_what_a_guard_cannot_refuse_is_told_all_the_same(data: Interactions) -> None:
    """The V of a round to come is what the server says; rounds within the agreed number may never count."""
    job = job_of("fedrec", data, rho=3)
    chosen = deployed(job, "chosen V")
    assert chosen.rounds[0] is not None
    assert chosen.rounds[0] > 0.9
    never = deployed(job_of("fedrec", data, rho=3, num_rounds=7), "rounds that never count")
    assert never.rounds[0] is not None
    assert never.rounds[0] > 0.9
    assert never.rounds[-1] is not None
    assert never.rounds[-1] < 0.2, "no round is left"


# --- The driver ------------------------------------------------------------------------------------------


def test_the_training_does_not_notice(data: Interactions) -> None:
    job = job_of("fedrec++", data, denoisers=2)
    progress = lied_to(job).progress
    honest = run_job(job, RuntimeOptions(1))
    assert model_digest(progress.state, progress.private) == model_digest(honest.state, honest.private)
    assert progress.transcript.sent_bytes() == honest.transcript.sent_bytes()


def test_a_party_is_asked_once_by_a_request(data: Interactions) -> None:
    """As nodes refuse it. What was answered before is seen."""
    attack = ATTACKS["another V"]

    def tell(stage: Any, _own: Own) -> Any:
        ask = next(stage.honest)
        yield Ask(ask.to, ask.request, Collect())
        twice = np.repeat(ask.to, 2)
        yield Ask(twice, ask.request.take(np.repeat(np.arange(len(ask.to)), 2)), Collect())

    assert attack.lie is not None
    finding, guarded = audit(
        job_of("fedrec", data),
        RuntimeOptions(1),
        lambda _progress, _scores: None,
        [replace(attack, lie=attack.lie._replace(tell=tell))],
        ACTIVE,
    ).findings
    assert "names a party twice" in finding.refusal
    assert "names a party twice" in guarded.refusal


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_can_be_lied_to_as_it_is_published(name: str) -> None:
    """Also where parties hold keys, or models of others: each lie is found something, or left out in words."""
    system, settings = SYSTEMS[name], {"num_rounds": 1, "inference": "none", "epochs": 1, "parts": 2}
    known = {entry.name for entry in fields(system.config)}
    config = system.configure({key: value for key, value in settings.items() if key in known})
    try:
        job = Job(system, config, 0, prepared(system, system.holders.sample(synthetic(20, 30, 240), 0), config))
        done = lied_to(job)
    except MissingExtraError as error:
        pytest.skip(str(error))
    told = {bare_name(finding.attack.name) for finding in done.findings}
    lies = {attack.name for attack in attacks_on(system, is_active=True) if attack.lie and len(attack.seats) == 1}
    assert told | {bare_name(name) for name in done.left_out} == lies
    assert all(done.left_out.values())


def test_lies_are_told_only_if_asked_for() -> None:
    system = SYSTEMS["fedrec++"]
    assert not any(attack.lie for attack in attacks_on(system))
    lies = [attack.name for attack in attacks_on(system, is_active=True)]
    assert lies == [
        "another V",
        "chosen V",
        "forged letter",
        "lone letter",
        "lone shares",
        "rounds that never count",
        "rounds beyond the last",
        "invented items",
        "asked in the clear",
    ]
    assert [attack.name for attack in attacks_named("another-v", system)] == ["another V"]
    assert parse_colluders("active-server", system) == ACTIVE
    assert not any(attack.lie for attack in attacks_on(SYSTEMS["drift"]))
    assert [attack.name for attack in attacks_on(SYSTEMS["drift"], is_active=True)] == ["believed table"]


def test_a_lie_belongs_to_an_active_server() -> None:
    attack = ATTACKS["another V"]
    assert attack.role == "active-server"
    with pytest.raises(HushrecError, match="needs both a lie and"):
        replace(attack, seats=(Seat(Role.SERVER),))
    with pytest.raises(HushrecError, match="needs both a lie and"):
        replace(attack, lie=None)


# --- Hand-worked answers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vectors(Message):
    """Reveals: V, and a denoiser."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: Any = shared(np.float32, 2)
    counted_round: Any = each(np.int32)
    denoiser: Any = each(np.int32)


@dataclass(frozen=True)
class Rows(Message):
    """Reveals: rows."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32)
    gradients: Ragged = ragged(np.float32, 2)


@dataclass(frozen=True)
class Sums(Message):
    """Reveals: counts."""

    sender, receiver = Role.DENOISER, Role.SERVER
    items: Ragged = ragged(np.int32)
    counts: Ragged = ragged(np.int32)


@dataclass(frozen=True)
class ToShare(Message):
    """Reveals: V, and denoisers."""

    sender, receiver = Role.SERVER, Role.CLIENT
    item_factors: Any = shared(np.float32, 2)
    denoisers: Ragged = ragged(np.int32)


@dataclass(frozen=True)
class Words(Message):
    """Reveals: masked rows."""

    sender, receiver = Role.CLIENT, Role.SERVER
    items: Ragged = ragged(np.int32)
    words: Ragged = ragged(np.int64, 2)


@dataclass(frozen=True)
class WordSums(Message):
    """Reveals: sums of masks."""

    sender, receiver = Role.DENOISER, Role.SERVER
    items: Ragged = ragged(np.int32)
    words: Ragged = ragged(np.int64, 2)


def one(*values: Any, kind: Any = np.int32) -> Ragged:
    return Ragged.one(np.array(values, kind))


def numbers(*values: int) -> Any:
    return np.array(values, np.int32)


def own(**settings: Any) -> Own:
    return Own(settings, {}, np.random.default_rng(0))


def rated(told: Told, client: int) -> list[int]:
    pairs = told.pairs[told.is_rated]
    return items_of(pairs[pairs // (1 << 31) == client]).tolist()


def test_equal_rows_are_virtual() -> None:
    """U = (1, 2), V = 0: ratings 4, 5 and 4 of items 1, 2 and 6, mean 13 / 3 of items 0, 3, 4."""
    ratings = {0: 13 / 3, 1: 4, 2: 5, 3: 13 / 3, 4: 13 / 3, 6: 4}
    rows = np.array([[-rating, -2 * rating] for rating in ratings.values()], np.float32)
    view = [
        Recorded(1, numbers(7), Vectors(np.zeros((8, 2), np.float32), numbers(0), numbers(-1))),
        Recorded(1, numbers(7), Rows(one(*ratings), Ragged.one(rows))),
    ]
    assert rated(another_v.look(None, view, own(rho=1)), 7) == [1, 2, 6]
    assert rated(another_v.look(None, view, own(rho=0)), 7) == list(ratings)


def test_errors_that_follow_from_the_item_are_of_rated_ones() -> None:
    """Of 8 items 1 and 6 are rated: s = 1.125 and 1.75. Item 3 has the error of 6, item 4 that of 1."""
    scale = large_v.scales(8)
    assert scale[[1, 6]].tolist() == [1.125, 1.75]
    errors = {1: 1.125, 3: 1.75, 4: 1.125, 6: 1.75}
    rows = np.array([[99, -1e6 * error + 0.01 * item] for item, error in errors.items()], np.float32)
    made = large_v.long_vectors(np.ones((8, 2), np.float32))
    assert (made[:, 1] == 0).all()
    view = [
        Recorded(1, numbers(2), Vectors(made, numbers(0), numbers(-1))),
        Recorded(1, numbers(2), Rows(one(*errors), Ragged.one(rows))),
    ]
    assert rated(large_v.look(None, view, own()), 2) == [1, 6]


def test_counts_of_a_lone_letter_tell_both() -> None:
    """Client 3 lists 0, 1, 2, 5; 1 and 2 are virtual. Client 8, its denoiser, rated 2, 4 and 5."""
    counts = {1: 1, 2: 0, 4: -1, 5: -1}
    view = [
        Recorded(1, numbers(3), Vectors(np.zeros((8, 2), np.float32), numbers(0), numbers(8))),
        Recorded(1, numbers(3), Rows(one(0, 1, 2, 5), Ragged.one(np.ones((4, 2), np.float32)))),
        Recorded(1, numbers(8), Sums(one(*counts), one(*counts.values()))),
    ]
    told = lone_letter.look(None, view, own())
    assert (rated(told, 3), rated(told, 8)) == ([0, 5], [2, 4, 5])
    refused = lone_letter.look(None, view[:2], own())
    assert rated(refused, 3) == [0, 1, 2, 5]


def test_three_uploads_less_sums_count() -> None:
    """Masks 10, 20, ... of clients 0, 1, 2, half of each with denoisers 8 and 9.

    Item 4: listed by all, had by two. 5: listed by client 0 alone, who has it; 6: by client 1 alone, who has not.
    """
    lists = {0: {4: 10 + 1, 5: 20 + 1}, 1: {4: 30 + 1, 6: 40}, 2: {4: 50}}
    starts, items = np.array([0, 2, 4, 5]), numbers(4, 5, 4, 6, 4)
    words = np.array([word for listed in lists.values() for word in listed.values()])[:, None]
    denoisers = Ragged(np.array([0, 2, 4, 6]), numbers(8, 9, 8, 9, 8, 9))
    half = np.array([45, 10, 20])
    sums = Ragged(np.array([0, 3, 6]), np.concatenate([half, half])[:, None])
    view = [
        Recorded(1, numbers(0, 1, 2), ToShare(np.zeros((8, 1), np.float32), denoisers)),
        Recorded(1, numbers(0, 1, 2), Words(Ragged(starts, items), Ragged(starts, words))),
        Recorded(1, numbers(8, 9), WordSums(Ragged(sums.starts, numbers(4, 5, 6, 4, 5, 6)), sums)),
    ]
    told = lone_shares.look(None, view, own())
    assert [rated(told, client) for client in (0, 1, 2)] == [[4, 5], [4], [4]]


def test_of_listed_items_those_that_exist_are_rated() -> None:
    """Of 5; client 0 lists 1, 4 and two invented ones, client 1 invented ones alone: nothing is told of it."""
    starts = np.array([0, 4, 6])
    upload = Rows(
        Ragged(starts, np.array([1, 4, 5, 90_000, 6, 7], np.int32)), Ragged(starts, np.zeros((6, 2), "f4"))
    )
    clients = np.array([0, 1], np.int32)
    view = [
        Recorded(1, clients, Vectors(np.zeros((9, 2), np.float32), clients, clients)),
        Recorded(1, clients, upload),
    ]
    told = invented_items.look(None, view, Own({}, {}, np.random.default_rng(0), num_items=5))
    assert told.asked.tolist() == [0, 1]
    assert items_of(told.pairs).tolist() == [1, 4, 5, 90_000, 6, 7]
    assert told.is_rated.tolist() == [True, True, False, False, True, True]
