"""Every user holds its own rows: a phone, or a crowd of them on one node."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hushrec.data.holdings.holders import Holders, Presence, numbers_in_order
from hushrec.data.holdings.node_files import (
    Catalogue,
    NodeData,
    NodeFiles,
    as_in_catalogue,
    catalogue_of,
    read_numbers,
    read_own,
    write_both,
    write_lines,
)
from hushrec.data.interactions import Holding, Ids, Interactions, Numbers, RatingRange, UserRows
from hushrec.data.splits import Split
from hushrec.draws import Draws
from hushrec.errors import HushrecError


class HeldByUsers(Holders[UserRows]):
    """Users as clients."""

    word = "client"
    hides_writers = True

    def held(self, data: Interactions) -> Interactions:
        """Every user its own rows, whoever else may hold them."""
        return data if type(data.holding) is Holding else replace(data, holding=Holding())

    def sample(self, data: Interactions, _seed: int) -> Interactions:
        """Each user keeps its own rows."""
        return self.held(data)

    def num_parties(self, data: Interactions) -> int:
        """One for each user of the vocabulary, also without a row."""
        return data.num_users

    def rows(self, data: Interactions) -> UserRows:
        """The items of each user."""
        return data.by_user()

    def users_of(self, data: Interactions, party: int) -> Numbers:
        """Every party is a user."""
        return np.array([party], np.int32)

    def deal(self, split: Split, nodes: Sequence[str], seed: int, folder: Path) -> dict[str, NodeFiles]:
        """Users are dealt at random."""
        num_users = split.train.num_users
        if len(nodes) > num_users:
            raise HushrecError(f"{len(nodes)} nodes for {num_users} users; use at most one node per user")
        node_of = np.empty(num_users, np.int64)
        node_of[Draws(seed).generator("users-of-nodes").permutation(num_users)] = np.arange(num_users) % len(nodes)
        dealt = {}
        for place, name in enumerate(nodes):
            own = np.flatnonzero(node_of == place)
            files = write_both(split, node_of == place, folder / name)
            ids, path = split.train.user_ids[own].tolist(), folder / name / "numbers.tsv"
            write_lines(path, [f"{user}\t{number}" for user, number in zip(ids, own, strict=True)])
            dealt[name] = replace(files, numbers=str(path))
        return dealt

    def read(self, files: NodeFiles, node: str, catalogue: Catalogue, rating_range: RatingRange) -> NodeData:
        """The node's own ratings; test ratings are looked at, to see that they can be used, too."""
        data = read_own(files, files.data, rating_range)
        user_ids, numbers = _clients(files, data)
        # The range of the run, not of the node's own ratings: all nodes must mean the same by it.
        train = replace(as_in_catalogue(data, user_ids, catalogue), rating_range=rating_range)
        if files.test is not None:
            self.read_test(files, train, catalogue, rating_range)
        return NodeData(train, numbers)

    def described(self, files: NodeFiles, _node: str) -> str | None:
        """Users, and how much they rated; also reads test ratings, to find faults early."""
        ratings = read_own(files, files.data, None)
        if files.test is not None:
            test = read_own(files, files.test, None)
            as_in_catalogue(test, _clients(files, ratings)[0], catalogue_of(test))
        return f"{ratings.num_users} clients, {len(ratings)} ratings"

    def read_test(
        self, files: NodeFiles, train: Interactions, catalogue: Catalogue, rating_range: RatingRange
    ) -> Interactions:
        """Test ratings of the node's users."""
        return as_in_catalogue(read_own(files, files.test, rating_range), train.user_ids, catalogue)

    def number(self, nodes: Mapping[str, Presence]) -> dict[str, list[int]]:
        """Numbers that were agreed on, else 0, 1, 2, ... node after node."""
        return numbers_in_order(nodes)


def _clients(files: NodeFiles, data: Interactions) -> tuple[Ids, Numbers | None]:
    """The users of a node, and their numbers if they were agreed on."""
    return (data.user_ids, None) if files.numbers is None else read_numbers(Path(files.numbers), data.user_ids)


USERS = HeldByUsers()
