"""Who may use the console: requests with its token, from its own pages."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "idivm_console"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # With no-referrer, browsers would also hide the origin of forms from the console itself.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Answers requests of other sites, or without the token, in place of the application."""

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        """Take the application, its token and the host that it listens on."""
        self.app = app
        self.token = token
        self.names = {"localhost", socket.gethostname().lower(), host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = self._answer(Request(scope))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        await (answer or self.app)(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that the application must not see."""
        if not self._is_own_host(request.headers):
            # Another site may have pointed a name of its own to this address.
            return PlainTextResponse("Use the address that idivm printed.\n", 421)
        if not _is_same_origin(request):
            return PlainTextResponse("Another site sent this request.\n", 403)
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), self.token.encode()):
            # The token must not stay in the address, which the history and pictures of the screen show.
            rest = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
            path = request.url.path + (f"?{urlencode(rest)}" if rest else "")
            answer = RedirectResponse(f"/{path.lstrip('/')}", 303)
            answer.set_cookie(COOKIE, self.token, httponly=True, samesite="lax")
            return answer
        cookie = request.cookies.get(COOKIE, "")
        if not hmac.compare_digest(cookie.encode(), self.token.encode()):
            return PlainTextResponse(
                "Open the console with the address and token that idivm printed.\n", 403
            )
        return None

    def _is_own_host(self, headers: Headers) -> bool:
        try:
            name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
            if name.lower() in self.names:
                return True
            # No site can point an address to another one.
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _is_same_origin(request: Request) -> bool:
    """Whether a request comes from a page of the console, or from a person who typed the address."""
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    if origin is not None:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc == request.headers.get("host")
    if request.method not in ("GET", "HEAD"):
        return site == "same-origin"
    return site in (None, "none", "same-origin") or (
        site == "cross-site" and request.headers.get("sec-fetch-mode") == "navigate"
    )
