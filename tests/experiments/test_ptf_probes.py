"""What is measured inside of runs is what an audit of the same run finds, round by round."""

import pytest

import hushrec
from hushrec.audit.attacks import ATTACKS
from hushrec.audit.driver import audit
from hushrec.data import Interactions
from hushrec.experiments.probes import all_of
from hushrec.experiments.ptf_probes import PROBES
from hushrec.registry import SYSTEMS
from hushrec.runs.folds import run
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.checkpoint import Progress
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job, job_for, run_job

NUM_ROUNDS = 4
EXTRACTIONS = [name for name in PROBES if name.startswith("server extraction")]


@pytest.fixture(scope="module")
def data() -> Interactions:
    return hushrec.load("synthetic:users=60,items=80,ratings=1200")


def job_of(data: Interactions, seed: int) -> Job:
    system = SYSTEMS["ptf-fedrec"]
    config = system.configure({**system.about.small, "num_rounds": NUM_ROUNDS})
    return job_for(system, config, seed, data)


def probed(job: Job) -> list[dict[str, float]]:
    found, probe = list[dict[str, float]](), all_of(list(PROBES))

    def on_round(progress: Progress) -> None:
        found.append(probe(job, progress))
        progress.transcript.recorded.clear()

    run_job(job, RuntimeOptions(1, keep_payloads=True), on_round=on_round)
    return found


def test_probes_inside_of_a_run_remember_its_rounds(data: Interactions) -> None:
    """What `run` keeps of them is what an audit of the same training part finds."""
    system = SYSTEMS["ptf-fedrec"]
    config = system.configure({**system.about.small, "num_rounds": NUM_ROUNDS})
    settings = settings_for(system, data=data)
    names = ["order change F1", *EXTRACTIONS]
    done = run(system, config, data, settings, RuntimeOptions(1), probe=all_of(names))
    train = next(splits_for(system, data, settings)).train
    attacks = [ATTACKS[name.removesuffix(" F1")] for name in names]
    audited = audit(Job(system, config, 0, train), RuntimeOptions(1), lambda _progress, _scores: None, attacks)
    findings = {finding.attack.name: finding for finding in audited.findings}
    for name in names:
        finding = findings[name.removesuffix(" F1")]
        assert done.folds[0].curve[name] == [score or 0.0 for score in finding.rounds]
    assert done.folds[0].curve["order change F1"][-1] > 0


def test_a_probe_finds_what_an_audit_finds(data: Interactions) -> None:
    """In two runs, one after the other: nothing of the first is remembered in the second."""
    names = {"order change F1": "order change", **{name: name for name in EXTRACTIONS}}
    for seed in (0, 1):
        found = probed(job_of(data, seed))
        attacks = [ATTACKS[name] for name in names.values()]
        done = audit(job_of(data, seed), RuntimeOptions(1), lambda _progress, _scores: None, attacks)
        rounds = {finding.attack.name: finding.rounds for finding in done.findings}
        for name, attack in names.items():
            assert [one[name] for one in found] == [score or 0.0 for score in rounds[attack]]
        chances = {finding.attack.name: finding.chance for finding in done.findings}
        for name in EXTRACTIONS:
            which = name.removeprefix("server extraction ")
            last = found[-1]
            assert last[f"own data alone {which}"] == pytest.approx(chances[name])
            assert last[f"gain {which}"] == pytest.approx(last[name] - chances[name])
        assert found[0]["order change F1"] == 0.0
        assert found[-1]["order change F1"] > 0.0
