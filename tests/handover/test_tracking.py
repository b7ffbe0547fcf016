"""What trackers are told, whichever they are: by one that keeps all it hears."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hushrec
from hushrec.audit.kept import KeptAudit, KeptFinding, write_audit
from hushrec.errors import HushrecError, MissingExtraError
from hushrec.handover import tracking
from hushrec.handover.tracking import FILE, Following, KnownRounds, Wanted, parse_trackers, tell_leakage
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.record import Run
from hushrec.runs.run_settings import RunSettings
from hushrec.runs.suiting import plan_for, run_suited
from hushrec.runtime.in_process import RuntimeOptions

SECRET = "her-clinic"
QUICK: dict[str, Any] = {"num_rounds": 3, "num_factors": 4, "rho": 1}
ONE_THREAD = RuntimeOptions(threads=1)


class Listener:
    """A tracker that keeps what it is told."""

    heard: list[tuple[Any, ...]] = []  # noqa: RUF012  # of all that were made

    def __init__(self, place: str | None) -> None:
        self.place = place or "here"

    def begin(self, known: str | None, name: str, settings: Mapping[str, Any]) -> str:
        self.heard.append(("begin", known, name, dict(settings)))
        return known or f"id-{len(self.heard)}"

    def tell(self, step: int, values: Mapping[str, float], order: int) -> None:
        self.heard.append(("tell", step, dict(values), order))

    def end(self, values: Mapping[str, float], digests: Mapping[str, str], ending: str) -> None:
        self.heard.append(("end", dict(values), dict(digests), ending))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    monkeypatch.setattr(tracking, "_HOMES", {"mlflow": (__name__, "Listener"), "wandb": (__name__, "Listener")})
    monkeypatch.setattr(Listener, "heard", [])
    monkeypatch.setattr(tracking, "import_module", lambda _name: tracking_listeners)
    return Listener.heard


class tracking_listeners:  # stands for a module
    Listener = Listener


@pytest.fixture
def data(tmp_path: Path) -> hushrec.Interactions:
    rows = [(user, item, 1 + (user * item) % 5) for user in range(20) for item in range(15) if (user + item) % 3]
    file = tmp_path / f"{SECRET}.csv"
    lines = [f"{SECRET}-{user},{SECRET}-item-{item},{rating}" for user, item, rating in rows]
    file.write_text("user,item,rating\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return hushrec.load(file)


def followed_run(
    data: hushrec.Interactions, following: Following, folder: Path | None = None, **others: Any
) -> Run:
    config = SYSTEMS["fedrec"].configure(QUICK)
    command = f"hushrec run fedrec --data {SECRET}.csv"
    return run(
        SYSTEMS["fedrec"], config, data, RunSettings(), ONE_THREAD, folder, follower=following, command=command,
        **others,
    )  # fmt: skip


def test_settings_rounds_and_results_are_told(heard: list[tuple[Any, ...]], data: hushrec.Interactions) -> None:
    done = followed_run(data, Following("mlflow"))
    begin, *rounds, end = heard
    assert begin[:3] == ("begin", None, "fedrec on data of its owner")
    assert (begin[3]["rho"], begin[3]["users"], begin[3]["seed"]) == (1, 20, 0)
    assert [told[:2] for told in rounds] == [("tell", 1), ("tell", 2), ("tell", 3)]
    assert [told[2]["RMSE"] for told in rounds] == done.folds[0].curve["RMSE"]
    assert rounds[-1][2]["bytes sent"] == sum(done.folds[0].sent_bytes.values())
    assert end[1]["final/RMSE"] == done.mean["RMSE"]
    assert end[2:] == ({"model_sha256": done.folds[0].model_sha256}, "done")


def test_nothing_private_is_told(heard: list[tuple[Any, ...]], data: hushrec.Interactions, tmp_path: Path) -> None:
    """Neither ids, nor the name of the file, nor the command, nor the folder."""
    followed_run(data, Following(["mlflow", "wandb"]), tmp_path / f"{SECRET}-run")
    assert len(heard) == 10
    assert SECRET not in repr(heard)
    assert str(tmp_path) not in repr(heard)
    told = {name for entry in heard if entry[0] == "tell" for name in entry[2]}
    lists = {name for name in told if name.endswith(" at 10")}
    assert told - lists == {"MAE", "RMSE", "bytes sent"}


def test_a_run_that_goes_on_goes_on_there(
    heard: list[tuple[Any, ...]], data: hushrec.Interactions, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def stop(now: Any) -> None:
        if now.round_number == 2:
            raise Stop

    folder = tmp_path / "run"
    with pytest.raises(Stop):
        followed_run(data, Following("mlflow", folder), folder, watch=stop)
    assert heard[-1] == ("end", {}, {}, "interrupted")
    assert json.loads((folder / FILE).read_text()) == {"mlflow": {"id": "id-1", "place": "here"}}
    del heard[:]
    followed_run(data, Following("mlflow", folder), folder, resume=True)
    assert heard[0][:2] == ("begin", "id-1")
    assert [told[1] for told in heard[1:-1]] == [2, 3]


def test_elsewhere_it_begins_anew(
    heard: list[tuple[Any, ...]], data: hushrec.Interactions, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    followed_run(data, Following("mlflow", folder), folder)
    followed_run(data, Following("mlflow=there", folder), folder, resume=True)
    assert [told[1] for told in heard if told[0] == "begin"] == [None, None]


def test_what_diverges_is_a_run_of_its_own(
    heard: list[tuple[Any, ...]], data: hushrec.Interactions, tmp_path: Path
) -> None:
    """And the one with a smaller learning rate is another."""
    system, folder = SYSTEMS["pmf"], tmp_path / "run"
    plan = plan_for(system, {"num_rounds": 3, "num_factors": 3}, "ml-100k", False)
    plan = plan.with_choice(tracking_choice(60.0))
    from contextlib import nullcontext

    following = Following("mlflow", folder)
    run_suited(
        plan, data, RunSettings(), ONE_THREAD, folder, False, lambda *_: nullcontext(lambda _now: None),
        lambda _line: None, follower=following,
    )  # fmt: skip
    assert [told[-1] for told in heard if told[0] == "end"] == ["failed", "done"]
    begins = [told for told in heard if told[0] == "begin"]
    assert [told[1] for told in begins] == [None, None]
    assert begins[1][3]["learning_rate"] < begins[0][3]["learning_rate"] == 60.0


def tracking_choice(rate: float) -> Any:
    from hushrec.runs.record import Choice

    return Choice("learning_rate", rate, "to diverge")


def test_what_attacks_read_is_told(
    heard: list[tuple[Any, ...]], data: hushrec.Interactions, tmp_path: Path
) -> None:
    """With the run if it was audited before it ended, or by itself."""
    folder = tmp_path / "run"
    followed_run(data, Following("mlflow", folder), folder)
    audit = KeptAudit(3, "2026-01-01", [KeptFinding("one upload", "server", "F1", 0.75, 0.25, None, [0.75])])
    write_audit(folder, audit)
    del heard[:]
    assert list(tell_leakage(folder, audit)) == ["mlflow was told what attacks read, in here"]
    told = {"leakage/one upload by server": 0.75, "leakage/one upload by server blind": 0.25}
    assert heard == [("begin", "id-1", "", {}), ("end", told, {}, "done")]
    followed_run(data, Following("mlflow", folder), folder, resume=True)
    assert heard[-1][1].items() >= told.items()


def test_a_store_that_is_gone_is_told_when_the_audit_is_kept(
    heard: list[tuple[Any, ...]], data: hushrec.Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit of an hour ended in a traceback."""
    folder = tmp_path / "run"
    followed_run(data, Following("mlflow", folder), folder)

    def gone(*_: object) -> str:
        raise KeyError("no run has this id")

    monkeypatch.setattr(Listener, "begin", gone)
    (line,) = tell_leakage(folder, KeptAudit(3, "2026-01-01", []))
    assert line == "mlflow was not told what attacks read ('no run has this id')"


def test_fit_tells_trackers(heard: list[tuple[Any, ...]]) -> None:
    data = hushrec.load("synthetic:users=40,items=30,ratings=500")
    model = hushrec.FedRec(options=ONE_THREAD, **QUICK).fit(
        data, stop_early=False, progress=False, track={"mlflow": "there"}
    )
    assert [told[0] for told in heard] == ["begin", "tell", "tell", "tell", "end"]
    assert heard[0][2] == "fedrec on synthetic"
    assert heard[-1][2]["model_sha256"] in model.card()


def test_a_tracker_that_breaks_is_one_line(
    heard: list[tuple[Any, ...]], data: hushrec.Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Listener, "begin", full)
    with pytest.raises(
        HushrecError, match=r"mlflow refused to keep the run in here \(.*No space left.*choose another"
    ):
        followed_run(data, Following("mlflow"))


@pytest.mark.parametrize("where", ["tell", "end"])
def test_a_run_goes_on_without_a_tracker_that_fails_in_the_middle(
    heard: list[tuple[Any, ...]],
    data: hushrec.Interactions,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: str,
) -> None:
    """The run ended, after however many hours; it warns once, and the other tracker is told on."""
    whole = Listener.tell if where == "tell" else Listener.end

    def gone(self: Listener, step: Any, *others: Any) -> None:
        if self.place == "there" and step != 1:
            raise HushrecError("server\nhas gone") if where == "tell" else KeyError("no such run")
        whole(self, step, *others)

    monkeypatch.setattr(Listener, where, gone)
    warned: list[str] = []
    following = Following({"mlflow": "there", "wandb": "here"}, tmp_path / "run", warned.append)
    done = followed_run(data, following, tmp_path / "run")
    reason = "server has gone" if where == "tell" else "'no such run'"
    assert warned == [f"mlflow in there failed ({reason}); it is told nothing more of this run"]
    assert done.mean == followed_run(data, Following(None)).mean
    assert [told[0] for told in heard].count("tell") == (4 if where == "tell" else 6)
    assert [told[0] for told in heard].count("end") == 1


def test_rounds_that_were_told_are_not_told_again() -> None:
    """Each fold by itself; of a new run nothing was told."""
    asked: list[str] = []

    def last_of(metric: str) -> int | None:
        asked.append(metric)
        return {"fold 1/bytes sent": 3}.get(metric)

    known = KnownRounds(last_of)
    assert [known.has(step, {"fold 1/RMSE": 1.0, "fold 1/bytes sent": 1.0}) for step in (2, 3, 4)] == [
        True,
        True,
        False,
    ]
    assert not known.has(1, {"fold 2/bytes sent": 1.0})
    assert asked == ["fold 1/bytes sent", "fold 2/bytes sent"]
    assert not KnownRounds().has(1, {})


def test_folds_are_told_apart(heard: list[tuple[Any, ...]], data: hushrec.Interactions) -> None:
    config = SYSTEMS["fedrec"].configure(QUICK)
    settings = RunSettings(num_folds=2)
    run(SYSTEMS["fedrec"], config, data, settings, ONE_THREAD, follower=Following("mlflow"))
    told = [(entry[1], next(iter(entry[2])).partition("/")[0], entry[3]) for entry in heard if entry[0] == "tell"]
    assert told == [(1, "fold 1", 1), (2, "fold 1", 2), (3, "fold 1", 3), (1, "fold 2", 4), (2, "fold 2", 5),
                    (3, "fold 2", 6)]  # fmt: skip


# --- What is asked for --------------------------------------------------------------------------------------


def test_trackers_are_named_in_many_ways() -> None:
    assert parse_trackers(None) == []
    assert parse_trackers("mlflow") == [Wanted("mlflow")]
    assert parse_trackers(["mlflow=a=b.db", "wandb"]) == [Wanted("mlflow", "a=b.db"), Wanted("wandb")]
    assert parse_trackers({"trackio": Path("here")}) == [Wanted("trackio", "here")]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("nosuch", "track='nosuch' is unknown; choose from mlflow, tensorboard, wandb, trackio"),
        (["mlflow", "mlflow=x"], "track= names a tracker twice; leave one out"),
    ],
)
def test_bad_names_are_one_line(asked: Any, told: str) -> None:
    with pytest.raises(HushrecError) as refused:
        Following(asked)
    assert str(refused.value) == told


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "wandb", "trackio"])
def test_a_missing_package_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module in [
        one for one in sys.modules if one.partition(".")[0] == name or one == f"hushrec.handover.to_{name}"
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError) as refused:
        Following(name)
    assert f"track='{name}' needs the package {name}; install it with: pip install '.[{name}]'" in str(
        refused.value
    )


def test_without_trackers_nothing_happens(tmp_path: Path) -> None:
    following = Following(None, tmp_path)
    following.end(None)
    assert list(tmp_path.iterdir()) == []
