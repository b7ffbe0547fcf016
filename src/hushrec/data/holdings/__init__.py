"""Who holds which rows: users, partners, owners. A file each; what else a fourth kind needs: `docs/design.md`.

May import the rest of `data`. Nobody outside asks which kind it is: the holders of a system answer.
"""

from collections.abc import Mapping
from typing import Any

from hushrec.data.holdings.holders import Holders as Holders
from hushrec.data.holdings.node_files import NodeFiles
from hushrec.data.holdings.owners import OWNERS as OWNERS
from hushrec.data.holdings.owners import SOLE_OWNER as SOLE_OWNER
from hushrec.data.holdings.partners import PARTNERS as PARTNERS
from hushrec.data.holdings.users import USERS as USERS

KINDS: tuple[Holders[Any], ...] = (OWNERS, PARTNERS, USERS)  # the first that knows a node's files describes them


def described(files: NodeFiles, node: str) -> str:
    """What a node has, in words, after a look at all its files."""
    return next(words for holders in KINDS if (words := holders.described(files, node)) is not None)


def from_older(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What an older `run.json` says of the parties, by the names of today: it has a number for each kind."""
    found: dict[str, Any] = {}
    for holders in KINDS:
        if number := kept.get(f"num_{holders.word}s"):
            found |= {"party": holders.word, "num_parties": number}
        found |= holders.from_older(kept)
    return found
