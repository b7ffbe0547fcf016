"""What the owner of a node decided, and what the node needs room for."""

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import Federation, Wire, small, some_split

from hushrec import settings
from hushrec.data.holdings.node_files import NodeFiles
from hushrec.data.reading import Columns
from hushrec.deploy.enrolment import (
    NodeSettings,
    letter_bytes,
    numbers_digest,
    read_settings,
    write_settings,
)
from hushrec.draws import Draws
from hushrec.errors import HushrecError
from hushrec.privacy.secure_sum.messages import Shares
from hushrec.registry import SYSTEMS
from hushrec.runtime.packets import Contents, about, contents_of, decode_packet


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    files = NodeFiles("x.csv", "t.csv", "n.tsv", columns=Columns(user="who"), duplicates="mean")
    wanted = NodeSettings(files, ["fedrec"], {"rho": "3"}, True, 1000)
    write_settings(tmp_path, wanted)
    assert read_settings(tmp_path) == wanted
    path = tmp_path / "private" / "node.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_text("{")
    with pytest.raises(HushrecError, match=r"is damaged .*; run hushrec deploy node again"):
        read_settings(tmp_path)


def test_settings_that_were_written_before_are_read(tmp_path: Path) -> None:
    """They name the files beside the rest."""
    flat = (
        b'{"data":"x.csv","columns":{"user":"who","item":null,"rating":null,"timestamp":null},"duplicates":"mean",'
        b'"numbers":"n.tsv","test":"t.csv","systems":["fedrec"],"required":{"rho":"3"},"accepts_shared_seed":true,'
        b'"max_packet_bytes":1000,"visitors":"v.txt","items":null,"owned":null}'
    )
    path = tmp_path / "private" / "node.json"
    path.parent.mkdir()
    path.write_bytes(flat)
    files = NodeFiles("x.csv", "t.csv", "n.tsv", "v.txt", columns=Columns(user="who"), duplicates="mean")
    assert read_settings(tmp_path) == NodeSettings(files, ["fedrec"], {"rho": "3"}, True, 1000)


def test_the_digest_of_numbers_depends_on_each_and_on_their_order() -> None:
    digests = {numbers_digest(numbers) for numbers in ([], [0], [1], [0, 1], [1, 0], [256], [0, 0])}
    assert len(digests) == 7
    assert all(len(digest) == 32 for digest in digests)


# --- Room for letters ------------------------------------------------------------------------------------------


WRITTEN = ("ItemFactors", "ModelToHide", "SendMaskedLayers")  # what clients answer with mail to denoisers
# Without their switch, systems with secure sums write no shares.
WITH_ONIONS = [
    name for name, system in SYSTEMS.items() if set(system.inboxes) - {Shares} and system.holders.hides_writers
]


@pytest.mark.parametrize("name", WITH_ONIONS)
@pytest.mark.parametrize("values", [{}, {"denoisers": 1}, {"num_factors": 1}])
def test_a_letter_has_room_for_all_mail_of_a_node(tmp_path: Path, name: str, values: dict[str, Any]) -> None:
    """However clients are assigned to denoisers, no letter needs a second helping of padding."""
    federation = Federation(tmp_path / "f", 2)
    ordered, wire = federation.order(name, small(name, **values), relay="onion"), Wire(federation)
    assert ordered.drive(wire).status == "done"
    sizes: dict[str, set[int]] = {}
    for leg, data in wire.replies:
        if leg.phase in WRITTEN:
            reply = decode_packet(data)
            sizes.setdefault(leg.phase, set()).update(len(letter) for _, letter in contents_of(reply)[1])
            assert about(reply, Contents).num_frames == 1
    assert sizes
    assert {len(of_phase) for of_phase in sizes.values()} == {1}


def test_room_for_letters_is_told_coarsely() -> None:
    """Two binary digits: from the size one cannot tell how many ratings there are."""
    system, split = SYSTEMS["fedrec++"], some_split()
    config = settings.build(system.config, small("fedrec++"))
    numbers = np.arange(split.train.num_users, dtype=np.int32)
    private = system.enrol(numbers, split.train.by_user(), split.train.num_items, config, Draws(0))
    size, reply_bytes = letter_bytes(system, private, config), system.reply_bytes(private, config)
    assert size >= reply_bytes.sum()
    assert size <= 4 * reply_bytes.sum()
    assert bin(size).count("1") <= 2
