"""What is searched: what systems declare, and what somebody asks for."""

from dataclasses import fields
from typing import get_type_hints

import pytest

from hushrec.errors import HushrecError
from hushrec.registry import SYSTEMS
from hushrec.runs.trials import length_setting
from hushrec.settings import Between, OneOf
from hushrec.tuning.spaces import chosen_spaces, declared, longest, rounded

BUILT_IN = [name for name in SYSTEMS if SYSTEMS.is_built_in(name)]


@pytest.mark.parametrize("name", BUILT_IN)
def test_declared_spaces_lie_within_what_the_config_accepts(name: str) -> None:
    system = SYSTEMS[name]
    kinds = get_type_hints(system.config)
    for setting, space in declared(system).items():
        ends = (space.low, space.high) if isinstance(space, Between) else space.values
        for value in ends:
            typed = int(value) if kinds[setting] is int else value
            assert typed == value  # an interval of whole numbers has whole ends
            assert getattr(system.configure({setting: typed}), setting) == typed
        if isinstance(space, Between):
            assert space.low < space.high
            assert space.low > 0 or not space.log


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name != "average"])
def test_every_system_that_learns_has_its_rate_and_its_length_searched(name: str) -> None:
    system = SYSTEMS[name]
    spaces = chosen_spaces(system, (), {})
    rates = [entry.name for entry in fields(system.config) if entry.name.endswith("learning_rate")]
    assert {*rates, length_setting(system)} <= spaces.keys()


@pytest.mark.parametrize("name", BUILT_IN)
def test_defaults_lie_within_the_spaces(name: str) -> None:
    """But for 0, which stands for a value that depends on others."""
    system = SYSTEMS[name]
    for setting, space in declared(system).items():
        value = getattr(system.configure({}), setting)
        assert value in space or value == 0


def test_what_protects_people_is_searched_only_if_asked_for() -> None:
    fedrec = SYSTEMS["fedrec++"]
    assert not {"rho", "denoisers"} & chosen_spaces(fedrec, (), {}).keys()
    assert chosen_spaces(fedrec, ["rho,num-factors"], {}).keys() == {"rho", "num_factors", "num_rounds"}
    assert chosen_spaces(fedrec, ["usual,rho"], {}).keys() == {*chosen_spaces(fedrec, (), {}), "rho"}


def test_what_has_a_value_is_not_searched() -> None:
    pmf = SYSTEMS["pmf"]
    assert not {"num_factors", "num_rounds"} & chosen_spaces(pmf, (), {"num_factors": 5, "num_rounds": 2}).keys()


def test_intervals_and_values_can_be_named() -> None:
    fedrec = SYSTEMS["fedrec"]
    spaces = chosen_spaces(fedrec, ["rho=0..5", "learning_rate=0.1..1", "filling=hybrid,average", "update"], {})
    assert spaces == {
        "rho": Between(0, 5),
        "learning_rate": Between(0.1, 1.0, log=True),  # as declared
        "filling": OneOf(("hybrid", "average")),
        "update": OneOf(("simultaneous", "sequential")),
        "num_rounds": declared(fedrec)["num_rounds"],
    }
    assert chosen_spaces(fedrec, ["biases=true,false"], {})["biases"] == OneOf((True, False))


def test_the_length_goes_as_far_as_it_is_told() -> None:
    pmf = SYSTEMS["pmf"]
    config = pmf.configure({"num_rounds": 300})
    assert longest(pmf, chosen_spaces(pmf, ["usual", "rounds=1..7"], {}), config) == 7
    assert longest(pmf, chosen_spaces(pmf, (), {}), config) == 300
    assert longest(pmf, chosen_spaces(pmf, (), {}), pmf.configure({})) == 200


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ("nosuch", "over='nosuch': fedrec has no such setting; it has rho, filling"),
        ("participation", "say where to look, as in over='participation=LOW..HIGH'"),
        ("rho=5..0", "over='rho=5..0': write an interval"),
        ("rho=a..b", "over='rho=a..b': write an interval"),
        ("rho=1", "over='rho=1': write an interval"),
        ("biases=maybe,no", "write an interval"),
        ("filling=hybrid,nosuch", "write an interval"),
        ("rho=-3..5", "rho=-3 is not within 0 to 10000"),
        ("learning_rate=-1..5", "learning_rate= must be above 0"),
        ("regularization=0..nan", "write an interval"),
        ("decay", "decay is given a value; leave that out"),
    ],
)
def test_what_cannot_be_searched_is_refused(over: str, told: str) -> None:
    with pytest.raises(HushrecError) as caught:
        chosen_spaces(SYSTEMS["fedrec"], [over], {"decay": 1.0})
    assert told in str(caught.value)


def test_a_system_without_settings_is_not_tuned() -> None:
    with pytest.raises(HushrecError, match="nothing of average is left to search"):
        chosen_spaces(SYSTEMS["average"], (), {})


def test_drawn_numbers_are_short_and_within() -> None:
    assert rounded(0.012345, Between(0.001, 1.0)) == 0.0123
    assert rounded(0.99996, Between(0.0, 0.99995)) == 0.99995
    assert rounded(12345, Between(0, 99999)) == 12345
    assert rounded("a", OneOf(("a", "b"))) == "a"
