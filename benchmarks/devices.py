"""What ten million devices would take: the tables of docs/scale.md, from constants measured on one core.

`python -m benchmarks.devices` prints the tables from the constants below, `--measure` measures these anew,
`--page docs/scale.md` puts the tables into a page, `--training` prints what the page says about training.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

import hushrec
from benchmarks.device_costs import (
    CLIENTS_PER_DENOISER,
    NUM_DEVICES,
    NUM_FACTORS,
    NUM_ITEMS,
    NUM_RATED,
    RHO,
    SIZES,
    Costs,
    measure,
)
from hushrec.errors import HushrecError
from hushrec.privacy.exact_sum import SUM_RANGE, row_limit
from hushrec.registry import SYSTEMS
from hushrec.runtime.in_process import RuntimeOptions
from hushrec.runtime.training import job_for, run_job
from hushrec.systems.fedrec import ItemGradients

ROUND_SECONDS = 600
DEVICES_PER_EDGE = 10_000  # that take part in a round
NUM_NODES = 100  # of organisations, as many as NVFlare's server takes by default
PARTICIPATION = (0.001, 0.01, 0.1)
# Participation, first learning rate, its decay, rounds.
SCHEDULES = ((1.0, 0.8, 0.9, 100), (0.1, 0.8, 0.9, 100), (0.1, 0.4, 0.995, 1000), (0.01, 0.2, 0.999, 4000))

# Medians of six measurings on a busy two-core EPYC at 2.45 GHz; single ones were up to two times as fast or slow.
MEASURED = Costs(
    decode_us=88.0,
    fold_ns=20.0,
    sum_ms=1.5,
    seal_us=125.0,
    open_us=77.0,
    noise_ns=22.0,
    client_us=28.0,
    handshake_us=4430.0,
    tls_mb=2080.0,
    drive_ms=51.0,
    nvflare_mb=135.0,
    held=3.4,
)


# --- Tables ----------------------------------------------------------------------------------------------


def size(num_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KB", "MB", "GB", "TB", "PB"):
        if num_bytes < 1000 or unit == "PB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.3g} {unit}"


def number(value: float) -> str:
    """Two digits, or all of a large number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def table(heading: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| " + " | ".join(heading) + " |"
    yield "|" + "---|" * len(heading)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def constants(costs: Costs) -> Iterator[str]:
    """What was measured."""
    listed = NUM_RATED * (1 + RHO)
    names = {
        "decode_us": ("take a device's upload out of its packet, checked", "us"),
        "fold_ns": (f"add a row of {NUM_FACTORS} numbers to the exact sum", "ns"),
        "sum_ms": (f"take in an exact sum of {NUM_ITEMS:,} items out of its frame", "ms"),
        "seal_us": ("seal a device's noise", "us"),
        "open_us": ("open it", "us"),
        "noise_ns": ("add a row of noise to a denoiser's sums", "ns"),
        "client_us": (f"a device's own round: {NUM_RATED} ratings, {listed} listed items", "us"),
        "handshake_us": ("TLS 1.3 handshake with both certificates (P-384), the server's side", "us"),
        "tls_mb": ("send through TLS", "MB/s"),
        "drive_ms": (f"draw who takes part in a round of {NUM_DEVICES:,}, and their denoisers", "ms"),
        "nvflare_mb": ("frames through NVFlare, all processes on this machine, wall time", "MB/s"),
        "held": ("memory of the server's job per byte of replies in a phase", "bytes"),
    }
    rows = [[names[name][0], f"{number(value)} {names[name][1]}"] for name, value in asdict(costs).items()]
    return table(["on one core", ""], rows)


def one_device() -> Iterator[str]:
    """What a device sends and gets in a round that it takes part in."""
    collected = CLIENTS_PER_DENOISER * SIZES.mail
    rows = [
        ["V, down", size(SIZES.down), size(SIZES.down)],
        ["gradients of listed items, up", size(SIZES.up), size(SIZES.up)],
        ["noise, sealed, up", "", size(SIZES.mail)],
        [f"a denoiser of {CLIENTS_PER_DENOISER} devices: noise down", "", size(collected)],
        ["a denoiser: sums up", "", size(SIZES.denoiser_up)],
        ["V with the listed rows only, down (does not exist)", size(SIZES.listed_rows), size(SIZES.listed_rows)],
    ]
    return table(["one device, one round", "FedRec", "FedRec++"], rows)


@dataclass(frozen=True)
class Load:
    """What all servers together have to do in one round."""

    participation: float
    is_denoised: bool
    sends_listed_rows: bool = False

    @property
    def devices(self) -> int:
        """How many take part."""
        return int(NUM_DEVICES * self.participation)

    @property
    def bytes_down(self) -> int:
        """V to all, and noise to denoisers."""
        item_factors = SIZES.listed_rows if self.sends_listed_rows else SIZES.down
        return self.devices * (item_factors + (SIZES.mail if self.is_denoised else 0))

    @property
    def bytes_up(self) -> int:
        """Gradients, noise, and denoisers' sums."""
        denoisers = self.devices // CLIENTS_PER_DENOISER
        own = SIZES.up + (SIZES.mail if self.is_denoised else 0)
        return self.devices * own + (denoisers * SIZES.denoiser_up if self.is_denoised else 0)

    def cpu_seconds(self, costs: Costs) -> dict[str, float]:
        """Of one core, by what they are spent on."""
        rows = NUM_RATED * (1 + RHO)
        return {
            "handshakes": self.devices * costs.handshake_us / 1e6,
            "TLS": (self.bytes_up + self.bytes_down) / 1e6 / costs.tls_mb,
            "decode": self.devices * costs.decode_us / 1e6,
            "fold": self.devices * rows * costs.fold_ns / 1e9,
        }


def loads(costs: Costs) -> Iterator[str]:
    """Rounds with more and less devices."""
    rows = []
    for participation in PARTICIPATION:
        kinds = {"FedRec": (False, False), "FedRec++": (True, False), "FedRec++, listed rows": (True, True)}
        for name, kind in kinds.items():
            load = Load(participation, *kind)
            spent = load.cpu_seconds(costs)
            rows.append(
                [
                    f"{load.devices:,}",
                    name,
                    size(load.bytes_down),
                    size(load.bytes_up),
                    f"{number((load.bytes_up + load.bytes_down) * 8 / ROUND_SECONDS / 1e9)} Gbit/s",
                    *(number(seconds) for seconds in spent.values()),
                    number(sum(spent.values()) / ROUND_SECONDS),
                ]
            )
    heading = ["devices in the round", "system", "down", "up", "over ten minutes", "handshakes, s", "TLS, s"]
    return table([*heading, "decode, s", "fold, s", "cores"], rows)


def hierarchy(costs: Costs) -> Iterator[str]:
    """Edges that fold what their devices send, and a root that adds up sums."""
    rows = []
    for participation in PARTICIPATION:
        load = Load(participation, is_denoised=True)
        edges = max(1, load.devices // DEVICES_PER_EDGE)
        spent = sum(load.cpu_seconds(costs).values()) / edges
        rows.append(
            [
                f"{load.devices:,}",
                f"{edges:,}",
                f"{(load.bytes_up + load.bytes_down) / edges * 8 / ROUND_SECONDS / 1e9:.2g} Gbit/s",
                f"{spent / ROUND_SECONDS:.2g}",
                size(DEVICES_PER_EDGE * SIZES.mail + 2 * SIZES.sum_bytes + SIZES.down),
                size(edges * SIZES.sum_bytes),
                f"{(edges * costs.sum_ms + costs.drive_ms) / 1e3:.2g} s",
                size(2 * SIZES.sum_bytes + SIZES.down + 8 * NUM_DEVICES),
            ]
        )
    heading = ["devices in the round", "edges", "an edge's line", "an edge's cores", "an edge's memory"]
    return table([*heading, "to the root", "the root's CPU", "the root's memory"], rows)


def organisations(costs: Costs) -> Iterator[str]:
    """Nodes that host many clients each, and one server, as it was when it held all replies of a phase."""
    rows = []
    for participation in PARTICIPATION:
        load = Load(participation, is_denoised=True)
        replies = load.devices * (SIZES.up + SIZES.mail)
        # V goes to every node in both phases; mail comes and goes.
        moved = load.bytes_up + load.devices * SIZES.mail + 2 * NUM_NODES * SIZES.down
        per_node = replies / NUM_NODES
        rows.append(
            [
                f"{load.devices:,}",
                size(moved),
                f"{number(moved / 1e6 / costs.nvflare_mb)} s",
                size(costs.held * replies),
                size(per_node) + (" (refused: more than 1 GB)" if per_node > 1 << 30 else ""),
            ]
        )
    heading = ["clients in the round", "bytes over the wire", "at NVFlare's speed here", "the server's memory"]
    return table([*heading, "a node's reply"], rows)


def training() -> Iterator[str]:
    """From the first round to the last, if every device takes part so often."""
    rows = []
    for times in (40, 100):
        for sends_listed_rows in (False, True):
            down = SIZES.listed_rows if sends_listed_rows else SIZES.down
            own = times * (down + SIZES.up + SIZES.mail) + (SIZES.down if sends_listed_rows else 0)
            rows.append(
                [
                    str(times),
                    "listed rows" if sends_listed_rows else "all of V",
                    size(own),
                    size(own * NUM_DEVICES),
                    *(f"{number(times / part * ROUND_SECONDS / 86400)} days" for part in PARTICIPATION[1:]),
                ]
            )
    heading = ["times that a device takes part", "a device gets", "its bytes", "bytes of all"]
    return table([*heading, *(f"at {part:.0%} per round" for part in PARTICIPATION[1:])], rows)


def limits() -> Iterator[str]:
    """How large a number may be so that an exact sum cannot leave its range."""
    counts = (943, 100_000, 1_000_000, NUM_DEVICES)
    return table(["summands", "largest number"], [[f"{count:,}", number(row_limit(count))] for count in counts])


def page(costs: Costs) -> dict[str, list[str]]:
    """The tables by the names under which the page shows them."""
    return {
        "constants": list(constants(costs)),
        "one device": list(one_device()),
        "loads": list(loads(costs)),
        "organisations": list(organisations(costs)),
        "hierarchy": list(hierarchy(costs)),
        "training": list(training()),
        "limits": list(limits()),
    }


def written(text: str, costs: Costs) -> str:
    """A page with its tables put in: each stands behind a comment with its name, up to an empty line."""
    for name, lines in page(costs).items():
        mark = f"<!-- table: {name} -->\n\n"
        before, found, after = text.partition(mark)
        if not found:
            raise SystemExit(f"the page has no place for the table {name!r}")
        text = before + mark + "\n".join(lines) + "\n\n" + after.partition("\n\n")[2]
    return text


def participation() -> None:
    """Train on ML-100K with all, a tenth and a hundredth of the clients per round."""
    split = next(hushrec.k_folds(hushrec.load("ml-100k")))
    print("participation  first rate  decay  rounds  updates per client     MAE    RMSE")
    for share, rate, decay, rounds in SCHEDULES:
        model = hushrec.FedRec(rho=RHO, participation=share, learning_rate=rate, decay=decay, num_rounds=rounds)
        try:
            found = model.fit(split.train).evaluate(split.test)
            said = f"{found['MAE']:>8.4f}{found['RMSE']:>8.4f}"
        except HushrecError as error:
            said = f"  {error}"
        print(f"{share:>13}{rate:>12}{decay:>7}{rounds:>8}{share * rounds:>20.0f}{said}", flush=True)


def largest(num_rounds: int = 12) -> None:
    """Print how large numbers in uploads get on ML-100K, and for how many clients of FedRec++ it is too large."""
    split = next(hushrec.k_folds(hushrec.load("ml-100k")))
    system = SYSTEMS["fedrec++"]
    job = job_for(system, system.config(rho=RHO, num_rounds=num_rounds), 0, split.train)
    sent = run_job(job, RuntimeOptions(keep_payloads=True)).transcript.recorded
    print("round  largest  share above the limit of ten million")
    peak = 0.0
    for round_number in range(1, num_rounds + 1):
        found = [
            np.abs(entry.message.gradients.values)
            for entry in sent
            if entry.round_number == round_number and isinstance(entry.message, ItemGradients)
        ]
        numbers = np.concatenate(found)
        peak = max(peak, float(numbers.max()))
        share = np.count_nonzero(numbers > row_limit(NUM_DEVICES)) / numbers.size
        print(f"{round_number:>5}{numbers.max():>9.3g}{share:>10.1%}")
    print(f"largest of all: {peak:.3g}, refused from {SUM_RANGE / peak:,.0f} clients on")


def main() -> int:
    """`python -m benchmarks.devices [--measure | --training | --page FILE]`."""
    parser = argparse.ArgumentParser(prog="benchmarks.devices", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="measure the constants on this machine first")
    parser.add_argument("--training", action="store_true", help="train on ML-100K: fewer clients, largest numbers")
    parser.add_argument("--page", type=Path, help="put the tables into this page, in place of printing them")
    options = parser.parse_args()
    if options.training:
        participation()
        largest()
        return 0
    if options.page is not None:
        options.page.write_text(written(options.page.read_text(encoding="utf-8"), MEASURED), encoding="utf-8")
        return 0
    costs = measure() if options.measure else MEASURED
    if options.measure:
        print("MEASURED = Costs(")
        for entry in fields(costs):
            print(f"    {entry.name}={getattr(costs, entry.name):.3g},")
        print(")\n")
    for lines in page(costs).values():
        print("\n".join(lines), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
