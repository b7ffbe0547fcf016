"""A client that lies: its upload is refused and it is named, nobody else; what cannot be refused is measured."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hushrec.audit.spoiling.liars import Liars, spoiled
from hushrec.audit.spoiling.measuring import Case, cases_of, defences_of, drawn_target, measure, shares_of
from hushrec.data.splits import k_folds
from hushrec.data.synthetic import synthetic
from hushrec.draws import Draws
from hushrec.errors import FaultyPartyError, HushrecError
from hushrec.privacy.sealing import new_keys
from hushrec.protocol import AnySystem, Cohort, Handler, Message, Ragged, Reply, Transcript
from hushrec.registry import SYSTEMS
from hushrec.runtime.calling import Caller, NodesLost
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.node import Node
from hushrec.runtime.over_network import OverNetwork
from hushrec.runtime.packets import decode_packet, encode_packet
from hushrec.runtime.post import Host, Post
from hushrec.runtime.training import Job, prepared, run_job
from hushrec.runtime.transport import Delivery

NUM_CLIENTS, NUM_ITEMS, LIAR = 12, 20, 4
DATA = synthetic(NUM_CLIENTS, NUM_ITEMS, 90)
DRAWS, RUN = Draws(0), b"r" * 16
NAMES = ["node-0", "node-1", "node-2"]
MEMBERS = {name: np.arange(place, NUM_CLIENTS, 3, dtype=np.int32) for place, name in enumerate(NAMES)}
HOST_OF_LIAR = "node-1"

Change = Callable[[Message], Message]


def lying(system: AnySystem, number: int, kind: str, change: Change) -> AnySystem:
    """The same system in which one party's replies of a type are changed."""

    def of(handler: Handler[Any, Any]) -> Handler[Any, Any]:
        def answer(cohort: Cohort[Any], request: Any, config: Any, draws: Draws) -> Reply:
            reply = handler.answer(cohort, request, config, draws)
            place = int(np.searchsorted(cohort.numbers, number))
            is_there = place < len(cohort.numbers) and cohort.numbers[place] == number
            if type(reply.message).__name__ != kind or not is_there:
                return reply
            parts = [reply.message.part(one, one + 1) for one in range(len(cohort.numbers))]
            parts[place] = change(parts[place])
            return replace(reply, message=type(reply.message).join(parts))

        return Handler(answer, handler.reads)

    return replace(system, handlers={kind: of(handler) for kind, handler in system.handlers.items()})


class Hub:
    """Nodes behind a transport that carries packets from hand to hand."""

    def __init__(self, system: AnySystem, config: Any, data: Any) -> None:
        rows = system.holders.rows(data)
        keys = {name: new_keys() for name in NAMES}
        hosts = [Host(name, keys[name].public, MEMBERS[name]) for name in NAMES]
        self.nodes = {}
        for name, numbers in MEMBERS.items():
            private = system.enrol(numbers, _rows_of(rows, numbers), data.num_items, config, DRAWS)
            post = Post(RUN, hosts, name, keys[name], lambda below: below - 1)
            self.nodes[name] = Node(system, config, DRAWS, numbers, private, post)

    def call(self, _phase: str, requests: Mapping[str, bytes], _round_number: int, _seconds: float) -> Delivery:
        return Delivery(
            {
                name: encode_packet(self.nodes[name].answer(decode_packet(bytes(data))))
                for name, data in requests.items()
            },
            {},
        )


def _rows_of(rows: Any, numbers: np.ndarray) -> Any:
    columns = {"items": Ragged(rows.starts, rows.items).take(numbers.astype(np.int64))}
    ratings = (
        None if rows.ratings is None else Ragged(rows.starts, rows.ratings).take(numbers.astype(np.int64)).values
    )
    return replace(rows, starts=columns["items"].starts, items=columns["items"].values, ratings=ratings)


def first_round(name: str, values: Mapping[str, Any], number: int, kind: str, change: Change) -> Any:
    """One round over three nodes, with one liar."""
    system = SYSTEMS[name]
    config = system.configure({**system.about.small, "num_rounds": 3, **values})
    data = prepared(system, DATA, config)
    hub = Hub(lying(system, number, kind, change), config, data)
    state = system.start(NUM_CLIENTS, NUM_ITEMS, config, DRAWS)
    network = OverNetwork(system, config, DRAWS, MEMBERS, Caller(hub, RUN, 5.0, 0), Transcript())
    return network.run_round(state, 1)


def refused(name: str, values: Mapping[str, Any], number: int, kind: str, change: Change) -> NodesLost:
    with pytest.raises(NodesLost) as caught:
        first_round(name, values, number, kind, change)
    return caught.value


def with_columns(message: Message, **values: np.ndarray) -> Message:
    """The message of one party with other rows."""
    return replace(message, **{name: Ragged.one(rows) for name, rows in values.items()})  # type: ignore[arg-type]


# --- Rows ----------------------------------------------------------------------------------------------------

UPLOADS = {
    "fedrec": ("ItemGradients", {"rho": 1}),
    "fedrec++": ("ItemGradients", {"rho": 1, "denoisers": 1}),
    "sdcf": ("ItemGradients", {}),
    "sdcf-denoised": ("ItemGradients", {"denoisers": 1}),
    "fedrec-bpr": ("PairRows", {"rho": 1, "denoisers": 1}),
    "fedncf": ("ItemSteps", {"rho": 0, "denoisers": 0}),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_an_item_listed_twice_is_refused_and_the_liars_node_is_named(name: str) -> None:
    """5,000 duplicates of a large row wrapped the sum in silence."""
    kind, values = UPLOADS[name]

    def twice(message: Message) -> Message:
        items, rows = message.column("items").values, message.column("gradients").values
        again = np.full((5000, rows.shape[1]), 2000, np.float32)
        return with_columns(message, items=np.full(5000, items[0], np.int32), gradients=again)

    error = refused(name, values, LIAR, kind, twice)
    assert list(error.lost) == [HOST_OF_LIAR]
    assert f"client {LIAR} lists items twice or not in ascending order" in str(error)


@pytest.mark.parametrize("name", UPLOADS)
def test_a_large_row_is_its_senders_fault_and_not_the_end_of_the_run(name: str) -> None:
    kind, values = UPLOADS[name]

    def large(message: Message) -> Message:
        rows = message.column("gradients").values.copy()
        rows[-1] = 1e6
        return with_columns(message, gradients=rows)

    # An honest node would say that it diverges, and not send it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hushrec.runtime.node.check_own", lambda _numbers, _message: None)
        error = refused(name, values, LIAR, kind, large)
    assert list(error.lost) == [HOST_OF_LIAR]
    assert f"the update of client {LIAR} is not finite or not within" in str(error)


def test_an_honest_node_says_that_it_diverges_and_sends_nothing() -> None:
    def large(message: Message) -> Message:
        return with_columns(message, gradients=message.column("gradients").values * np.float32(1e6))

    with pytest.raises(HushrecError, match=f"the update of client {LIAR} is not finite or not within ±2048"):
        first_round("fedrec", {"rho": 0}, LIAR, "ItemGradients", large)


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [("fedrec", "ItemGradients", {"rho": 1}), ("fedrec++", "ItemGradients", {"denoisers": 1})],
)
def test_a_row_beyond_the_bound_is_a_lie(name: str, kind: str, values: dict[str, Any]) -> None:
    def longer(message: Message) -> Message:
        rows = np.zeros_like(message.column("gradients").values)
        rows[:, 0] = 0.51
        return with_columns(message, gradients=rows)

    error = refused(name, {**values, "row_norm": 0.5}, LIAR, kind, longer)
    assert list(error.lost) == [HOST_OF_LIAR]
    assert f"client {LIAR} sent a row longer than 0.5" in str(error)
    first_round(name, {**values, "row_norm": 0.5}, LIAR, kind, lambda message: message)  # honest ones keep to it


# --- Denoisers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [-1000, -2, 1000])
def test_a_denoiser_with_counts_that_cannot_be_is_named(change: int) -> None:
    """One that lowered them took MAE from .74 to 2.53."""
    system = SYSTEMS["fedrec++"]
    config = system.configure({"rho": 1, "denoisers": 1})
    denoiser = int(system.start(NUM_CLIENTS, NUM_ITEMS, config, DRAWS).denoisers[0])

    def counted(message: Message) -> Message:
        counts = message.column("counts").values
        return with_columns(message, counts=np.full_like(counts, change))

    error = refused("fedrec++", {"rho": 1, "denoisers": 1}, denoiser, "DenoisingSums", counted)
    assert error.proven == set(), "it may have summed up a lie of those who wrote to it"
    assert f"denoiser {denoiser}" in error.lost[NAMES[denoiser % 3]]
    assert f"denoiser {denoiser} takes out more than came in, or counts what cannot be" in str(error)


@pytest.mark.parametrize("number", [2**62, -(2**62), 2**63 - 1])
def test_a_denoiser_with_sums_that_cannot_be_is_named(number: int) -> None:
    system = SYSTEMS["fedrec++"]
    denoiser = int(system.start(NUM_CLIENTS, NUM_ITEMS, system.configure({"rho": 1}), DRAWS).denoisers[0])

    def summed(message: Message) -> Message:
        return with_columns(message, sums=np.full_like(message.column("sums").values, number))

    error = refused("fedrec++", {"rho": 1, "denoisers": 1}, denoiser, "DenoisingSums", summed)
    assert error.proven == set(), "it may have summed up a lie of those who wrote to it"
    assert f"denoiser {denoiser}" in error.lost[NAMES[denoiser % 3]]


# --- Replies that do not fit ---------------------------------------------------------------------------------

MALFORMED: dict[str, tuple[str, Change]] = {
    "metamf": ("Gradients", lambda message: with_columns(message, gradient=np.zeros(3, np.float32))),
    "lightgcn": ("Interactions", lambda message: with_columns(message, items=np.array([NUM_ITEMS], np.int32))),
    "ngcf": ("Interactions", lambda message: with_columns(message, items=np.array([3, 3], np.int32))),
    "neumf": ("Interactions", lambda message: with_columns(message, items=np.array([5, 2], np.int32))),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_reply_loses_its_node_and_nobody_else(name: str) -> None:
    error = refused(name, {}, LIAR, *MALFORMED[name])
    assert list(error.lost) == [HOST_OF_LIAR]
    assert f"client {LIAR}" in str(error)


def test_what_is_found_when_all_replies_are_in_is_blamed_on_the_node_of_who_it_was() -> None:
    system = SYSTEMS["fedrec"]

    def finds(*_arguments: Any) -> Any:
        raise FaultyPartyError(f"client {LIAR} lies", [LIAR])
        yield

    config = system.configure({"num_rounds": 1})
    hub = Hub(system, config, prepared(system, DATA, config))
    network = OverNetwork(
        replace(system, round=finds), config, DRAWS, MEMBERS, Caller(hub, RUN, 5.0, 0), Transcript()
    )
    with pytest.raises(NodesLost) as caught:
        network.run_round(None, 1)
    assert caught.value.lost == {HOST_OF_LIAR: f"client {LIAR} lies"}


# --- What cannot be refused ----------------------------------------------------------------------------------

BOARD = synthetic(60, 40, 900, seed=1)
SPLIT = next(k_folds(BOARD))


def board_job(**values: Any) -> Job:
    system = SYSTEMS["fedrec"]
    config = system.configure({"rho": 0, "num_rounds": 25, "num_factors": 6, **values})
    return Job(system, config, 0, prepared(system, SPLIT.train, config))


def spoilt(case: Case) -> Any:
    job = board_job()
    return measure(job, SPLIT.test, case, RuntimeOptions(threads=1), lambda _now: None)


def test_one_liar_promotes_an_item_and_a_median_stops_it() -> None:
    """In process, with the handlers of honest clients. The defence without an attack is near the plain mean."""
    calm = spoilt(Case("", 0, "", {}))
    won = spoilt(Case("explicit boosting", 1, "", {}))
    assert calm.exposure < 0.3
    assert won.exposure > 0.9
    for how in ("trimmed", "median"):
        kept = spoilt(Case("explicit boosting", 1, how, {"robust": how, "liars": 1}))
        assert kept.exposure < 0.5


@pytest.mark.parametrize("num_liars", [1, 3])
def test_held_items_cannot_be_promoted_where_rows_cannot_be_compared(num_liars: int) -> None:
    """FedRec++ with its denoiser. Without the defence one liar is enough."""
    system, split = SYSTEMS["fedrec++"], next(k_folds(synthetic(100, 300, 2500, seed=1)))
    config = system.configure({"rho": 1, "num_rounds": 25, "num_factors": 6})
    job = Job(system, config, 0, prepared(system, split.train, config))

    def exposed(settings: dict[str, Any]) -> float:
        case = Case("explicit boosting", num_liars, "", settings)
        found = measure(job, split.test, case, RuntimeOptions(threads=1), lambda _now: None).exposure
        assert found is not None
        return found

    assert exposed({}) > 0.9
    assert exposed({"robust": "held", "liars": num_liars}) < 0.1


@pytest.mark.parametrize(
    "settings",
    [{"row_norm": 5.0}, *({"robust": how, "liars": 1} for how in ("trimmed", "median", "krum", "held"))],
)
def test_a_defence_without_an_attack_leaves_accuracy_near_the_plain_sum(settings: dict[str, Any]) -> None:
    plain, defended = spoilt(Case("", 0, "", {})), spoilt(Case("", 0, "", settings))
    assert abs(defended.metrics["RMSE"] - plain.metrics["RMSE"]) < 0.08


@pytest.mark.parametrize("attack", ["popular alignment", "random users", "sign flipping", "clustering"])
@pytest.mark.parametrize("name", ["fedrec", "fcf"])
def test_each_attack_changes_the_model_and_is_the_same_again(attack: str, name: str) -> None:
    """On any number of threads."""
    system = SYSTEMS[name]
    config = system.configure({**system.about.small, "num_rounds": 3, "num_factors": 4})
    job, made = Job(system, config, 0, prepared(system, BOARD, config)), []
    for threads in (1, 2):
        liars = Liars(np.array([3, 7], np.int32), attack, drawn_target(job.train, DRAWS), 0.0, DRAWS)
        options = RuntimeOptions(threads=threads, cohort_size=10)
        made.append(run_job(replace(job, system=spoiled(system, liars)), options).state.item_factors)
    honest = run_job(job, RuntimeOptions(threads=1)).state.item_factors
    np.testing.assert_array_equal(*made)
    assert not np.array_equal(made[0], honest)


def test_cases_by_hand() -> None:
    """Of 60 clients 1% is one, 5% three. FedRec++ compares no rows, FCF no pairs, PTF-FedRec sums nothing up."""
    assert shares_of("0.01,0.05") == (0.01, 0.05)
    with pytest.raises(HushrecError, match=r"--malicious 0\.7: write shares"):
        shares_of("0.7")
    cases = cases_of(SYSTEMS["fedrec"], 60, (0.01, 0.05), ["sign flipping"], 2.0)
    ways = ("trimmed --liars {0}", "median --liars {0}", "krum --liars {0}", "held --liars {0}")
    ways += ("held --liars {0} --row-norm 2",)
    robust = [f"--robust {how.format(number)}" for number in (1, 3) for how in ways]
    assert [case.defence for case in cases if not case.attack] == ["", "--row-norm 2", *robust]
    assert sum(case.num_liars == 3 for case in cases if case.attack) == 7
    for name, number in {"fedrec++": 4, "sdcf": 5, "sdcf-denoised": 4, "fcf": 4, "ptf-fedrec": 1}.items():
        assert len(list(defences_of(SYSTEMS[name], 1.0, 1))) == number
