from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Literal

import pytest

from hushrec.errors import HushrecError, naming_options, option
from hushrec.settings import build, check, check_bounds, setting, shown_to_parties, to_dict


@dataclass(frozen=True, kw_only=True)
class Oven:
    degrees: int = setting(180, "how hot")
    minutes: float = setting(45.0, "how long")
    mode: Literal["top", "fan"] = setting("fan", "from where")

    def __post_init__(self) -> None:
        check(self.degrees > 0, f"{option('degrees')} must be above 0")


def test_defaults_and_help() -> None:
    assert build(Oven, {}) == Oven(degrees=180, minutes=45.0, mode="fan")
    assert [field.metadata["help"] for field in fields(Oven)] == ["how hot", "how long", "from where"]


def test_values_round_trip() -> None:
    oven = Oven(degrees=200, mode="top")
    assert to_dict(oven) == {"degrees": 200, "minutes": 45.0, "mode": "top"}
    assert build(Oven, to_dict(oven)) == oven


def test_whole_numbers_are_taken_for_fractions() -> None:
    """TOML and the command line write 30 for 30.0; the config is the same, type and all."""
    oven = build(Oven, {"minutes": 30})
    assert oven == Oven(minutes=30.0)
    assert isinstance(oven.minutes, float)


def test_configs_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        build(Oven, {}).degrees = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"degree": 1}, "^unknown setting degree; did you mean degrees[?]$"),
        ({"colour": 1}, "^unknown setting colour; known: degrees, minutes, mode$"),
        ({"degrees": "hot"}, "^bad setting degrees='hot': expected int, got str$"),
        ({"degrees": 1.5}, "^bad setting degrees=1.5: expected int, got float$"),
        ({"degrees": True}, "^bad setting degrees=True: expected int, got bool$"),
        ({"degrees": None}, "^bad setting degrees=: expected int, got null$"),
        ({"degrees": 10**20}, "^degrees=100000000000000000000 is too large; use at most 2147483647$"),
        ({"mode": "bottom"}, "^bad setting mode='bottom': choose from top, fan$"),
        ({"degrees": 0}, "^degrees= must be above 0$"),
    ],
)
def test_bad_values_are_one_line_errors(values: dict[str, object], message: str) -> None:
    with pytest.raises(HushrecError, match=message) as caught:
        build(Oven, values)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True, kw_only=True)
class Bounded:
    share: float = setting(0.5, "a share", "(0, 1]")
    count: int = setting(3, "a number", "[1, inf)")
    rate: float = setting(0.1, "a rate", "(0, inf)")
    weight: float = setting(0.0, "a weight", "[0, inf)")
    widths: tuple[int, int] = setting((2, 1), "two numbers", "[1, inf)")
    secret_model: str = setting("best", "nobody else's business", is_secret=True)

    def __post_init__(self) -> None:
        check_bounds(self)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 0.0}, "share=0.0 is not in (0, 1]"),
        ({"share": 1.5}, "share=1.5 is not in (0, 1]"),
        ({"share": float("nan")}, "share=nan is not in (0, 1]"),
        ({"count": 0}, "count= must be at least 1"),
        ({"rate": 0.0}, "rate= must be above 0 and finite"),
        ({"rate": float("inf")}, "rate= must be above 0 and finite"),
        ({"weight": -0.1}, "weight= must not be below 0"),
        ({"widths": [1, 0]}, "widths= must be at least 1 each"),
    ],
)
def test_bounds_are_those_of_the_settings(values: dict[str, object], message: str) -> None:
    with pytest.raises(HushrecError) as caught:
        build(Bounded, values)
    assert str(caught.value) == message


def test_what_lies_on_a_closed_bound_is_taken() -> None:
    assert build(Bounded, {"share": 1.0, "count": 1, "widths": [1, 1]}).widths == (1, 1)


def test_secrets_are_not_shown_to_parties() -> None:
    assert "secret_model" in to_dict(Bounded())
    assert shown_to_parties(Bounded()).keys() == to_dict(Bounded()).keys() - {"secret_model"}


def test_the_command_line_names_options_and_python_names_arguments() -> None:
    """While a command runs; after it, and after an error in it, arguments are named again."""
    assert [option("num_rounds"), option("num_rounds", 3), option("mode", "top")] == [
        "num_rounds=", "num_rounds=3", "mode='top'",
    ]  # fmt: skip
    with pytest.raises(HushrecError, match=r"^--share 1\.5 is not in \(0, 1\]$"), naming_options():
        build(Bounded, {"share": 1.5})
    with pytest.raises(HushrecError, match=r"^bad setting --mode bottom: choose from top, fan$"), naming_options():
        build(Oven, {"mode": "bottom"})
    with naming_options():
        typed = [option("num_rounds", 3), option("stop_early", True), option("stop_early", False)]
        assert [*typed, option("widths", (8, 4))] == [
            "--rounds 3",
            "--stop-early",
            "--no-stop-early",
            "--widths 8,4",
        ]
    assert option("share", 0.5) == "share=0.5"
