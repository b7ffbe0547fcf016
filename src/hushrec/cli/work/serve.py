"""The server of recommendations, from its options to its end."""

import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from hushrec.cli.console import note
from hushrec.cli.serve import TOKEN_VARIABLE, ServeOptions
from hushrec.errors import HushrecError, how_to_install
from hushrec.serving.limits import Connections, Rate, RateLimit, Tokens
from hushrec.serving.model import load_served


def serve_run(run: Path, options: ServeOptions) -> None:
    """Serve until a signal comes."""
    try:
        from hushrec.serving import server
        from hushrec.serving.app import build_app
        from hushrec.serving.gate import Gate
        from hushrec.serving.metrics import Meter
        from hushrec.serving.reloading import Reloader, mark_of, reload_on_signal
    except ModuleNotFoundError as error:
        raise HushrecError(f"serving needs {error.name}; install it with: {how_to_install('serve')}") from None

    limit = RateLimit(Rate.parse(options.rate))
    connections = Connections(options.max_connections, options.max_connections_per_address, options.proxy)
    tls = server.TLS.of(options.tls_cert, options.tls_key)
    given = None if options.no_token else given_tokens(options.token_file)
    new_token = secrets.token_urlsafe(32)
    tokens = None if options.no_token else Tokens([new_token] if given is None else given)
    meter, mark = Meter(), partial(mark_of, run, options.fold)
    loaded_from, model = mark(), load_served(run, options.fold, options.simulation)
    with server.listen(options.host, options.port) as listening:
        is_public = not server.is_loopback(listening)
        if tokens is None and is_public:
            raise HushrecError(
                f"--no-token lets everyone who reaches {options.host} ask; use --host 127.0.0.1 or a token"
            )
        if tokens is not None and given is None:
            note(f"token, shown this once: {new_token}")
        if tls is None and is_public:
            note("tokens and ratings travel unencrypted; use --tls-cert and --tls-key, or a proxy that does TLS")
        app = build_app(model, tokens is not None, meter)
        gate = Gate(app, limit, tokens, options.max_request_bytes, _log, meter)
        meter.describe_model(model.labels)

        def take_up() -> str:
            newer = load_served(run, options.fold, options.simulation)
            gate.app = build_app(newer, tokens is not None, meter)
            meter.describe_model(newer.labels)
            return str(newer)

        note(f"serving {model} at {server.address_of(listening, tls)}; Ctrl-C stops")
        with (
            suppress(KeyboardInterrupt),
            Reloader(take_up, meter, _log, loaded_from, mark if options.watch else None) as reloader,
        ):
            reload_on_signal(reloader, _terminal())
            # Ctrl-C comes again when all under way is answered.
            server.serve(gate, listening, tls, options.proxy, _log, connections)
        note("stopped")


def _terminal() -> Callable[[], bool]:
    """Says later whether the terminal that the server was started in is gone."""
    has_terminal = sys.stdin is not None and os.isatty(0)
    return lambda: has_terminal and not os.isatty(0)


def given_tokens(token_file: Path | None) -> list[str] | None:
    """The tokens of the file or of the environment; None if neither was given."""
    if token_file is None:
        return [os.environ[TOKEN_VARIABLE]] if os.environ.get(TOKEN_VARIABLE) else None
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
