"""How large a RunManifest is, in the three measures that limit it. Pure; called by freezing.py and preflight.py.

The API server holds it as JSON with `<`, `>` and `&` escaped (chat templates are full of them), etcd refuses a request
above 1.5 MiB, and the API server a body above 3 MiB, in which our client escapes every character that is not ASCII.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LARGEST_MANIFEST_BYTES = 2**20
"""What a RunManifest may hold; the two limits below are others', less room for metadata and field managers."""
LARGEST_STORED_BYTES = 1536 * 1024 - 64 * 1024
LARGEST_SENT_BYTES = 3 * 2**20 - 64 * 1024

_ESCAPED = re.compile("[<>&\u2028\u2029]")
_ESCAPE_BYTES = 6


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of an object's spec: as UTF-8 JSON, as etcd holds it, as it is sent."""

    content_bytes: int = 0
    stored_bytes: int = 0
    sent_bytes: int = 0

    def excess(self) -> str:
        """Which limit it breaks, in words; "" for none."""
        limits = (
            (self.content_bytes, LARGEST_MANIFEST_BYTES, "bytes"),
            (self.stored_bytes, LARGEST_STORED_BYTES, "bytes as etcd holds it (<, > and & take six)"),
            (self.sent_bytes, LARGEST_SENT_BYTES, "bytes as it is sent (characters beyond ASCII take six)"),
        )
        broken = ((size, what, limit) for size, limit, what in limits if size > limit)
        return next((f"{size:,} {what}, and at most {limit:,} can be stored" for size, what, limit in broken), "")


def size_of(spec: Mapping[str, Any]) -> Size:
    """The size of an object's spec."""
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    content = len(text.encode())
    stored = content + sum(_ESCAPE_BYTES - len(found[0].encode()) for found in _ESCAPED.finditer(text))
    return Size(content, stored, len(json.dumps(spec)))


def largest_parts(config_maps: Mapping[str, Mapping[str, str]], count: int = 3) -> str:
    """The largest ConfigMaps, in words; "" where there are none."""
    sizes = {name: sum(len(text.encode()) for text in data.values()) for name, data in config_maps.items()}
    chosen = sorted(sizes, key=lambda name: -sizes[name])[:count]
    return ", ".join(f"ConfigMap {name} ({sizes[name]:,} bytes)" for name in chosen)
