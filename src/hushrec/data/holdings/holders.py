"""Holders: the kind of parties that a system is for. They say who holds which rows, and bring them to a network.

A dataset has a `Holding`, which is data; the holders read it. Nobody else asks which kind it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.data.holdings.node_files import Catalogue, NodeData, NodeFiles, catalogue_of
from hushrec.data.interactions import Arrays, Interactions, Numbers, RatingRange, place_of
from hushrec.data.splits import Deal, Split, SplitKind
from hushrec.errors import HushrecError, PublicError, option

Rows = TypeVar("Rows", covariant=True)


class Presence(Protocol):
    """What a node tells the server of its parties."""

    @property
    def num_clients(self) -> int:
        """How many there are."""
        ...

    @property
    def numbers(self) -> list[int] | None:
        """Their numbers, if they were agreed on beforehand."""
        ...

    @property
    def names(self) -> list[str]:
        """Their names, if they have any; some may have none."""
        ...


class Holders(ABC, Generic[Rows]):
    """One kind of party: who holds which rows."""

    word: ClassVar[str]  # what one of them is called
    knows_all_items: ClassVar[bool] = True  # whether they share one catalogue of items
    hides_writers: ClassVar[bool] = False  # whether nobody is to know who writes to whom
    usual_split: ClassVar[SplitKind | None] = None  # None: the one of the feedback

    # --- Data in one place ---

    @abstractmethod
    def held(self, data: Interactions) -> Interactions:
        """The same data, held by such parties: as it says itself, or dealt to them in the usual way."""

    @abstractmethod
    def sample(self, data: Interactions, seed: int) -> Interactions:
        """A little data in one piece, in the hands of a few such parties: for tests. A row may have several."""

    def held_in_run(self, data: Interactions) -> Interactions:
        """The part of a split as `hushrec run` takes it, whatever split was asked for."""
        return self.held(data)

    def dealt(self, data: Interactions, how: str, seed: int, wanted_by: str) -> Interactions:
        """The same data, dealt as somebody wishes with --owners."""
        raise HushrecError(f"{option('owners', how)}: {wanted_by} knows no owners of items; leave it out")

    @abstractmethod
    def num_parties(self, data: Interactions) -> int:
        """How many parties hold the data."""

    @abstractmethod
    def rows(self, data: Interactions) -> Rows:
        """What they hold, party after party."""

    def how_many(self, data: Interactions) -> int:
        """The number of parties that a person would count (without the users' side)."""
        return self.num_parties(data)

    def lines_for_people(self, data: Interactions) -> list[str]:
        """Lines that describe who holds what; none if there is nothing to say."""
        return []

    @property
    def traffic_per(self) -> str | None:
        """Whose traffic tables tell, in a word: that of one party. None: that of all together."""
        return self.word

    def whose_model(self, is_on_node: bool) -> str:
        """Whose model predicts where the driving side has none: on a node, or in a simulation of all parties."""
        return f"the {self.word}'s own model; nothing was sent"

    def groups(self, train: Interactions, test: Interactions) -> dict[str, NDArray[np.bool_]]:
        """Test rows that a party measures by themselves, with their names."""
        return {}

    def users_of(self, data: Interactions, party: int) -> Numbers:
        """The users who are a party's own, by their numbers; none of an owner's, whose items all users have."""
        return np.empty(0, np.int32)

    # --- By the ids of the source ---

    def accounts(self, data: Interactions, user_ids: NDArray[Any]) -> list[Numbers]:
        """The numbers of each of these users; only who is with several parties has more than one."""
        return list(data.user_numbers(user_ids)[:, None])

    def copies(self, data: Interactions, item_ids: NDArray[Any]) -> list[Numbers]:
        """The numbers of each of these items: none where it is unknown, more where several parties have it."""
        places = np.array([[place_of(data.item_ids, item)] for item in item_ids.tolist()], np.int32).reshape(-1, 1)
        return [place[place >= 0] for place in places]

    def source_id(self, item_id: int | str) -> int | str:
        """What the source calls an item."""
        return item_id

    def most_copies(self, data: Interactions) -> int:
        """How many parties may have the same item."""
        return 1

    # --- In a run's folder ---

    def arrays(self, data: Interactions) -> Arrays:
        """What a run's folder keeps of the holding, beside the rows."""
        return {}

    def restored(self, data: Interactions, arrays: Mapping[str, NDArray[Any]]) -> Interactions:
        """Data from a run's folder, held as it was."""
        return data

    def from_older(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        """What an older `run.json` says of these parties beside their number, by the names of today."""
        return {}

    # --- On nodes ---

    def catalogue(self, data: Interactions) -> Catalogue:
        """The items of a dataset that all nodes are told of; none where each party's are its own."""
        return catalogue_of(data) if self.knows_all_items else Catalogue([], False)

    def deal_for(self, num_nodes: int) -> Deal | None:
        """How to deal data in one piece for so many nodes, before it is split; None: as any other run does."""
        if num_nodes < 1:
            raise HushrecError("--nodes must be at least 1")
        return None

    def node_names(self, data: Interactions, num_nodes: int) -> list[str]:
        """Names for so many nodes; there may be one more, if a kind of party needs a node of its own."""
        return [f"node-{number}" for number in range(1, num_nodes + 1)]

    @abstractmethod
    def deal(self, split: Split, nodes: Sequence[str], seed: int, folder: Path) -> dict[str, NodeFiles]:
        """Write every node's files, for a federation on one machine. Parties have the numbers of `hushrec run`."""

    def check_files(self, files: NodeFiles, wanted_by: str) -> None:
        """Refuse a node whose files are for another kind of party, in words that name nothing private."""
        if files.data is None:
            raise PublicError(f"this node holds no ratings; it cannot take part in {wanted_by}")

    @abstractmethod
    def read(self, files: NodeFiles, node: str, catalogue: Catalogue, rating_range: RatingRange) -> NodeData:
        """What is on a node, as its files say."""

    def described(self, files: NodeFiles, node: str) -> str | None:
        """What a node has, in words, after a look at its files; None: they are for others."""
        return None

    @abstractmethod
    def read_test(
        self, files: NodeFiles, train: Interactions, catalogue: Catalogue, rating_range: RatingRange
    ) -> Interactions:
        """A node's test ratings, numbered as those that it trains on."""

    def names(self, data: Interactions) -> list[str]:
        """Names of the parties on a node, ascending, if they have any."""
        return []

    @abstractmethod
    def number(self, nodes: Mapping[str, Presence]) -> dict[str, list[int]]:
        """The numbers of every node's parties in the run."""

    def known(self, data: Interactions, num_parties: int) -> Interactions:
        """What a server knows of the data when the run is over: items and how many there are, no row."""
        return data


def numbers_in_order(nodes: Mapping[str, Presence]) -> dict[str, list[int]]:
    """Numbers as agreed on beforehand by all nodes, or dealt in the order of the nodes' names."""
    agreed = {name: node.numbers for name, node in nodes.items() if node.numbers is not None}
    if agreed and len(agreed) < len(nodes):
        missing = ", ".join(sorted(set(nodes) - set(agreed)))
        raise HushrecError(
            f"some nodes have agreed numbers of clients, not {missing}; use --numbers on all or none"
        )
    if agreed:
        all_numbers = np.concatenate([np.array(numbers, np.int64) for numbers in agreed.values()])
        # Clients of nodes that are away leave gaps.
        if len(np.unique(all_numbers)) < len(all_numbers) or all_numbers.max() >= 2 * len(all_numbers) + 1000:
            raise HushrecError("the agreed numbers of clients are not 0, 1, 2, ... each on one node; agree again")
        return {name: list(numbers) for name, numbers in agreed.items()}
    dealt, first = {}, 0
    for name in sorted(nodes):
        dealt[name] = list(range(first, first + nodes[name].num_clients))
        first += nodes[name].num_clients
    return dealt
