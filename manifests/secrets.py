"""Secrets: told by flag name, variable name or look of the value; never printed, never hashed in the clear.

Called by the importers before anything is stored in a manifest. A name that merely contains TOKEN because it counts
tokens (``MAX_TOTAL_TOKENS``, ``TOKENIZER``) is not a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from manifests.model import REDACTED

_ENV_SECRET = re.compile(
    r"(?:SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|APIKEY|TOKEN(?!S?(?:_|$)?(?:IZE|IZER))|_KEY$|^KEY$|_PAT$)",
    re.IGNORECASE,
)
_COUNTS_TOKENS = re.compile(
    r"TOKENS(?:_|$)|TOKENIZ|TOKEN_(?:BUDGET|LIMIT|THRESHOLD|USAGE|COUNT|PENALTY|RATIO|IDS?$)", re.IGNORECASE
)
_NUMBER = re.compile(r"^\s*-?[\d.]+[kKmMgG]?\s*$")
_FLAG_SECRET = re.compile(
    r"^(?:.*[-_])?(?:api[-_]?keys?|secret(?:[-_].*)?|password|passphrase|credentials?|access[-_]key(?:[-_]id)?|token"
    r"|(?:api|auth|access|bearer|hf|secret)[-_]tokens)$"
)
_FLAG_COUNTS = re.compile(
    r"(?:per|first|next|inter|output|input|prompt|draft|last|spec|max|min|num|n|prefill|batched|queued|scheduled)[-_]"
)
_VALUE_SECRET = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{6,}|sk-[A-Za-z0-9_-]{6,}|gh[pousr]_[A-Za-z0-9]{16,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}|xox[abp]-[\w-]{10,}"
    r"|nvapi-[\w-]{16,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_BEARER = re.compile(r"(\b(?:Bearer|Basic)\s+)[^\s'\"]{6,}", re.IGNORECASE)
_USERINFO = re.compile(r"(\b[a-zA-Z][\w+.-]{0,30}://[^\s/:@]{0,256}:)[^\s/@]{1,512}(?=@)")
_VALUE = re.compile(r"""(?P<value>'[^'\n]*'|"(?:[^"\\\n]|\\.)*"|[^\s'",;&|)}\]]+)""")
_FLAG_HEAD = re.compile(r"(?<![\w.-])--?(?P<flag>[A-Za-z][\w.-]{0,127})(?:=|[ \t]+)")
_ENV_HEAD = re.compile(r"(?<![\w-])(?P<env>[A-Za-z_]\w{0,255})=")
_KEY_HEAD = re.compile(r"(?<![\w.-])(?P<key>[A-Za-z_][\w.-]{0,127})\\?[\"']?[ \t]*:[ \t]*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TOKEN_OF_TEXT = re.compile(
    r"(?:eos|bos|pad|unk|sep|cls|mask|stop|image|audio|video|think|special|added|decoder)[-_]token"
)


def is_secret_env(name: str, value: object = None) -> bool:
    """Whether a variable's name says that its value is a secret."""
    if not _ENV_SECRET.search(name):
        return False
    if _COUNTS_TOKENS.search(name) and not re.search(r"SECRET|PASSW|_KEY$|CREDENTIAL", name, re.IGNORECASE):
        return (
            isinstance(value, str)
            and bool(value)
            and not _NUMBER.match(value)
            and not re.search(r"TOKENIZ", name, re.IGNORECASE)
        )
    return not (value is not None and re.fullmatch(r"(?i)true|false|yes|no|\d{1,5}(?:\.\d+)?", str(value).strip()))


def is_secret_flag(name: str) -> bool:
    """Whether a flag's name (without dashes) says that its value is a secret; a count of tokens is none."""
    lowered = name.lower()
    if not _FLAG_SECRET.match(lowered):
        return False
    counts = lowered.endswith("token") and _FLAG_COUNTS.search(lowered)
    return not counts and not lowered.startswith(("allow-", "allow_"))


def redact_text(text: str) -> str:
    """The text without anything that looks like a credential, whatever it is called."""
    text = _USERINFO.sub(lambda match: match[1] + REDACTED, text)
    text = _BEARER.sub(lambda match: match[1] + REDACTED, text)
    return _VALUE_SECRET.sub(REDACTED, text)


def is_secret_key(name: str, value: object = None) -> bool:
    """Whether a key of a JSON, YAML or query text says that its value is a secret."""
    lowered = _CAMEL.sub("-", name.rsplit(".", 1)[-1]).lower()
    if _TOKEN_OF_TEXT.search(lowered) or lowered == "key" or lowered.endswith(("-name", "-key-name", "-ref")):
        return False
    plain_number = value is not None and _NUMBER.match(str(value))
    return not plain_number and (is_secret_flag(lowered) or (name.isupper() and is_secret_env(name, value)))


def redact_script(text: str) -> str:
    """A shell text or file without secrets: by the names of flags, variables and keys in it, and by the look of
    values."""
    for pattern, is_secret in ((_FLAG_HEAD, _flag_secret), (_ENV_HEAD, _env_secret), (_KEY_HEAD, is_secret_key)):
        text = _hide(text, pattern, is_secret)
    return redact_text(text)


def _hide(text: str, head: re.Pattern[str], is_secret: Callable[[str, object], bool]) -> str:
    """The text with the value behind every secret head replaced; one pass, whatever the text."""
    out: list[str] = []
    done = 0
    for match in head.finditer(text):
        if match.start() < done or not is_secret(match[1], None):
            continue
        found = _VALUE.match(text, match.end())
        value = found["value"].strip("'\"\\") if found else ""
        if found is None or not value or value.startswith(("$", "<")) or not is_secret(match[1], value):
            continue
        quote = found["value"][0] if found["value"][0] in "'\"" else ""
        out += [text[done : found.start()], quote, REDACTED, quote]
        done = found.end()
    return "".join([*out, text[done:]])


def _flag_secret(name: str, value: object) -> bool:
    return is_secret_flag(name)


def _env_secret(name: str, value: object) -> bool:
    return is_secret_env(name, value) or is_secret_key(name, value)


def scrub(value: Any, known: Collection[str] = ()) -> Any:
    """A value of any depth without secrets: by the names of its keys, by the look of its texts, and ``known`` ones."""
    if isinstance(value, Mapping):
        return {
            key: REDACTED
            if isinstance(item, str) and item and not item.startswith(("$", "<")) and is_secret_key(str(key), item)
            else scrub(item, known)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(scrub(item, known) for item in value)
    if not isinstance(value, str):
        return value
    text = redact_script(value)
    for secret in sorted(known, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return value if text == value else text


def salted_hash(value: str, salt: bytes) -> str:
    """HMAC-SHA-256 of a secret, hex: says "changed" without saying what; useless without the salt."""
    return hmac.new(salt, value.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
