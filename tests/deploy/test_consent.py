"""A node agrees by itself to what audits call protected; anything else its owner accepts in words that name it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from federation import Federation, Wire, small, split_for
from typer.testing import CliRunner

from hushrec.cli.verbs import app
from hushrec.cli.work import deploy
from hushrec.data.holdings.node_files import NodeFiles
from hushrec.deploy.consent import accepted_with, check_words, consent_to, ledger_of, verdict_on, words_of
from hushrec.deploy.enrolment import NodeSettings, read_settings, write_settings
from hushrec.deploy.kits import Federation as FederationCard
from hushrec.errors import HushrecError, PublicError
from hushrec.privacy.ledger import DELTA
from hushrec.registry import SYSTEMS, system_named
from hushrec.runtime.packets import Refusal, about, decode_packet
from hushrec.settings import switches_of

RUNNER = CliRunner()
MEASURED = Path(__file__).parents[2] / "src" / "hushrec" / "survey" / "measured"
NAMES = [name for name in SYSTEMS if SYSTEMS.is_built_in(name)]
READ = 0.5  # an advantage from which on an audit says "reads most of"


def configured(name: str, **values: Any) -> Any:
    return system_named(name).configure(values)


# --- What is declared ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_system_says_what_it_exposes(name: str) -> None:
    """In printable words that a person can type between quotation marks; the last of them fits all settings."""
    told = SYSTEMS[name].about
    assert bool(told.exposes) != told.hands_over_data
    if told.exposes:
        assert not told.exposes[-1].when
        assert all(one.when for one in told.exposes[:-1])
    config = SYSTEMS[name].configure({})
    for one in (*told.protected, *told.exposes):
        assert all(hasattr(config, setting) for setting in one.when)
    said = words_of(SYSTEMS[name])
    assert len(set(said)) == len(said)
    for words in said:
        assert words.startswith((f"{name}: ", f"{name} with "))
        assert words.isascii()
        assert words.isprintable()
        assert not set(words) & set('"$`\\!')
        assert len(words) < 120


def test_no_two_systems_have_the_same_words() -> None:
    said = [words for name in NAMES for words in words_of(SYSTEMS[name])]
    assert len(set(said)) == len(said)


def rows() -> list[Any]:
    """What was measured: a system with some switches, and what a server and others learned."""
    return [
        pytest.param(row, id=f"{row['system']} {row['switches']}")
        for path in sorted(MEASURED.glob("*.json"))
        for row in json.loads(path.read_text())["rows"]
    ]


@pytest.mark.parametrize("row", rows())
def test_what_audits_read_is_not_called_protected(row: dict[str, Any]) -> None:
    """Of the settings that were measured, all that a curious party read, alone, need their owner's words."""
    system = system_named(row["system"])
    by_switches = {"": {}} | {switches_of(one): dict(one) for one in system.about.repairs}
    config = system.configure(by_switches[row["switches"]])
    best = [row[who]["best"] for who in ("server", "others") if row[who]["best"] is not None]
    alone = [one for one in best if "+" not in one["role"]]
    if system.about.hands_over_data or any(one["advantage"] >= READ for one in alone):
        assert not verdict_on(system, config).is_protected


def test_there_is_something_measured_on_either_side() -> None:
    verdicts = {row.values[0]["system"] for row in rows()}
    assert {"fedrec", "sdcf", "fcf", "fedmf", "drift", "fedcore"} <= verdicts


PROTECTED: dict[str, tuple[str, dict[str, Any]]] = {
    "fedrec": ("fedrec", {"rho": 0, "secure_sums": True}),
    "fedrec, few of many": (
        "fedrec",
        {"secure_sums": True, "participation": 0.1, "secure_together": 10},
    ),
    "sdcf": ("sdcf", {"secure_sums": True}),
    "fcf": ("fcf", {"secure_sums": True}),
    "fcf, general": ("fcf", {"preset": "general", "secure_sums": True}),
    "fedncf": ("fedncf", {"secure_sums": True, "participation": 1.0}),
    "fedmf": ("fedmf", {}),
    "fedmf with sums": ("fedmf", {"encryption": "none", "secure_sums": True}),
    "fedrec++": ("fedrec++", {"shares": 2, "denoisers": 2, "resample": "once"}),
    "fedrec-bpr": ("fedrec-bpr", {"rho": 0, "denoisers": 0, "secure_sums": True}),
    "fedcore": ("fedcore", {"epsilon_total": 8.0}),
}
EXPOSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "fedrec": ("fedrec", {}, "fedrec: the server reads every item and rating out of one upload"),
    "fedrec, nothing hidden": (
        "fedrec",
        {"rho": 0},
        "fedrec with rho 0: the server reads every item and rating as it is",
    ),
    "sums of few": ("fedrec", {"secure_sums": True, "participation": 0.1}, "fedrec with secure sums: over many"),
    "sums of other people": ("fcf", {"secure_sums": True, "clients_per_step": 10}, "fcf with secure sums: over"),
    "masks that corrupt clients open": (
        "sdcf",
        {"secure_sums": True, "secure_corrupted": 0.0},
        "sdcf with secure",
    ),
    "graphs that fail": ("sdcf", {"secure_sums": True, "secure_failure": 0.5}, "sdcf with secure"),
    "sums of two": ("sdcf", {"secure_sums": True, "secure_least": 2}, "sdcf with secure"),
    "fedrec++ as published": ("fedrec++", {}, "fedrec++: the server reads every item and rating"),
    "shares, lists drawn anew": (
        "fedrec++",
        {"shares": 2, "denoisers": 2},
        "fedrec++ with shares [2, inf): the server tells most items",
    ),
    "shares, nothing listed": ("fedrec++", {"shares": 2, "denoisers": 2, "rho": 0}, "fedrec++ with rho 0: "),
    "fedmf in the clear": ("fedmf", {"encryption": "none"}, "fedmf with encryption none: the server reads every"),
    "blocks of fedmf": ("fedmf", {"variant": "part"}, "fedmf: the server sees in which blocks"),
    "ptf balanced": ("ptf-fedrec", {"uploads": "balanced"}, "ptf-fedrec: the server reads every item"),
    "drift": ("drift", {}, "drift: the server reads most interactions"),
    "drift repaired": (
        "drift",
        {"user_vectors": "users", "flag": "inside"},
        "drift with user vectors users, flag inside: the server links the items",
    ),
    "fedcore": ("fedcore", {}, "fedcore: other partners read most ratings"),
    "fedcore, noise without a total": ("fedcore", {"privatizer": "dp"}, "fedcore: other partners read"),
    "fedcore, a large total": ("fedcore", {"epsilon_total": 1460.0}, "fedcore with epsilon total (0, inf): "),
    "fedcore, a large delta": ("fedcore", {"epsilon_total": 8.0, "delta": 0.5}, "fedcore with epsilon total"),
    "pmf": ("pmf", {}, "pmf: the server gets every row itself"),
}


@pytest.mark.parametrize("what", PROTECTED)
def test_protected_settings_are_agreed_to_by_default(what: str) -> None:
    name, values = PROTECTED[what]
    said = consent_to(NodeSettings(NodeFiles("x")), SYSTEMS[name], configured(name, **values))
    assert said.startswith("protected: ")


@pytest.mark.parametrize("what", EXPOSED)
def test_what_is_exposed_is_refused_until_it_is_said(what: str) -> None:
    """The refusal has the words, and those are enough; the words of other settings are not."""
    name, values, begins = EXPOSED[what]
    system, config, usual = SYSTEMS[name], configured(name, **values), NodeSettings(NodeFiles("x"))
    with pytest.raises(PublicError, match='deploy node KIT --data FILE --accept "') as raised:
        consent_to(usual, system, config)
    words = str(raised.value).split('"')[1]
    assert words.startswith(begins)
    check_words([words])
    others = {one: "2026-11-18" for other in NAMES for one in words_of(SYSTEMS[other]) if one != words}
    with pytest.raises(PublicError):
        consent_to(NodeSettings(NodeFiles("x"), accepted=others), system, config)
    accepted = NodeSettings(NodeFiles("x"), accepted={words: "2026-11-18"})
    assert consent_to(accepted, system, config) == f"accepted: {words}"


def test_a_rehearsal_accepts_everything_and_says_so() -> None:
    settings = NodeSettings.for_everything(NodeFiles("x"))
    assert consent_to(settings, SYSTEMS["pmf"], configured("pmf")) == "accepts everything, for a rehearsal"


# --- What an owner says ----------------------------------------------------------------------------------------


def test_words_stay_until_they_are_withdrawn() -> None:
    first = accepted_with({}, ["a", "b"], [])
    assert list(first) == ["a", "b"]
    old = {"a": "2020-01-01"}
    assert accepted_with(old, ["a"], []) == old  # since when it was said first
    assert accepted_with({**old, "b": "2021-01-01"}, [], ["b"]) == old
    assert list(accepted_with(old, ["c"], ["all"])) == ["c"]
    with pytest.raises(HushrecError, match="--withdraw 'x': that is not accepted"):
        accepted_with(old, [], ["x"])


def test_words_in_general_are_refused() -> None:
    for words in ("everything", "the server can read every rating", "fedrec", ""):
        with pytest.raises(HushrecError, match="no system exposes that"):
            check_words([words])
    with pytest.raises(HushrecError, match='did you mean "pmf: the server gets every row itself"'):
        check_words(["pmf: the server gets every row"])


# --- On a node -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    return Federation(tmp_path_factory.mktemp("federation") / "f", 2)


def usual(federation: Federation, **values: Any) -> None:
    """Nodes as `deploy node` starts them, but for the shared seed."""
    for name in federation.nodes:
        federation.settle(name, **{"accepts_everything": False, **values})


def test_a_node_without_options_refuses_what_is_not_protected(federation: Federation) -> None:
    usual(federation)
    for name, values in (("fedrec", {"rho": 0}), ("fedmf", {"encryption": "none"})):
        report = federation.order(name, small(name, **values)).drive()
        assert report.status == "failed"
        assert (
            "refused: its owner has not accepted that; the line for it: hushrec deploy node KIT --data FILE "
            in (report.reason)
        )
        assert f'--accept "{name} with ' in report.reason
    assert not (federation.folder / "node-1" / "private" / "ledger.jsonl").exists()


def test_protected_runs_are_served_and_their_consent_is_told(federation: Federation) -> None:
    usual(federation)
    ordered = federation.order("sdcf", small("sdcf", secure_sums=True))
    report = ordered.drive()
    assert report.status == "done"
    words = "protected: the server sees sums"
    assert report.consents == {"node-1": words, "node-2": words}
    entry = ledger_of(federation.folder / "node-1").entries()[ordered.order.run_id]
    assert (entry.opened.system, entry.opened.consent, entry.rounds) == ("sdcf", words, {1, 2, 3})
    assert entry.opened.settings["secure_sums"] is True
    assert entry.ended is not None
    assert entry.cost.epsilon is None


def test_accepted_words_are_enough_and_told(federation: Federation) -> None:
    words = words_of(SYSTEMS["fedrec"])[-2]
    assert words.startswith("fedrec: ")
    usual(federation, accepted={words: "2026-11-18"})
    ordered = federation.order("fedrec", small("fedrec"))
    assert set(ordered.drive().consents.values()) == {f"accepted: {words}"}


def test_what_is_withdrawn_is_not_answered_any_more(federation: Federation) -> None:
    """Even if nobody enrols anew: the next round is refused."""
    words = words_of(SYSTEMS["fedrec"])[-2]
    usual(federation, accepted={words: "2026-11-18"})
    ordered, refused = federation.order("fedrec", small("fedrec")), list[str]()

    def withdraw(leg: Any) -> Any:
        if (leg.phase, leg.round_number, leg.node) == ("ItemFactors", 2, "node-1"):
            federation.settle("node-1", accepts_everything=False)
        return None

    wire = Wire(federation, withdraw)
    assert ordered.drive(wire).status == "failed"
    for _leg, data in wire.replies:
        reply = decode_packet(data)
        if reply.kind.name == "REFUSAL":
            refused.append(about(reply, Refusal).reason)
    assert len(refused) == 1
    assert words in refused[0]
    assert ledger_of(federation.folder / "node-1").entries()[ordered.order.run_id].rounds == {1}


def test_noise_is_in_the_ledger_as_it_was_promised_and_spent(tmp_path: Path) -> None:
    """A run that takes its rounds costs what the operator ordered, within a percent, and no more."""
    pytest.importorskip("dp_accounting")
    federation = Federation(tmp_path / "f", 2)
    usual(federation, budget={"epsilon": 10.0})
    config = small("sdcf", secure_sums=True, epsilon_total=6.0)
    ordered = federation.order("sdcf", config)
    assert ordered.drive().status == "done"
    entry = ledger_of(federation.folder / "node-1").entries()[ordered.order.run_id]
    assert entry.cost.epsilon is not None
    assert 0.99 * 6.0 < entry.cost.epsilon <= 6.0
    report = federation.order("sdcf", config).drive()
    assert report.status == "done"  # two runs with noise cost less than twice as much
    report = federation.order("sdcf", config).drive()
    assert "this run may cost epsilon 6, and of this node's budget" in report.reason
    report = federation.order("sdcf", small("sdcf", secure_sums=True)).drive()
    assert "no noise bounds what this run tells" in report.reason


@pytest.mark.parametrize("name", NAMES)
def test_what_a_run_may_cost_is_known_before_it_begins(name: str) -> None:
    """Of the settings that a system has tests for; epsilon at the delta of the node's ledger."""
    system = SYSTEMS[name]
    small, variants = system.about.small, system.about.variants
    for values in (*({**small, **variant} for variant in variants), *system.about.repairs, {}):
        config = system.configure(values)
        spending = system.result.spends(None, config)
        has_total = bool(getattr(config, "epsilon_total", 0) or getattr(config, "noise_multiplier", 0))
        assert (spending is not None) == has_total
        if spending is not None:
            assert spending.epsilon > 0
            assert spending.delta == DELTA
        assert config.num_rounds >= 1


def test_a_partner_promises_its_total(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    federation = Federation(tmp_path / "f", 2, split_for("fedcore", 2))
    usual(federation, budget={"epsilon": 6.0})
    values = {"model": "pmf", "inference": "none", "epsilon_total": 5.0, "privatizer": "none"}
    ordered = federation.order("fedcore", small("fedcore", **values))
    assert ordered.drive().status == "done"
    entry = ledger_of(federation.folder / "node-1").entries()[ordered.order.run_id]
    assert entry.cost.epsilon == pytest.approx(5.0, rel=0.01)
    assert "may cost epsilon 5" in federation.order("fedcore", small("fedcore", **values)).drive().reason


# --- Status ----------------------------------------------------------------------------------------------------


def status(folder: Path, *words: str) -> str:
    result = RUNNER.invoke(app, ["deploy", "status", str(folder), *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_status_of_a_kit_shows_what_was_agreed_to_and_given_away(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "f", 2)
    words = words_of(SYSTEMS["fedrec"])[-2]
    kit = federation.folder / "node-1"
    usual(federation, accepted={words: "2026-11-18"}, budget={"rounds": 10.0}, systems=["fedrec", "sdcf"])
    assert "no run yet" in status(kit)
    ordered = federation.order("fedrec", small("fedrec"))
    assert ordered.drive().status == "done"
    said = " ".join(status(kit).split())
    assert "node-1: takes part in fedrec, sdcf" in said
    assert f"accepted since 2026-11-18: {words}" in said
    assert "budget of rounds 10: 3 spent or held, 7 left" in said
    assert ordered.order.run_id[:8] in said
    assert "3/3 no noise" in said
    assert "3 rounds without noise" in said
    told = json.loads(status(kit, "--json"))
    assert told["budget"] == {"rounds": {"most": 10.0, "charged": 3.0, "left": 7.0}}
    assert told["accepted"] == {words: "2026-11-18"}
    [run] = told["runs"]
    assert (run["run"], run["rounds_answered"], run["epsilon"]) == (ordered.order.run_id, 3, None)
    assert run["settings"]["rho"] == ordered.order.config["rho"]


def test_status_of_a_federation_shows_consents_and_nothing_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_server(_connect: Any) -> None:
        raise HushrecError("the server does not answer")

    monkeypatch.setattr(deploy, "Apart", no_server)
    federation = Federation(tmp_path / "f", 2)
    usual(federation)
    ordered = federation.order("sdcf", small("sdcf", secure_sums=True))
    assert ordered.drive().status == "done"
    card = FederationCard("nvflare", "localhost", 1, federation.nodes)
    (federation.folder / "federation.json").write_bytes(msgspec.json.encode(card))
    name = ordered.order.run_name
    assert f"{name}  node-1, node-2  protected: the server sees sums" in status(federation.folder)
    told = json.loads(status(federation.folder, "--json"))
    assert told["runs"][name]["consents"] == dict.fromkeys(federation.nodes, "protected: the server sees sums")


def test_a_damaged_ledger_is_refused_by_status_and_by_the_node(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "f", 2)
    usual(federation)
    ordered = federation.order("sdcf", small("sdcf", secure_sums=True))
    assert ordered.drive().status == "done"
    ledger = federation.folder / "node-1" / "private" / "ledger.jsonl"
    ledger.write_bytes(b"x" + ledger.read_bytes())
    result = RUNNER.invoke(app, ["deploy", "status", str(ledger.parents[1])])
    assert isinstance(result.exception, HushrecError)
    assert "ledger.jsonl is damaged in line 1" in str(result.exception)
    federation.kill()
    report = federation.order("sdcf", small("sdcf", secure_sums=True)).drive()
    assert report.status == "failed"
    assert "node-1 refused: has lost what it had kept; its own log (private/node.log) says more" in report.reason
    assert "is damaged in line 1" in federation.log("node-1")[-1]["reason"]


# --- The command line ------------------------------------------------------------------------------------------


def test_deploy_node_keeps_words_and_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path / "f", 2)
    kit, data = federation.folder / "node-1", federation.shares["node-1"].data
    (kit / "private" / "node.json").unlink()
    monkeypatch.setattr(deploy, "_keep", lambda *_: None)
    monkeypatch.setattr(deploy, "node_process", lambda *_: None)
    words = words_of(SYSTEMS["fedrec"])[-2]

    def start(*options: str) -> Any:
        return RUNNER.invoke(app, ["deploy", "node", str(kit), "--data", str(data), *options])

    said = start("--accept", words, "--budget", "epsilon=8", "--budget", "rounds=500")
    assert said.exit_code == 0, said.output
    assert f"accepted: {words}" in " ".join(said.stderr.split())
    kept = read_settings(kit)
    assert (list(kept.accepted), kept.budget) == ([words], {"epsilon": 8.0, "rounds": 500.0})
    assert not kept.accepts_everything
    assert start().exit_code == 0
    assert list(read_settings(kit).accepted) == [words]
    assert start("--withdraw", words).exit_code == 0
    assert read_settings(kit).accepted == {}
    for options, told in (
        (("--accept", "everything"), "no system exposes that"),
        (("--withdraw", words), "that is not accepted"),
        (("--budget", "epsilon"), "write epsilon=8"),
        (("--allow", "sdcf", "--budget", "fedrec:rounds=3"), "does not take part in fedrec"),
        (("--close", "00"), "0 runs that go on begin so"),
    ):
        assert told in str(start(*options).exception)
    assert read_settings(kit).accepted == {}


def test_settings_without_words_are_read(tmp_path: Path) -> None:
    """Those of a node that was started before there were any."""
    write_settings(tmp_path, NodeSettings(NodeFiles("x.csv")))
    path = tmp_path / "private" / "node.json"
    kept = json.loads(path.read_text())
    for name in ("accepted", "accepts_everything", "budget"):
        del kept[name]
    path.write_text(json.dumps(kept))
    assert read_settings(tmp_path) == NodeSettings(NodeFiles("x.csv"))
