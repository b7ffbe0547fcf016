"""Names that can be nodes, folders that are kits, and what is said about the others."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from federation import certificate
from federation import make_kits as make_plain_kits

from hushrec.choices import EngineName
from hushrec.deploy.certificates import Authority, PrivateKey, new_authority
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.engines import Session
from hushrec.deploy.kits import Federation, find_kit, make_kits, node_names, read_federation, read_kit
from hushrec.errors import HushrecError


class Engine:
    """Provisions folders, and certificates of nodes in them."""

    name: EngineName = "nvflare"

    def provision(self, folder: Path, nodes: Sequence[str], host: str, port: int) -> Authority:
        assert (host, port) == ("localhost", 8002)
        for name in ("server", *nodes):
            (folder / name / "startup").mkdir(parents=True)
        for name in nodes:
            (folder / name / "startup" / "client.crt").write_bytes(certificate(name)[0])
        return new_authority("hushrec")

    def new_key(self) -> PrivateKey:
        raise NotImplementedError

    def fill_kit(self, kit: Path, name: str, host: str, port: int) -> None:
        raise NotImplementedError

    def admit(self, folder: Path, name: str, certificate: bytes) -> None:
        raise NotImplementedError

    def dismiss(self, folder: Path, name: str) -> None:
        raise NotImplementedError

    def server_command(self, folder: Path) -> list[str]:
        raise NotImplementedError

    def node_command(self, kit: Path) -> list[str]:
        raise NotImplementedError

    def session(self, folder: Path, timeout_seconds: float) -> Session:
        raise NotImplementedError


def make(folder: Path, *nodes: str, **values: Any) -> Federation:
    return make_kits(folder, Engine(), nodes, values.get("host", "localhost"), values.get("port", 8002))


def test_a_federation_is_read_as_it_was_made(tmp_path: Path) -> None:
    made = make(tmp_path / "fed", "shop", "clinic")
    assert made == read_federation(tmp_path / "fed")
    assert made == Federation("nvflare", "localhost", 8002, ["shop", "clinic"])
    for name in ("shop", "clinic"):
        kit = read_kit(tmp_path / "fed" / name)
        assert (kit.name, kit.engine, kit.nodes) == (name, "nvflare", ["clinic", "shop"])
        assert node_names(tmp_path / "fed" / name) == ["clinic", "shop"]


@pytest.mark.parametrize(
    "name",
    ["", "A", "a b", "a/b", "../a", ".", "-a", "a_b", "a" * 42, "é", "server", "admin", "operator", "runs", "a\n"],
)
def test_names_that_cannot_be_nodes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HushrecError, match="cannot be a node's name") as caught:
        make(tmp_path / "fed", "good", name)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "fed").exists()


@pytest.mark.parametrize("name", ["a", "0", "node-1", "a" * 41, "a--b", "9to5"])
def test_names_that_can_be_nodes(tmp_path: Path, name: str) -> None:
    assert make(tmp_path / "fed", name).nodes == [name]


def test_a_federation_can_begin_without_nodes(tmp_path: Path) -> None:
    assert make(tmp_path / "fed").nodes == []
    assert sorted(path.name for path in (tmp_path / "fed").iterdir()) == ["authority", "federation.json", "server"]


def test_other_mistakes_are_told_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match="same name"):
        make(tmp_path / "fed", "a", "b", "a")
    for port in (0, -1, 65536):
        with pytest.raises(HushrecError, match=f"--port {port} is not within 1 to 65535"):
            make(tmp_path / "fed", "a", port=port)
    assert not (tmp_path / "fed").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(HushrecError, match="is not empty; choose a new folder"):
        make(tmp_path / "full", "a")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty", "a")


def test_folders_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HushrecError, match="holds no federation; make one with: hushrec deploy init"):
        read_federation(tmp_path)
    (tmp_path / "federation.json").write_text('{"engine": "smoke", "host": "x", "port": 1, "nodes": []}')
    with pytest.raises(HushrecError, match="holds no federation"):
        read_federation(tmp_path)
    with pytest.raises(HushrecError, match="is no node's kit"):
        read_kit(tmp_path)
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "nodes.json").write_bytes(b"\xff")
    with pytest.raises(HushrecError, match="is no node's kit"):
        read_kit(tmp_path)


def test_a_kit_is_found_in_the_federations_folder_or_where_it_was_copied(tmp_path: Path) -> None:
    make_plain_kits(tmp_path, ["node-1", "node-2"])
    assert find_kit(tmp_path, "node-2") == tmp_path / "node-2"
    assert find_kit(tmp_path / "node-2", "node-2") == tmp_path / "node-2"
    assert find_kit(tmp_path / "node-2", None) == tmp_path / "node-2"
    with pytest.raises(HushrecError, match="is the kit of node-2, not of node-1"):
        find_kit(tmp_path / "node-2", "node-1")
    with pytest.raises(HushrecError, match="is no node's kit"):
        find_kit(tmp_path, "node-3")
    with pytest.raises(HushrecError, match="is no node's kit"):
        find_kit(tmp_path, None)


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module, extra in (
        ("nvflare", "hushrec.deploy.nvflare_engine", "deploy"),
        ("flower", "hushrec.deploy.flower_engine", "flower"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(HushrecError) as caught:
            engine_named(name)  # type: ignore[arg-type]
        assert f"pip install '.[{extra}]'" in str(caught.value)


def test_a_kits_card_is_what_the_harness_of_these_tests_makes(tmp_path: Path) -> None:
    make_plain_kits(tmp_path, ["node-1"])
    said = msgspec.json.decode((tmp_path / "node-1" / "startup" / "nodes.json").read_bytes())
    assert said == {"engine": "nvflare", "name": "node-1", "nodes": ["node-1"]}
