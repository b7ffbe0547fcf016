from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Literal

import pytest

from hushrec.errors import HushrecError
from hushrec.settings import build, check, setting, to_dict


@dataclass(frozen=True, kw_only=True)
class Oven:
    degrees: int = setting(180, "how hot")
    minutes: float = setting(45.0, "how long")
    mode: Literal["top", "fan"] = setting("fan", "from where")

    def __post_init__(self) -> None:
        check(self.degrees > 0, "--degrees must be above 0")


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
        ({"degrees": "hot"}, "^bad setting: .*int.*str.*degrees"),
        ({"degrees": 1.5}, "^bad setting: .*degrees"),
        ({"degrees": True}, "^bad setting: .*degrees"),
        ({"degrees": None}, "^bad setting: .*degrees"),
        ({"mode": "bottom"}, "^bad setting: .*bottom.*mode"),
        ({"degrees": 0}, "^--degrees must be above 0$"),
    ],
)
def test_bad_values_are_one_line_errors(values: dict[str, object], message: str) -> None:
    with pytest.raises(HushrecError, match=message) as caught:
        build(Oven, values)
    assert "\n" not in str(caught.value)
