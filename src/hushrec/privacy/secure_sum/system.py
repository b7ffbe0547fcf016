"""A system with secure sums, made of a system: it knows nothing of them but its switch."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hushrec.draws import Draws
from hushrec.privacy.secure_sum.attempts import remembering
from hushrec.privacy.secure_sum.few_raters import (
    COUNTED,
    Lists,
    counting,
    leave_out,
    leaves_out,
    sum_without_few,
)
from hushrec.privacy.secure_sum.letters import LetterBox
from hushrec.privacy.secure_sum.messages import (
    COUNTING,
    MESSAGES,
    LeaveOut,
    MaskedNumbers,
    NoisyNumbers,
    SendCounts,
    SendKeys,
    SendShares,
    Shares,
    Unmask,
    stand_in_for,
)
from hushrec.privacy.secure_sum.noise import Size
from hushrec.privacy.secure_sum.parties import Summed, Total, answering, send_keys, send_shares, unmask
from hushrec.privacy.secure_sum.server import secure_sum
from hushrec.privacy.secure_sum.settings import SecureSums, in_full, is_counted, is_secure
from hushrec.privacy.secure_sum.together import Together, is_together, with_blocks
from hushrec.privacy.user_privacy import WARNING, is_private, most_sums, num_sums_of, promises_of, spending_of
from hushrec.protocol import Handler, Message, Numbers, Round, Spending, System

Config = TypeVar("Config")
Rows = TypeVar("Rows")
Server = TypeVar("Server")
Private = TypeVar("Private")


def summed(reply: type[Message], empty: Callable[[Any, Any, int], Total], size: Callable[[Any], Size]) -> Summed:
    """Replies of which the server needs the sum only, and the fold that they are summed in, for a request.

    `size`: what a client's numbers are clipped to where they get noise, unless the settings say so.
    """
    is_of_items = any(kind.name == "items" for kind in reply.kinds())
    return Summed(reply, stand_in_for(reply), empty, size, is_of_items)


def reply_of(one: Summed, config: Any) -> type[Message]:
    """What a party answers with: its numbers as they are, behind masks, or what stands for those."""
    if not is_secure(config):
        return one.reply
    if not is_counted(config):
        return MaskedNumbers
    return NoisyNumbers if is_private(config) else one.stand_in


def with_secure_sums(
    system: System[Config, Rows, Server, Private],
    sums: Mapping[Any, Summed],
    num_words: Callable[[Private], int],
    lists: Lists | None = None,
) -> System[Config, Rows, Server, Private]:
    """The same system whose sums are secure if its settings say so.

    `sums`: by type of request, each of which a client gets once in a round at most. `num_words`: about how many
    numbers the largest of these replies has. `lists`: the items of which clients will send rows, if they do and
    such with few raters can be left out.
    """
    sums = {kind: replace(one, per_round=len(sums)) for kind, one in sums.items()}

    def start(num_parties: int, num_items: int, config: Config, draws: Draws) -> Server:
        state = system.start(num_parties, num_items, config, draws)
        return with_blocks(state, num_parties) if is_together(config) else state

    def enrol(numbers: Numbers, rows: Rows, num_items: int, config: Config, draws: Draws) -> Private:
        private = system.enrol(numbers, rows, num_items, config, draws)
        return remembering(private, len(numbers), num_items) if is_secure(config) else private

    def server_round(state: Server, round_number: int, config: Config, draws: Draws) -> Round[Server]:
        steps = system.round(state, round_number, config, draws)
        if not is_secure(config):
            return (yield from steps)
        together = _together(state, round_number, config, draws)
        after = yield from _with_sums(steps, sums, round_number, config, draws, together)
        return after if together is None else replace(after, sum_blocks=together.blocks)  # type: ignore[type-var]

    def reply_bytes(private: Private, config: Config) -> NDArray[np.int64]:
        sizes = system.reply_bytes(private, config)
        if not isinstance(config, SecureSums) or not config.secure_sums:
            return sizes
        is_made = is_private(config) or not is_counted(config)
        return np.maximum(sizes, 8 * num_words(private)) if is_made else sizes

    def promises(private: Private, config: Config) -> Mapping[str, float]:
        return promises_of(num_sums_of(private), config, len(sums)) if is_private(config) else {}

    def spends(private: Private | None, config: Config) -> Spending | None:
        if not is_private(config):
            return None
        num_sums = most_sums(config, len(sums)) if private is None else num_sums_of(private)
        return spending_of(num_sums, config, len(sums))

    def warnings(config: Config) -> tuple[str, ...]:
        return (*system.result.warnings(config), *([WARNING] if is_private(config) else []))

    handlers = {
        kind: Handler(
            answering(handler.answer, sums[kind]), (*handler.reads, Shares), partial(reply_of, sums[kind])
        )
        if kind in sums
        else handler
        for kind, handler in system.handlers.items()
    }
    own: dict[type[Message], Handler[Any, Any]] = {
        SendKeys: Handler(send_keys),
        SendShares: Handler(send_shares),
        Unmask: Handler(unmask, reads=(Shares,)),
    }
    counts: tuple[type[Message], ...] = ()
    if lists is not None:
        own[SendCounts] = Handler(answering(counting(lists), COUNTED), (Shares,), partial(reply_of, COUNTED))
        own[LeaveOut] = Handler(leave_out)
        counts = (*COUNTING, COUNTED.stand_in)
    return replace(
        system,
        messages=(*system.messages, *(one.stand_in for one in sums.values()), *counts, *MESSAGES),
        start=start,
        enrol=enrol,
        round=server_round,
        handlers={**handlers, **own},
        reply_bytes=reply_bytes,
        result=replace(system.result, promises=promises, spends=spends, warnings=warnings),
        inboxes={**system.inboxes, Shares: lambda _private, _config: LetterBox()},
        in_full=in_full,
    )


def _together(state: Any, round_number: int, config: Any, draws: Draws) -> Together | None:
    """Who may be in a sum with whom; None: it is not looked at."""
    if not is_together(config):
        return None
    return Together(state.sum_blocks, config.secure_together, draws.generator("secure-sum-blocks", round_number))


def _with_sums(
    steps: Round[Server],
    sums: Mapping[type[Message], Summed],
    round_number: int,
    config: Any,
    draws: Draws,
    together: Together | None,
) -> Round[Server]:
    """A round in which some asks become secure sums."""
    num_asks = 0
    try:
        ask = next(steps)
        while True:
            kind = type(ask.request)
            if kind in sums:
                what = ask, f"{kind.__name__} {num_asks}", sums[kind], round_number, config, draws
                if leaves_out(config) and sums[kind].is_of_items:
                    num_items = len(ask.request.item_factors)  # type: ignore[attr-defined]
                    answer = yield from sum_without_few(*what, num_items, together)
                else:
                    answer = yield from secure_sum(*what, together)
            else:
                answer = yield ask
            num_asks += 1
            ask = steps.send(answer)
    except StopIteration as end:
        state: Server = end.value
        return state
