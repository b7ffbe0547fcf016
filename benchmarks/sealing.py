"""What sealed mail costs: seals and opens per second, and a round of onions."""

from benchmarks.engine import best
from hushrec.privacy.sealing import (
    Binding,
    new_private_key,
    open_sealed,
    pad,
    peel,
    public_key_of,
    seal,
    unpad,
    wrap,
)

SIZES = {"1 KB": 1_000, "20 KB": 20_000, "1 MB": 1_000_000}
RUN_ID = bytes(16)
MESSAGE_CODE = 1


def bindings(number: int) -> tuple[Binding, Binding]:
    """Of the inner and of the outer layer of one message."""
    return Binding(RUN_ID, 1, 1, MESSAGE_CODE, number), Binding(RUN_ID, 1, 1, MESSAGE_CODE, number + 1)


def layers(repeats: int = 3) -> None:
    """Print the cost of one layer, by size of frame."""
    private = new_private_key()
    public = public_key_of(private)
    binding, _ = bindings(0)
    print("sealed mail, one layer, one core")
    for name, size in SIZES.items():
        frame, count = bytes(size), max(50, min(1_000, 20_000_000 // size))
        sealed = seal(frame, public, binding)
        (sealing, _), (opening, _) = best(
            repeats,
            lambda frame=frame, count=count: [seal(frame, public, binding) for _ in range(count)],
            lambda sealed=sealed, count=count: [open_sealed(sealed, private, binding) for _ in range(count)],
        )
        for what, seconds in (("seal", sealing), ("open", opening)):
            rate, speed = count / seconds, count * size / seconds / 1e6
            print(f"  {what} {name:>5}  {rate:8.0f} per second {speed:8.0f} MB/s {1e6 / rate:7.0f} us each")


def onions(num_messages: int = 6_000, size: int = 20_000) -> None:
    """Print the cost of a round of padded mail in two layers: all senders, relays and addressees together."""
    relay, private = new_private_key(), new_private_key()
    relay_public, public = public_key_of(relay), public_key_of(private)
    frame = bytes(size - 100)

    def send() -> list[bytes]:
        return [
            wrap(seal(pad(frame, size), public, inner), inner.addressee, relay_public, outer)
            for inner, outer in map(bindings, range(num_messages))
        ]

    def receive(mail: list[bytes]) -> None:
        for number, message in enumerate(mail):
            inner, outer = bindings(number)
            unpad(open_sealed(peel(message, relay, outer)[1], private, inner))

    mail = send()
    (sending, _), (receiving, _) = best(2, send, lambda: receive(mail))
    print(f"onions, {num_messages} messages of {size // 1000} KB in two layers, one core")
    print(f"  pad, seal, wrap      {sending:8.2f} s of CPU")
    print(f"  peel, open, unpad    {receiving:8.2f} s of CPU; {sending + receiving:.2f} s in all")


def main() -> None:
    """All of it; a few seconds."""
    layers()
    onions()


if __name__ == "__main__":
    main()
