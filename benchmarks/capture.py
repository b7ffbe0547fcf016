"""Is anything readable on the wire? Captures a federation's loopback during a run and searches all of it.

`python -m benchmarks.capture` runs `hushrec deploy local` in a network namespace of its own and compares three
kinds of TCP streams of one capture:
- wire: all connections to the server's port, which is all that would leave a machine;
- inside: connections within one machine, where NVFlare's server hands packets to its job without TLS. The same
  packets, one hop later: the search must find them here;
- control: a plain TCP transfer of everything, mail without its seal, private vectors and keys too: the search must
  find all of it.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hushrec
from benchmarks.wiretap import Needles, Stream, capturing, read_streams, rows_of, runs_of, tls_bytes
from hushrec.data import Interactions
from hushrec.protocol import Message, Recorded, result_arrays
from hushrec.registry import SYSTEMS
from hushrec.runs.run_settings import RunSettings, splits_of
from hushrec.runtime.checkpoint import Progress, digest, read_arrays
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.packets import Contents, Kind, Packet, encode_packet
from hushrec.runtime.training import job_for, run_job
from hushrec.runtime.wire import code_of, encode
from hushrec.settings import build
from hushrec.systems.fedrec import ItemGradients, Settle
from hushrec.systems.fedrec_plus_plus import DenoiserFactors, ItemFactors, Noise

SYSTEM = SYSTEMS["fedrec++"]
# What the server is never shown, not even inside its own machine.
UNSEEN = ("headers of noise frames", "private vectors", "users' ids", "keys")


@dataclass(frozen=True)
class Federation:
    """What a run left on the disks of all parties, and the same run in one process, with all its messages."""

    folder: Path
    port: int
    run_id: bytes
    model_sha256: str
    progress: Progress
    ratings: Path

    @property
    def nodes(self) -> list[Path]:
        """The kits of the nodes."""
        return sorted(self.folder.glob("node-*"))


def telling_ids(data: Interactions) -> Interactions:
    """The same ratings with ids of users and items that nothing else looks like."""
    users = np.array([f"customer{number:08d}" for number in data.user_ids.tolist()])
    items = np.array([f"film{number:012d}" for number in data.item_ids.tolist()])
    return Interactions(
        data.users, data.items, data.ratings, None, None, users, items, None, data.rating_range,
        data.name, data.sha256, data.is_synthetic,
    )  # fmt: skip


def write_ratings(data: Interactions, path: Path) -> None:
    """A CSV file, as an owner of ratings might have it."""
    assert data.ratings is not None
    columns = (data.user_ids[data.users], data.item_ids[data.items], data.ratings)
    lines = [f"{user},{item},{rating:g}\n" for user, item, rating in zip(*columns, strict=True)]
    path.write_text("user,item,rating\n" + "".join(lines))


def run_federation(folder: Path, options: argparse.Namespace) -> Federation:
    """`hushrec deploy local`, then the same in this process."""
    ratings = folder / "all-ratings.csv"
    write_ratings(telling_ids(hushrec.load("ml-100k")), ratings)
    kept = folder / "federation"
    rounds, nodes = str(options.rounds), str(options.nodes)
    command = [
        *(sys.executable, "-m", "hushrec.cli.app", "deploy", "local", "--system", SYSTEM.name, "--nodes", nodes),
        *("--data", str(ratings), "--rounds", rounds, "--relay", options.relay, "--keep", str(kept), "--json"),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    train = next(splits_of(hushrec.read(ratings), RunSettings(0))).train
    job = job_for(SYSTEM, build(SYSTEM.config, {"num_rounds": options.rounds}), 0, train)
    progress = run_job(job, RuntimeOptions(keep_payloads=True))
    order = json.loads((kept / "runs" / SYSTEM.name / "order.json").read_text())
    port = json.loads((kept / "federation.json").read_text())["port"]
    sha256 = json.loads(done.stdout)["folds"][0]["model_sha256"]
    return Federation(kept, port, bytes.fromhex(order["run_id"]), sha256, progress, ratings)


def sent(federation: Federation, *kinds: type[Message]) -> Iterator[Recorded]:
    """The batches of these types."""
    return (entry for entry in federation.progress.transcript.recorded if isinstance(entry.message, kinds))


def private_vectors(federation: Federation) -> np.ndarray:
    """From the nodes' own disks."""
    files = [file for kit in federation.nodes for file in kit.glob("private/runs/*/fold-1/state.npz")]
    return np.concatenate([read_arrays(file)["private.user_factors"] for file in files])


def keys(federation: Federation) -> list[bytes]:
    """All private keys, as they lie on disk; of PEM a line in the middle."""
    found = [(kit / "private" / "mail.key").read_bytes() for kit in federation.nodes]
    for path in federation.folder.glob("*/startup/*.key"):
        lines = path.read_bytes().splitlines()
        found.append(lines[len(lines) // 2])
    return found


def needles_of(federation: Federation) -> Needles:
    """All that must not be readable."""

    def frames(kinds: Iterable[type[Message]]) -> list[bytes]:
        return [b"HR\x01\x00" + code_of(kind).to_bytes(4, "little") for kind in kinds]

    def gradients(kind: type[Message]) -> Iterator[bytes]:
        for entry in sent(federation, kind):
            yield from rows_of(entry.message.gradients.values)  # type: ignore[attr-defined]

    factors = [entry.message.item_factors for entry in sent(federation, ItemFactors, DenoiserFactors, Settle)]  # type: ignore[attr-defined]
    texts = hushrec.read(federation.ratings)
    return Needles(
        {
            "headers of packets": [
                b"HP\x01" + bytes([kind]) + count.to_bytes(4, "little") for kind in Kind for count in range(1, 200)
            ],
            "the run's id": [federation.run_id, federation.run_id.hex().encode()],
            "headers of frames": frames(kind for kind in SYSTEM.messages if kind is not Noise),
            "headers of noise frames": frames([Noise]),
            "lists of items (int32)": (
                run
                for entry in sent(federation, ItemGradients)
                for run in runs_of(entry.message.items.values, 4)  # type: ignore[attr-defined]
            ),
            "rows of uploads (float32)": gradients(ItemGradients),
            "rows of noise (float32)": gradients(Noise),
            "rows of item factors": (row for table in factors for row in rows_of(table)),
            "private vectors": rows_of(private_vectors(federation)),
            "users' ids": (str(user).encode() for user in texts.user_ids.tolist()),
            "items' ids": (str(item).encode() for item in texts.item_ids.tolist()),
            "keys": keys(federation),
        }
    )


def all_in_clear(federation: Federation) -> Iterator[bytes]:
    """The same messages in packets, unsealed, and what no message ever holds."""
    for entry in federation.progress.transcript.recorded:
        numbers = entry.numbers if entry.addressees is None else entry.addressees
        frame = encode(entry.message, entry.round_number, numbers)
        packet = Packet(Kind.ASK, federation.run_id, entry.round_number, 1, b"")
        yield encode_packet(packet.reply(Contents(1), (frame,)))
    yield federation.ratings.read_bytes()
    yield private_vectors(federation).tobytes()
    yield from keys(federation)


def transfer(parts: Iterable[bytes]) -> int:
    """Send all of it through a plain TCP connection on the loopback; returns its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])

        def receive() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(1 << 20):
                    pass

        receiver = threading.Thread(target=receive)
        receiver.start()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for part in parts:
                connection.sendall(part)
        receiver.join()
    return port


def report(federation: Federation, needles: Needles, streams: list[Stream], control_port: int) -> list[str]:
    """Print what was searched and found; returns what is wrong."""
    wire = [stream for stream in streams if stream.uses(federation.port)]
    control = [stream for stream in streams if stream.uses(control_port)]
    inside = [stream for stream in streams if not stream.uses(federation.port) and not stream.uses(control_port)]
    groups = {"wire": wire, "inside": inside, "control": control}
    sizes = {name: sum(len(stream.data) for stream in group) for name, group in groups.items()}
    in_records, encrypted = (sum(part) for part in zip(*map(tls_bytes, wire), strict=True))
    print(f"{'':28}{'needles':>10}" + "".join(f"{name:>14}" for name in groups))
    print(f"{'connections':38}" + "".join(f"{len({_ends(s) for s in group}):>14,}" for group in groups.values()))
    print(f"{'bytes captured':38}" + "".join(f"{size:>14,}" for size in sizes.values()))
    print(f"{'bytes in TLS records':38}{in_records:>14,}")
    hits = {name: needles.hits(group) for name, group in groups.items()}
    for what in needles.names:
        print(f"{what:28}{needles.counts[what]:>10,}" + "".join(f"{hits[name][what]:>14,}" for name in groups))
    wrong = [f"{what} on the wire" for what, count in hits["wire"].items() if count]
    wrong += [f"{what} inside the server's machine" for what in UNSEEN if hits["inside"][what]]
    wrong += [
        f"no {what} inside, so the search proves nothing"
        for what in needles.names
        if what not in UNSEEN and not hits["inside"][what]
    ]
    wrong += [
        f"no {what} in the control, so the search proves nothing"
        for what, count in hits["control"].items()
        if not count
    ]
    wrong += [f"{stream.missing_bytes} bytes missing from a stream" for stream in streams if stream.missing_bytes]
    if in_records != sizes["wire"] or encrypted < 0.99 * in_records:
        wrong.append(f"{sizes['wire'] - encrypted} bytes on the wire are not encrypted data of TLS")
    return wrong


def _ends(stream: Stream) -> frozenset[tuple[bytes, int]]:
    way = stream.way
    return frozenset({(way.source, way.source_port), (way.target, way.target_port)})


def show(options: argparse.Namespace) -> int:
    """The whole show, within a network namespace of its own."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="hushrec-capture-") as name:
        folder = Path(name)
        with capturing("lo", folder / "lo.pcap"):
            federation = run_federation(folder, options)
            control_port = transfer(all_in_clear(federation))
        is_same = digest(result_arrays(federation.progress.state)) == federation.model_sha256
        print(f"{SYSTEM.name} on ml-100k, {options.nodes} nodes, {options.rounds} rounds, mail {options.relay}")
        wrong = report(federation, needles_of(federation), read_streams(folder / "lo.pcap"), control_port)
    if not is_same:
        wrong.append("the deployed model differs from the one that the needles come from")
    print(
        "; ".join(wrong) if wrong else "nothing readable on the wire; the search finds all of it where it should"
    )
    return 1 if wrong else 0


def main() -> int:
    """`python -m benchmarks.capture [--nodes N] [--rounds N] [--relay onion]`, as root on Linux."""
    parser = argparse.ArgumentParser(prog="benchmarks.capture", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--relay", choices=("direct", "onion"), default="direct")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return show(options)
    if os.geteuid() != 0:
        print("network namespaces and tcpdump need root; use: sudo", file=sys.stderr)
        return 2
    command = ["unshare", "--net", sys.executable, "-m", "benchmarks.capture", *sys.argv[1:], "--inside"]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
