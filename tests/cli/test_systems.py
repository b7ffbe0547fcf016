import json
from typing import Any

import pytest
from typer.testing import CliRunner

from hushrec.cli.verbs import app
from hushrec.errors import HushrecError
from hushrec.protocol.declared import reveals
from hushrec.registry import SYSTEMS

NAMES = list(SYSTEMS)


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "140")


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["systems", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stderr == ""
    return result.stdout


def test_the_list_is_the_registry() -> None:
    lines = [line.rstrip() for line in invoke().splitlines()]
    assert lines[0].split() == ["name", "what", "it", "is", "published", "roles"]
    rows = [line for line in lines[1:] if not line.startswith(" ")]  # long cells go on in the next line
    assert [line.split()[0] for line in rows] == NAMES
    for line, system in zip(rows, SYSTEMS.values(), strict=True):
        assert system.about.title[:40] in line
        assert f"{system.about.paper.venue} {system.about.paper.year}" in line
    assert rows[NAMES.index("fedrec++")].endswith("server, client, denoiser")


def test_json_is_the_registry() -> None:
    said: list[dict[str, Any]] = json.loads(invoke("--json"))
    assert [entry["name"] for entry in said] == NAMES
    for entry, system in zip(said, SYSTEMS.values(), strict=True):
        assert set(entry) == {"name", "title", "paper", "roles", "messages", "settings", "presets", "published_on"}
        assert [message["type"] for message in entry["messages"]] == [kind.__name__ for kind in system.messages]
        assert all(message["reveals"] for message in entry["messages"])
        assert entry["settings"] == {
            name: list(field.default) if isinstance(field.default, tuple) else field.default
            for name, field in system.config.__dataclass_fields__.items()
        }
        assert entry["paper"]["year"] == system.about.paper.year
    assert json.loads(invoke("fedrec", "--json")) == [said[NAMES.index("fedrec")]]


@pytest.mark.parametrize("name", NAMES)
def test_one_system_shows_messages_settings_and_threat_model(name: str) -> None:
    system, paper = SYSTEMS[name], SYSTEMS[name].about.paper
    shown = invoke(name)
    words = " ".join(shown.split())
    assert f"{name}: {system.about.title}" in words
    assert f"{paper.authors}: {paper.title} ({paper.venue} {paper.year})" in words
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    for message in system.messages:
        assert rows[message.__name__][:2] == [message.sender, message.receiver]
    for setting, field in system.config.__dataclass_fields__.items():
        default = str(field.default).split()
        assert rows[setting][: len(default)] == default
    threat = words.partition("Threat model: ")[2]
    assert len(threat) > 4
    assert "Symbols" not in threat


def test_what_a_message_reveals_is_its_docstring() -> None:
    hand_over, ratings = SYSTEMS["pmf"].messages
    assert reveals(hand_over) == "nothing."
    assert reveals(ratings) == "everything, all items that the client rated and how."


def test_unknown_systems_are_refused_with_the_known() -> None:
    with pytest.raises(HushrecError, match="no system 'nosuch'; choose from pmf, fedrec"):
        invoke("nosuch")
