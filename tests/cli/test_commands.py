from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from hushrec.cli.commands import alone, joined, settings_of, settings_of_all
from hushrec.cli.declared import Declared, Setting
from hushrec.errors import HushrecError

TOY = Declared(
    "toy",
    "Toy",
    (
        Setting("layers", tuple[int, ...], (8, 4), "widths"),
        Setting("num_rounds", int, 3, "rounds"),
        Setting("biases", bool, False, "biases"),
    ),
)


def typed(group: Any, *words: str) -> Any:
    found: list[Any] = []

    def verb(values: dict[str, Any]) -> None:
        found.append(values)

    result = CliRunner().invoke(alone(joined(verb, values=group), "toy", "toy"), words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


@pytest.mark.parametrize("make", [settings_of, lambda system: settings_of_all([system])])
def test_lists_of_any_length_are_typed_with_commas(make: Any) -> None:
    assert typed(make(TOY)) == {}
    assert typed(make(TOY), "--layers", "48,24,12", "--rounds", "2") == {"layers": (48, 24, 12), "num_rounds": 2}
    with pytest.raises(
        HushrecError, match=r"--layers '4,x' is not a list of whole numbers; write --layers 5,10,20"
    ):
        typed(make(TOY), "--layers", "4,x")


@pytest.mark.parametrize("make", [settings_of, lambda system: settings_of_all([system])])
def test_flags_are_typed_alone_and_can_be_taken_back(make: Any) -> None:
    """So that what a preset turns on can be turned off."""
    assert typed(make(TOY), "--biases") == {"biases": True}
    assert typed(make(TOY), "--no-biases") == {"biases": False}


def test_help_shows_the_default_as_it_is_typed() -> None:
    def verb(values: dict[str, Any]) -> None: ...

    app: typer.Typer = alone(joined(verb, values=settings_of(TOY)), "toy", "toy")
    assert "8,4" in CliRunner().invoke(app, ["--help"]).output


def test_numbers_that_no_counter_holds_are_refused() -> None:
    def verb(trials: int = 3) -> None:
        raise AssertionError(f"began {trials}")

    with pytest.raises(HushrecError, match=r"^--trials 99999999999999999999 is too large; use at most \d+$"):
        joined(verb)(trials=99999999999999999999)
