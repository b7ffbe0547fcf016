"""The page over a folder of runs, from its options to its end."""

import secrets
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path

from hushrec.cli.console import note, warn
from hushrec.cli.ui import PageOptions
from hushrec.cli.work.serve import given_tokens
from hushrec.cli.work.ui_commands import RunCommands
from hushrec.errors import HushrecError, how_to_install
from hushrec.files import check_folder_to_write
from hushrec.serving.limits import Connections, Rate, RateLimit, Tokens

_RATE = Rate(200, 1.0)
_MOST_BYTES = 1 << 20  # of a request
_CONNECTIONS = Connections(200, 100)


def show_pages(runs: Path, options: PageOptions) -> None:
    """Serve the pages until a signal comes."""
    try:
        from hushrec.serving import server
        from hushrec.serving.gate import Gate
        from hushrec.ui.address import told_open
        from hushrec.ui.app import PRIVATE, create_app
        from hushrec.ui.door import Door, names_of
    except ModuleNotFoundError as error:
        raise HushrecError(f"the page needs {error.name}; install it with: {how_to_install('serve')}") from None

    check_folder_to_write(runs, "RUNS")
    tls = server.TLS.of(options.tls_cert, options.tls_key)
    given, ending = given_tokens(options.token_file), threading.Event()
    with server.listen(options.host, options.port) as listening:
        is_local = server.is_loopback(listening)
        if given is None and not is_local:
            given = [secrets.token_urlsafe(32)]
            note(f"token, shown this once: {given[0]}")
        tokens = None if given is None else Tokens(given)
        if tls is None and not is_local:
            warn(
                "the page and its token travel unencrypted; use --tls-cert and --tls-key, or a proxy that does TLS"
            )
        app = create_app(
            runs,
            commands=RunCommands(),
            federations=options.federation or (),
            ending=ending,
        )
        door = Door(app, names_of(options.host, is_local))
        gate = Gate(door, RateLimit(_RATE), tokens, _MOST_BYTES, _log, private=PRIVATE)
        address = server.address_of(listening, tls)
        missing = "" if runs.exists() else ", a folder that is not there yet: the first run makes it"
        note(f"page at {address}/ over {runs}{missing}; Ctrl-C ends it, runs go on")
        if options.browser:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt), told_open(runs, address):
            server.serve(gate, listening, tls, None, _log, _CONNECTIONS, ending)
        note("stopped")


def _log(line: bytes) -> None:
    """Of requests, only faults of ours are told."""
    if b'"error"' in line or b'"level"' in line:
        with suppress(OSError):
            warn(line.decode())
