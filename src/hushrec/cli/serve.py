"""`hushrec serve RUN`: recommendations over HTTP."""

import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hushrec.cli.console import note
from hushrec.cli.options import Fold, RunFolder
from hushrec.errors import HushrecError, how_to_install
from hushrec.serving.limits import Rate, RateLimit, Tokens
from hushrec.serving.model import load_served

_VARIABLE = "HUSHREC_TOKEN"


def serve(
    run: RunFolder,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(help=f"A file of tokens, one per line; default: {_VARIABLE}, else a new one.")
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let anyone on this machine ask.")] = False,
    rate: Annotated[str, typer.Option(help="Requests per client address, and per token.")] = "50/second",
    max_request_bytes: Annotated[int, typer.Option(min=1, help="Largest body of a request.")] = 65536,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM), for https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    proxy: Annotated[
        str | None, typer.Option(help="Address of a proxy whose X-Forwarded-For tells the client's address.")
    ] = None,
    fold: Fold = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Take up a newer run when the folder's files change, or its link moves."),
    ] = False,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Serve clients' vectors that a simulation holds in one place.")
    ] = False,
) -> None:
    """Serve recommendations over HTTP: lists for users and newcomers, behind a token and limits."""
    try:
        from hushrec.serving import server
        from hushrec.serving.app import build_app
        from hushrec.serving.gate import Gate
        from hushrec.serving.metrics import Meter
        from hushrec.serving.reloading import Reloader, mark_of, reload_on_signal
    except ModuleNotFoundError as error:
        raise HushrecError(f"serving needs {error.name}; install it with: {how_to_install('serve')}") from None

    limit = RateLimit(Rate.parse(rate))
    tls = server.TLS.of(tls_cert, tls_key)
    given = None if no_token else _given_tokens(token_file)
    new_token = secrets.token_urlsafe(32)
    tokens = None if no_token else Tokens([new_token] if given is None else given)
    meter, mark = Meter(), partial(mark_of, run, fold)
    loaded_from, model = mark(), load_served(run, fold, simulation)
    with server.listen(host, port) as listening:
        if tokens is None and not server.is_loopback(listening):
            raise HushrecError(f"--no-token lets everyone who reaches {host} ask; use --host 127.0.0.1 or a token")
        if tokens is not None and given is None:
            note(f"token, shown this once: {new_token}")
        if tls is None and not server.is_loopback(listening):
            note("tokens and ratings travel unencrypted; use --tls-cert and --tls-key, or a proxy that does TLS")
        gate = Gate(build_app(model, tokens is not None, meter), limit, tokens, max_request_bytes, _log, meter)
        meter.describe_model(model.labels)

        def take_up() -> str:
            newer = load_served(run, fold, simulation)
            gate.app = build_app(newer, tokens is not None, meter)
            meter.describe_model(newer.labels)
            return str(newer)

        note(f"serving {model} at {server.address_of(listening, tls)}; Ctrl-C stops")
        with (
            suppress(KeyboardInterrupt),
            Reloader(take_up, meter, _log, loaded_from, mark if watch else None) as reloader,
        ):
            reload_on_signal(reloader, _terminal())
            server.serve(gate, listening, tls, proxy, _log)  # Ctrl-C comes again when all under way is answered
        note("stopped")


def _terminal() -> Callable[[], bool]:
    """Says later whether the terminal that the server was started in is gone."""
    has_terminal = sys.stdin is not None and os.isatty(0)
    return lambda: has_terminal and not os.isatty(0)


def _given_tokens(token_file: Path | None) -> list[str] | None:
    """The tokens of the file or of the environment; None if neither was given."""
    if token_file is None:
        return [os.environ[_VARIABLE]] if os.environ.get(_VARIABLE) else None
    try:
        if token_file.stat().st_mode & 0o007:
            note(f"others may read {token_file}; make it yours with: chmod 600 {token_file}")
        return token_file.read_text(encoding="ascii").split()
    except (OSError, UnicodeError):
        raise HushrecError(
            f"--token-file {token_file} cannot be read; give a file with one token per line"
        ) from None


def _log(line: bytes) -> None:
    """One line on standard output; a reader who is gone does not stop the server."""
    with suppress(OSError):
        os.write(sys.stdout.fileno(), line + b"\n")
