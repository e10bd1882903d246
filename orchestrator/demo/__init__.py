"""The demo of `./run demo`: a year of flights from New York, and views that stay fresh while flights arrive."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.api import connect
from orchestrator.demo import flights
from orchestrator.demo.screen import screen_for
from orchestrator.demo.tour import run_tour
from orchestrator.errors import IdivmError


def main(command: str = "idivm") -> int:
    """Run the demo on a server of its own, which is removed afterwards. `command` starts `idivm`."""
    from orchestrator.server.embedded import EmbeddedServer

    screen = screen_for(sys.stdout)
    screen.say("idivm: a demo of about a minute, on a PostgreSQL server of its own.")
    with tempfile.TemporaryDirectory(prefix="idivm-demo-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # as root the server runs as another user, who must get in
        server = EmbeddedServer(Path(folder) / "home")
        with ThreadPoolExecutor(1) as background:
            source = background.submit(flights.find_or_download)
            try:
                with connect(server.up().dsn) as orchestrator, screen:
                    run_tour(orchestrator, source.result(), screen, command)
            except IdivmError as error:
                print(f"idivm: {error}", file=sys.stderr)
                return error.exit_status
            except KeyboardInterrupt:
                return 130
            finally:
                server.down()
    return 0
