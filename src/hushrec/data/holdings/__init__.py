"""Who holds which rows: users, partners, owners. A file each; a fourth kind of party would be a fourth file.

May import the rest of `data`. Nobody outside asks which kind it is: the holders of a system answer.
"""

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
