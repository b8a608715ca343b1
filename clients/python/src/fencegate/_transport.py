"""What the drivers of both clients share: addresses, credentials, TLS, and how failures of httpx are read."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from typing import Any, Awaitable, Callable, NoReturn, Optional, Sequence, Union

import httpx

from ._protocol import NoAnswer, Request, Response, hide_lease_ids

Credential = Union[str, Callable[[], str]]
# OSError: httpx passes some exceptions of ssl on as they are.
FAILURES = (httpx.HTTPError, OSError, asyncio.TimeoutError)
CELL_MAX = PORT_MAX = 65_535
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
CREDENTIAL = re.compile("[!-~](?:[ -~]*[!-~])?")
# Any number of connections: a renewal must not queue behind calls that wait for a lease.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)
# The part of a request's time that connecting may take. httpx ends it then, before the client cancels the request:
# httpcore 0.16 keeps a connection that is cancelled while it is opened.
CONNECT_PART = 0.9


def remove_lease_ids(record: logging.LogRecord) -> bool:
    """Filters the log of httpcore, which has the headers of each answer at DEBUG, such as the Location of a lease."""
    message = record.getMessage()
    if "/v1/leases/" in message:
        record.msg, record.args = hide_lease_ids(message), None
    return True


logging.getLogger("httpcore.http11").addFilter(remove_lease_ids)


def is_credential(value: Any) -> bool:
    return isinstance(value, str) and CREDENTIAL.fullmatch(value) is not None


def is_gateway_url(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
        return (
            parsed.scheme in ("http", "https")
            and bool(parsed.host)
            and (parsed.port or 0) <= PORT_MAX
            and not (parsed.query or parsed.userinfo)
        )
    except (httpx.InvalidURL, ValueError):  # which of them, and at which member, depends on the version of httpx
        return False


class Transport:
    """The gateways, the credential and the cell of a client."""

    def __init__(
        self,
        url: Union[str, Sequence[str]],
        credential: Optional[Credential],
        cert: Optional[str],
        key: Optional[str],
        ca: Optional[str],
        cell: Optional[int],
    ) -> None:
        urls = [url] if isinstance(url, str) else url or []  # None: of a program that nobody type-checks
        self._urls = [each.rstrip("/") for each in urls]
        if not self._urls:
            raise ValueError("url: name at least one gateway")
        for each in self._urls:
            if not is_gateway_url(each):
                raise ValueError("url: has to be http://HOST[:PORT] or https://HOST[:PORT]")
        if not (credential is None or callable(credential) or is_credential(credential)):
            raise ValueError("credential: has to be printable ASCII text that neither begins nor ends with white space")
        if key is not None and cert is None:
            raise ValueError("key: there is no cert for it")
        if (cert or ca) and not all(each.startswith("https:") for each in self._urls):
            raise ValueError("url: cert and ca need https")
        if cell is not None and (not isinstance(cell, int) or isinstance(cell, bool) or not 0 <= cell <= CELL_MAX):
            raise ValueError(f"cell: has to be an integer from 0 to {CELL_MAX}")
        self._credential, self._cell = credential, cell
        self._current = 0
        self.gateways = len(self._urls)
        self.closed = False
        self.context = ssl.create_default_context(cafile=ca)
        if cert:
            self.context.load_cert_chain(cert, key)

    def begin(self, request: Request, trace: Optional[Callable[[str, Any], Awaitable[None]]] = None) -> httpx.Request:
        """Returns a request to the current gateway, for a transport of httpx and not for its Client, which logs URLs
        (they have lease ids), reads credentials from .netrc and follows proxies of the environment.

        trace: called with the name of each step of httpcore, such as connection.connect_tcp.started.
        """
        if self.closed:
            raise NoAnswer("the client is closed", sent=False, final=True)
        headers = {"Accept": "application/json", "User-Agent": "fencegate-python", **request.headers}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        if self._cell is not None:
            headers["Fencing-Cell"] = str(self._cell)
        if self._credential is not None:
            credential = self._credential if isinstance(self._credential, str) else self._credential()
            if not is_credential(credential):
                raise NoAnswer(
                    "the function that returns the credential returned something else than printable ASCII text",
                    sent=False,
                    final=True,
                )
            headers["Authorization"] = f"Bearer {credential}"
        gateway = self._current
        extensions = {
            "timeout": httpx.Timeout(request.timeout, connect=request.timeout * CONNECT_PART).as_dict(),
            "gateway": gateway,
            "trace": trace,
        }
        return httpx.Request(
            request.method,
            self._urls[gateway] + request.path,
            content=request.content(),
            headers=headers,
            extensions=extensions,
        )

    def end(self, sent: httpx.Request, answer: httpx.Response) -> Response:
        next_gateway = answer.status_code in (502, 503, 504) and self._use_next(sent)
        return Response(answer.status_code, answer.headers, answer.content, next_gateway)

    def fail(self, sent: httpx.Request, error: Exception) -> NoReturn:
        """Raises NoAnswer for a failure; the next request goes to the next gateway."""
        if isinstance(error, httpx.LocalProtocolError):  # of h11, before anything is sent; it cites the header's value
            raise NoAnswer("a header of the request cannot be sent", sent=False, final=True) from None
        self._use_next(sent)
        untrusted = isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error)
        raise NoAnswer(
            f"no answer from {sent.url.netloc.decode()}: {type(error).__name__}: {error}",
            sent=not untrusted and not isinstance(error, NEVER_SENT),
            untrusted=sent.extensions["gateway"] if untrusted else None,
        ) from error

    def _use_next(self, failed: httpx.Request) -> bool:
        """Lets the next request go to the gateway after that of the failed one, unless another thread has done so.
        Returns whether it goes to another gateway."""
        gateway: int = failed.extensions["gateway"]
        if gateway == self._current:
            self._current = (gateway + 1) % self.gateways
        return gateway != self._current
