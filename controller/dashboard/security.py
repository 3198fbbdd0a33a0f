"""What every answer carries and what every form must bring: CSP and friends, same-origin checks. Used by `app.py`."""

from collections.abc import Mapping
from urllib.parse import urlsplit

CSP = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # `no-referrer` would turn the Origin of our own forms into `null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


def is_same_origin(headers: Mapping[str, str], external_url: str) -> bool:
    """Whether a form comes from our own page.

    Args:
        headers: of the request.
        external_url: where people reach the dashboard; "" takes the request's own Host.

    A browser sends Origin with every POST; without it the Referer counts; without both nobody can tell: no.
    """
    source = headers.get("origin") or headers.get("referer") or ""
    own_host = urlsplit(external_url).netloc if external_url else headers.get("host", "")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    parts = urlsplit(source)
    if not parts.netloc or parts.netloc.lower() != own_host.lower():
        return False
    return not external_url or parts.scheme == urlsplit(external_url).scheme
