"""Who is a node of a federation: requests, answers, and lists of those who are nodes no longer."""

from pathlib import Path
from typing import Any

import msgspec

from hushrec.choices import EngineName
from hushrec.cli.console import note, print_json, results
from hushrec.deploy.authority import Answer, open_authority
from hushrec.deploy.certificates import read_request
from hushrec.deploy.engine_choice import engine_named
from hushrec.deploy.kits import read_federation
from hushrec.deploy.membership import (
    admit_node,
    ask_to_join,
    key_fingerprint,
    leave_federation,
    name_of_leaver,
    own_fingerprint,
    read_answer,
    root_fingerprint,
    take_answer,
    take_revoked,
)
from hushrec.errors import HushrecError
from hushrec.files import write_file

_MOST_BYTES = 1 << 20  # of a request, an answer or a list


def ask(folder: Path, engine: EngineName, as_json: bool) -> None:
    """Make a key and a request."""
    request = ask_to_join(folder, engine_named(engine))
    path = _beside(folder, "request")
    write_file(path, request, "folder")
    told = {"request": str(path), "fingerprint": own_fingerprint(folder)}
    _say(told, as_json, f"request {path}, key {told['fingerprint']}")
    if not as_json:
        note(f"send {path} to the operator, who approves it; the key stays in {folder}")


def take(folder: Path, path: Path, as_json: bool) -> None:
    """Make the folder a kit."""
    answer = read_answer(_small(path))
    root = root_fingerprint(take_answer(folder, answer, engine_named(answer.engine)))
    told = {"node": answer.name, "server": f"{answer.host}:{answer.port}", "root": root}
    _say(told, as_json, f"{answer.name} is a node of the federation at {told['server']}, root {root}")
    if not as_json:
        note(f"compare the root with the operator's; then: hushrec deploy node {folder} --data RATINGS")


def approve(folder: Path, path: Path, expected: str | None, as_json: bool) -> None:
    """Sign a request, and let the server know if it is here."""
    authority = open_authority(folder)
    try:
        request = _small(path).read_bytes()
    except OSError as error:
        raise HushrecError(f"cannot read {path}: {error.strerror}; ask the node for its request") from None
    _, public_key = read_request(request)
    print_of_key = key_fingerprint(public_key)
    if expected is not None and expected.replace(" ", "").lower() != print_of_key.replace(" ", ""):
        raise HushrecError(f"{path} is of another key, {print_of_key}; do not sign it, ask the node's owner")
    answer = authority.approve(request)
    out = Path(f"{answer.name}.answer")
    write_file(out, _encoded(answer), "folder")
    is_server_here = (folder / "server").is_dir()
    if is_server_here:
        admit_node(folder, answer, engine_named(answer.engine))
    root = root_fingerprint(authority.authority.certificate)
    told = {"node": answer.name, "fingerprint": print_of_key, "root": root, "answer": str(out)}
    _say(told, as_json, f"approved {answer.name}, key {print_of_key}\nanswer {out}, root {root}")
    if not as_json:
        note(f"compare the key with what {answer.name} shows; then send it {out}")
        if not is_server_here:
            note(f"and to the server: hushrec deploy admit {folder} {out}")


def admit(folder: Path, path: Path, as_json: bool) -> None:
    """Count on a node from the next order on."""
    federation = read_federation(folder)
    answer = read_answer(_small(path))
    federation = admit_node(folder, answer, engine_named(federation.engine))
    _say({"nodes": federation.nodes}, as_json, f"{folder}: {_listed(federation.nodes)}")


def leave(folder: Path, as_json: bool) -> None:
    """Destroy the node's keys, and write its wish to be revoked."""
    wish, path = leave_federation(folder), _beside(folder, "leave")
    write_file(path, wish, "folder")
    _say({"leave": str(path)}, as_json, f"{folder.absolute().name} is a node no longer; its runs stay in {folder}")
    if not as_json:
        note(f"send {path} to the operator: until it is revoked, runs wait for this node")


def revoke(folder: Path, who: str | None, revoked: Path | None, as_json: bool) -> None:
    """Take a certificate back, or heed the list of those that were."""
    if (who is None) == (revoked is None):
        raise HushrecError("say whom to revoke, or on the server --list with the list that revoke made elsewhere")
    if revoked is not None:
        federation = read_federation(folder)
        try:
            pem = _small(revoked).read_bytes()
        except OSError as error:
            raise HushrecError(f"cannot read {revoked}: {error.strerror}; ask the authority for it") from None
        gone = take_revoked(folder, pem, engine_named(federation.engine))
        nodes = read_federation(folder).nodes
        _say({"gone": gone, "nodes": nodes}, as_json, f"{folder}: {_listed(nodes)}; gone: {_listed(gone)}")
        return
    assert who is not None
    authority = open_authority(folder)
    name = name_of_leaver(_small(Path(who)).read_bytes(), authority) if Path(who).is_file() else who
    new, out = authority.revoke(name), Path("revoked.pem")
    write_file(out, new.pem, "folder")
    if (folder / "server").is_dir():
        take_revoked(folder, new.pem, engine_named(authority.place.engine))
    told = {"revoked": name, "number": new.number, "list": str(out)}
    _say(told, as_json, f"revoked {name}: list {new.number}, {out}")
    if not as_json and not (folder / "server").is_dir():
        note(f"and on the server: hushrec deploy revoke {folder} --list {out}")


def _beside(folder: Path, kind: str) -> Path:
    folder = folder if folder.name not in ("", ".", "..") else folder.absolute()
    return folder.with_name(f"{folder.name}.{kind}")


def _small(path: Path) -> Path:
    """Refuse a file that is far too large for what it should be."""
    if path.is_file() and path.stat().st_size > _MOST_BYTES:
        raise HushrecError(f"{path} has more than {_MOST_BYTES >> 20} MB; it is not what it should be")
    return path


def _encoded(answer: Answer) -> bytes:
    return msgspec.json.format(msgspec.json.encode(answer)) + b"\n"


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _say(told: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print_json(told)
    else:
        results().print(text)
