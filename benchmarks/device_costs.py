"""What one device's part of a round costs a server, a denoiser and itself: bytes, and time of one core."""

import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import hushrec
from benchmarks.engine import best
from hushrec.deploy.certificates import issue, new_authority
from hushrec.draws import Draws
from hushrec.privacy.denoising import DenoiserTotal, NoiseSums
from hushrec.privacy.exact_sum import ExactSum
from hushrec.privacy.sealing import LETTER_BYTES, Binding, new_private_key, open_sealed, public_key_of, seal
from hushrec.protocol import Cohort, Ragged
from hushrec.runtime.packets import Contents, Kind, Packet, decode_packet, encode_packet
from hushrec.runtime.wire import decode, encode, frame_bytes
from hushrec.systems import fedrec, fedrec_plus_plus
from hushrec.systems.fedrec import ItemGradients
from hushrec.systems.fedrec_plus_plus import DenoisingSums, ItemFactors, Noise

NUM_DEVICES = 10_000_000
NUM_ITEMS, NUM_FACTORS = 50_000, 20
NUM_RATED, RHO = 100, 3
CLIENTS_PER_DENOISER = 100


@dataclass(frozen=True)
class Costs:
    """CPU time of one core."""

    decode_us: float  # one device's upload, out of its packet
    fold_ns: float  # one row into the exact sum
    sum_ms: float  # an exact sum over all items, out of its frame, into another
    seal_us: float  # one device's noise
    open_us: float
    noise_ns: float  # one row of noise into a denoiser's sums
    client_us: float  # one device's round
    handshake_us: float  # TLS 1.3 with both certificates on P-384, the server's side
    tls_mb: float  # MB/s of data in TLS, one way
    drive_ms: float  # the driving side's own round: who takes part, who denoises for whom
    nvflare_mb: float  # MB/s over NVFlare's wire, wall time, all processes on one machine
    held: float  # bytes of memory of the server's job per byte of replies


# --- Messages of one device ------------------------------------------------------------------------------


def _starts(num_parties: int, num_rows: int) -> np.ndarray:
    return np.arange(num_parties + 1, dtype=np.int64) * num_rows


def _rows(num_parties: int, num_rows: int) -> tuple[Ragged, Ragged]:
    """Items and gradients of some devices, all different."""
    draws = np.random.default_rng(0)
    starts, total = _starts(num_parties, num_rows), num_parties * num_rows
    items = np.concatenate([np.sort(draws.choice(NUM_ITEMS, num_rows, replace=False)) for _ in range(num_parties)])
    gradients = draws.normal(0, 0.1, (total, NUM_FACTORS)).astype(np.float32)
    return Ragged(starts, items.astype(np.int32)), Ragged(starts, gradients)


def uploads(num_parties: int) -> ItemGradients:
    """What so many devices send."""
    return ItemGradients(*_rows(num_parties, NUM_RATED * (1 + RHO)))


def noise(num_parties: int) -> Noise:
    """What so many devices send to their denoiser."""
    return Noise(*_rows(num_parties, NUM_RATED * RHO))


@dataclass(frozen=True)
class Sizes:
    """Bytes of frames of one device in one round."""

    down: int = frame_bytes(
        ItemFactors(np.zeros((NUM_ITEMS, NUM_FACTORS), np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32)),
        1,
    )
    up: int = frame_bytes(uploads(1), 1)
    mail: int = frame_bytes(noise(1), 1) + LETTER_BYTES

    @property
    def listed_rows(self) -> int:
        """V with the listed rows only."""
        return NUM_RATED * (1 + RHO) * 4 * (1 + NUM_FACTORS)

    @property
    def sum_bytes(self) -> int:
        """An exact sum over all items: totals and counts."""
        return NUM_ITEMS * 8 * (NUM_FACTORS + 1)

    @property
    def denoiser_up(self) -> int:
        """The sums of a denoiser, over the items that its clients can have drawn."""
        touched = NUM_ITEMS * (1 - (1 - 1 / NUM_ITEMS) ** (CLIENTS_PER_DENOISER * NUM_RATED * RHO))
        return int(touched) * (8 * NUM_FACTORS + 8)


SIZES = Sizes()


# --- Measuring -------------------------------------------------------------------------------------------


def _seconds(work: Callable[[], object], times: int) -> float:
    """Least CPU time of one piece of work."""
    [(cpu, _)] = best(5, lambda: [work() for _ in range(times)])
    return cpu / times


def measure() -> Costs:
    """All constants; takes some minutes."""
    number = np.zeros(1, np.int32)
    packet = Packet(Kind.ASK, bytes(16), 1, 1, b"")
    data = encode_packet(packet.reply(Contents(1), (encode(uploads(1), 1, number),)))
    batch, senders = uploads(200), np.arange(200, dtype=np.int32)
    sums = ExactSum.zeros((NUM_ITEMS, NUM_FACTORS), 200)
    everything = _all_sums()
    total = DenoiserTotal(sums.fork())
    private, binding = new_private_key(), Binding(bytes(16), 1, 1, 1, 0)
    public, letter = public_key_of(private), encode(noise(1), 1, number)
    sealed = seal(letter, public, binding)
    mail, inbox = noise(200), NoiseSums(NUM_ITEMS, NUM_FACTORS, 1)
    addressees = np.zeros(200, np.int32)
    handshake, per_mb = _tls()
    nvflare_mb, held = _federation()
    return Costs(
        decode_us=1e6 * _seconds(lambda: decode(decode_packet(data).sections[0], [ItemGradients]), 500),
        fold_ns=1e9 * _seconds(lambda: sums.add(senders, batch), 5) / batch.num_rows,
        sum_ms=1e3 * _seconds(lambda: total.add(number, decode(everything, [DenoisingSums]).message), 10),
        seal_us=1e6 * _seconds(lambda: seal(letter, public, binding), 200),
        open_us=1e6 * _seconds(lambda: open_sealed(sealed, private, binding), 200),
        noise_ns=1e9 * _seconds(lambda: inbox.add(addressees, mail), 5) / mail.num_rows,
        client_us=1e6 * _client_seconds(),
        handshake_us=1e6 * handshake,
        tls_mb=1 / per_mb,
        drive_ms=1e3 * _drive_seconds(),
        nvflare_mb=nvflare_mb,
        held=held,
    )


def _all_sums() -> bytes:
    """Sums and counts of all items, as the only message that carries such sums today."""
    starts = _starts(1, NUM_ITEMS)
    sums = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, (NUM_ITEMS, NUM_FACTORS))
    counts = np.ones(NUM_ITEMS, np.int32)
    items = np.arange(NUM_ITEMS, dtype=np.int32)
    message = DenoisingSums(Ragged(starts, items), Ragged(starts, sums), Ragged(starts, counts))
    return encode(message, 1, np.zeros(1, np.int32))


def _drive_seconds() -> float:
    """Up to the first ask of a round with a hundredth of all devices."""
    config = fedrec_plus_plus.Config(rho=RHO, participation=0.01, denoisers=NUM_DEVICES // CLIENTS_PER_DENOISER)
    state = fedrec_plus_plus.start(NUM_DEVICES, NUM_ITEMS, config, Draws(0))
    return _seconds(lambda: next(fedrec_plus_plus.server_round(state, 1, config, Draws(0))), 1)


def _federation() -> tuple[float, float]:
    """100,000 clients on four nodes: MB/s over the wire, and memory of the server's job per byte of replies."""
    with tempfile.TemporaryDirectory(prefix="hushrec-devices-") as name:
        data = hushrec.synthetic(100_000, 20_000, 5_000_000, seed=1)
        columns = {"user": data.user_ids[data.users], "item": data.item_ids[data.items], "rating": data.ratings}
        pa.csv.write_csv(pa.table({name: pa.array(values) for name, values in columns.items()}), f"{name}/all.csv")
        few, many = (_one_federation(Path(name), share) for share in (0.02, 0.1))
    return many.moved_mb / many.seconds, (many.peak_mb - few.peak_mb) / (many.replies_mb - few.replies_mb)


@dataclass(frozen=True)
class _Observed:
    """One round of a federation, and the most memory of the server's job."""

    moved_mb: float
    replies_mb: float
    seconds: float
    peak_mb: float


def _one_federation(folder: Path, participation: float, num_rounds: int = 3) -> _Observed:
    kept = folder / f"federation-{participation}"
    command = [sys.executable, "-m", "hushrec.cli.app", "deploy", "local", "--system", "fedrec++", "--nodes", "4"]
    command += ["--data", str(folder / "all.csv"), "--rating-range", "1,5", "--participation", str(participation)]
    command += [
        "--denoisers",
        "100",
        "--rounds",
        str(num_rounds),
        "--keep",
        str(kept),
        "--timeout",
        "600",
        "--json",
    ]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            time.sleep(0.3)
            for status in _statuses(str(kept / "server"), "runner_process"):
                peak = max(
                    peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
                )
        assert process.stdout is not None
        done = json.loads(process.stdout.read())
    sent = {way: count / 1e6 / num_rounds for way, count in done["folds"][0]["sent_bytes"].items()}
    replies = sent["client->server"] + sent["client->denoiser"]
    moved = sum(sent.values()) + sent["client->denoiser"]  # mail comes and goes
    return _Observed(moved, replies, done["deployment"]["seconds"]["wire"] / num_rounds, peak / 1e3)


def _statuses(*words: str) -> Iterator[str]:
    """What the system knows of the processes with all these words in their commands."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text()
            if all(word in command for word in words):
                yield (folder / "status").read_text()
        except OSError:
            continue


def _client_seconds(num_clients: int = 500) -> float:
    """A client's round, out of a cohort, when virtual ratings are predicted."""
    data = hushrec.synthetic(num_clients, NUM_ITEMS, num_clients * NUM_RATED, seed=1)
    config, draws = fedrec_plus_plus.Config(rho=RHO, num_rounds=10), Draws(0)
    numbers = np.arange(num_clients, dtype=np.int32)
    state = fedrec.start(num_clients, NUM_ITEMS, config, draws)
    clients = fedrec.enrol(numbers, data.by_user(), NUM_ITEMS, config, draws)
    none = np.zeros(num_clients, np.int32)
    request = ItemFactors(state.item_factors, none, none)
    cohort = Cohort(numbers, numbers.astype(np.int64), clients, config.predict_after + 2)
    return _seconds(lambda: fedrec_plus_plus.client_update(cohort, request, config, draws), 3) / num_clients


def _tls() -> tuple[float, float]:
    """CPU seconds of the server for a handshake, and for a MB that it sends."""
    authority = new_authority("devices")
    with tempfile.TemporaryDirectory() as name:
        contexts = []
        (Path(name) / "root.pem").write_bytes(authority.root)
        for side, hosts in ((ssl.PROTOCOL_TLS_SERVER, ["localhost"]), (ssl.PROTOCOL_TLS_CLIENT, [])):
            chain = Path(name) / "chain.pem"
            chain.write_bytes(b"".join(issue(authority, "party", hosts)))
            context = ssl.SSLContext(side)
            context.load_cert_chain(chain)
            context.load_verify_locations(Path(name) / "root.pem")
            context.verify_mode = ssl.CERT_REQUIRED
            contexts.append(context)
    handshake = min(_handshake(*contexts)[0] for _ in range(200))
    _, server, wire = _handshake(*contexts)
    block = bytes(1_000_000)

    def send() -> None:
        server.write(block)
        wire.read()

    return handshake, _seconds(send, 30)


def _handshake(
    server_side: ssl.SSLContext, client_side: ssl.SSLContext
) -> tuple[float, ssl.SSLObject, ssl.MemoryBIO]:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(up, down, server_side=True)
    client = client_side.wrap_bio(down, up, server_hostname="localhost")
    spent, is_done = 0.0, {"client": False, "server": False}
    while not all(is_done.values()):
        for name, party in (("client", client), ("server", server)):
            before = time.process_time()
            try:
                party.do_handshake()
                is_done[name] = True
            except ssl.SSLWantReadError:
                pass
            spent += time.process_time() - before if name == "server" else 0.0
    down.read()  # session tickets
    return spent, server, down
