"""The pages of the console and how they are served."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from orchestrator.console import data
from orchestrator.console.data import Data
from orchestrator.console.guard import Guard
from orchestrator.drawing.svg import STYLE
from orchestrator.errors import IdivmError, NotFoundError, ServerError
from orchestrator.runtime.errors import explain
from orchestrator.runtime.monitoring.address import Address

_FOLDER = Path(__file__).parent

_PAGES = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined
)
_PAGES.filters.update(lag=data.lag, cost=data.cost, milliseconds=data.milliseconds, size=data.size)


class Pages:
    """Answers requests. Handlers are plain functions, which Starlette runs in threads."""

    def __init__(self, source: Data, *, allow_refresh: bool) -> None:
        """Take what the pages show, and whether they may refresh views."""
        self.source = source
        self.allow_refresh = allow_refresh

    def overview(self, request: Request) -> Response:
        """Answer with all views and tables; a request for `/live` gets the part that changes."""
        sample = self.source.monitor.sample()
        page = "live.html" if request.url.path == "/live" else "overview.html"
        counts = dict.fromkeys(data.WORST_FIRST, 0)
        for view in sample.views:
            counts[view.state] += 1
        return self._page(
            page,
            views=data.by_trouble(sample.views),
            tables=sample.tables,
            counts={state: count for state, count in counts.items() if count},
            picture=data.picture(data.overview(sample)),
        )

    def view(self, request: Request) -> Response:
        """Answer with the page of a view."""
        return self._page("view.html", page=self.source.page(request.path_params["view"]))

    def refresh(self, request: Request) -> Response:
        """Refresh a view, and show its page."""
        view: int = request.path_params["view"]
        if not self.allow_refresh:
            return self._failed("Start the console with --allow-refresh to refresh views.", 403)
        self.source.refresh(view)
        return RedirectResponse(f"/view/{view}", 303)

    async def what_if(self, request: Request) -> Response:
        """Answer with the plan of a query that a person typed."""
        from starlette.concurrency import run_in_threadpool

        form = await request.form() if request.method == "POST" else {}
        return await run_in_threadpool(self._what_if, str(form.get("query", "")))

    def _what_if(self, query: str) -> Response:
        explanation, error = None, None
        pictures: dict[str, Markup] = {}
        if query.strip():
            try:
                explanation, pictures = self.source.what_if(query)
            except IdivmError as reason:
                error = str(reason)
        return self._page(
            "what_if.html", query=query, explanation=explanation, pictures=pictures, error=error
        )

    def style(self, request: Request) -> Response:
        """Answer with the style sheet of pictures."""
        return Response(STYLE, media_type="text/css")

    def failed(self, request: Request, error: Exception) -> Response:
        """Answer a request that failed with a sentence."""
        if isinstance(error, psycopg.Error):
            error = explain(error, "Reading the database")
        return self._failed(str(error), 404 if isinstance(error, NotFoundError) else 500)

    def _failed(self, sentence: str, status: int) -> Response:
        return self._page("error.html", status, sentence=sentence)

    def _page(self, template: str, status: int = 200, **values: object) -> Response:
        text = _PAGES.get_template(template).render(allow_refresh=self.allow_refresh, **values)
        return HTMLResponse(text, status)


def application(source: Data, token: str, host: str, *, allow_refresh: bool) -> Starlette:
    """Return the web application."""
    pages = Pages(source, allow_refresh=allow_refresh)
    return Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/live", pages.overview),
            Route("/view/{view:int}", pages.view),
            Route("/view/{view:int}/refresh", pages.refresh, methods=["POST"]),
            Route("/what-if", pages.what_if, methods=["GET", "POST"]),
            Route("/graph.css", pages.style),
            Mount("/static", StaticFiles(directory=_FOLDER / "static")),
        ],
        middleware=[Middleware(Guard, token=token, host=host)],
        exception_handlers={IdivmError: pages.failed, psycopg.Error: pages.failed},
    )


@contextmanager
def served(
    source: Data, address: Address, *, token: str | None, allow_refresh: bool
) -> Iterator[str]:
    """Serve the console during a block, and give it the URL with the token."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(tuple(address))
        except OSError as error:
            raise ServerError(
                f"Cannot serve the console at {address.host}:{address.port}: {error.strerror}. Choose another port."
            ) from error
        token = token or secrets.token_urlsafe(24)
        app = application(source, token, address.host, allow_refresh=allow_refresh)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        host = "localhost" if address.host in ("127.0.0.1", "::1") else address.host
        try:
            yield f"http://{host}:{listener.getsockname()[1]}/?token={token}"
        finally:
            server.should_exit = True
            thread.join(10)
            source.close()
