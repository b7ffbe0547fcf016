"""An owner or a partner that lies about its gradients, in the audit: nothing refuses it, its harm is measured."""

from typing import Any

import pytest

from hushrec.audit.spoiling.measuring import Case, attacks_of_parties, cases_of, measure
from hushrec.data import Deal
from hushrec.data.synthetic import synthetic
from hushrec.registry import SYSTEMS
from hushrec.runs.run_settings import settings_for, splits_for
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import Job

DATA = synthetic(100, 300, 2500, seed=1)


def spoilt(name: str, attack: str, **values: Any) -> Any:
    system = SYSTEMS[name]
    config = system.configure(values)
    owners = "2" if name == "drift" else ""
    settings = settings_for(system, 0, 1, None, 0.2, deal=Deal(2), owners=owners, data=DATA)
    split = next(iter(splits_for(system, DATA, settings, config)))
    job = Job(system, config, 0, split.train)
    case = Case(attack, 1 if attack else 0, "", {})
    return measure(job, split.test, case, RuntimeOptions(threads=1), lambda _now: None)


def test_an_owner_gets_its_item_into_all_lists() -> None:
    values = {"epochs": 3, "parts": 1, "window": 100, "num_factors": 6, "learning_rate": 0.1}
    calm, boosted = spoilt("drift", "", **values), spoilt("drift", "explicit boosting", **values)
    assert calm.exposure < 0.3
    assert boosted.exposure > 0.6
    flipped = spoilt("drift", "sign flipping", **values)
    assert flipped.metrics != calm.metrics


def test_a_partner_spoils_common_users_of_others() -> None:
    values = {"num_rounds": 15, "inference": "none", "batch_size": 16, "learning_rate": 0.4}
    calm, flipped = spoilt("fedcore", "", **values), spoilt("fedcore", "sign flipping", **values)
    assert flipped.end or flipped.metrics["RMSE"] > 1.01 * calm.metrics["RMSE"]


@pytest.mark.parametrize(("name", "number"), [("drift", 2), ("fedcore", 1)])
def test_one_organisation_lies_whatever_the_shares(name: str, number: int) -> None:
    system = SYSTEMS[name]
    cases = cases_of(system, 60, (0.001, 0.05), attacks_of_parties(system), 1.0)
    assert [case.num_liars for case in cases] == [0] + [1] * number
