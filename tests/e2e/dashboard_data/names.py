"""Names, times and other values that all of the scenario's parts share."""

import time

NAME = "llama-70b-chat"
ROLLOUT = f"chat/{NAME}"
XSS = '"><img src=x onerror=alert(1)>'
SECRET = "hf_abcDEF0123456789marker"
TENANTS = ("acme", "globex", "initech", "other")
BUCKETS = ("0-512", "513-2048", "2049+")
EVIDENCE = "9f2c61d07ab34e18"
NOW = time.time()


def stamp(seconds_ago: float) -> str:
    """RFC 3339 time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - seconds_ago))
