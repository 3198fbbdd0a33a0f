"""Prompts in, answers out, without a tokenizer: 4 bytes of UTF-8 content are one token, rounded up over the whole
prompt.

An answer is a pure function of the prompt (and of what changes arithmetic, ``Settings.numerics``): two exact variants
say the same, approximate ones part at some token. Every answer token is a space and four letters, so text can be cut
by index.
"""

import math
from hashlib import blake2b, shake_128

BYTES_PER_TOKEN = 4
ANSWER_TOKEN_CHARS = 5
CONSONANTS, VOWELS = "bdfgklmnprstvzhj", "aeio"
WORDS = [" " + a + v + b + "e" for a in CONSONANTS[:8] for v in VOWELS for b in CONSONANTS[8:]]
DIVERGENCE_MEAN_TOKENS = 48.0
WRONG_MEAN_TOKENS = 6.0
LENGTH_MEDIAN_TOKENS = 110.0
LENGTH_SPREAD = 0.8


def count_tokens(prompt: bytes) -> int:
    """Prompt tokens of this content; at least 1."""
    return max(1, -(-len(prompt) // BYTES_PER_TOKEN))


def block_hashes(prompt: bytes, salt: object, block_size: int) -> list[int]:
    """Chained hashes of the full blocks of a prompt: equal lists mean equal prefixes (and equal ``salt``)."""
    width = block_size * BYTES_PER_TOKEN
    chained = hash(salt)
    hashes = []
    for start in range(0, len(prompt) - width + 1, width):
        chained = hash((chained, prompt[start : start + width]))
        hashes.append(chained)
    return hashes


def prompt_digest(prompt: bytes, salt: str) -> bytes:
    """What an answer depends on."""
    return blake2b(prompt, digest_size=16, key=blake2b(salt.encode(), digest_size=32).digest()).digest()


def uniform(digest: bytes, purpose: bytes) -> float:
    """A number in (0, 1) that belongs to this prompt and purpose."""
    return (int.from_bytes(shake_128(digest + purpose).digest(6), "big") + 0.5) / 2**48


def answer_text(digest: bytes, tokens: int, numerics: str, keeps: float = DIVERGENCE_MEAN_TOKENS) -> str:
    """The answer of ``tokens`` tokens; with other ``numerics`` the same first ``keeps`` (mean), another end."""
    indices = shake_128(digest).digest(tokens)
    if numerics:
        keep = int(-math.log(uniform(digest, b"diverge" + numerics.encode())) * keeps)
        if keep < tokens:
            indices = indices[:keep] + shake_128(digest + numerics.encode()).digest(tokens)[keep:]
    return "".join(map(WORDS.__getitem__, indices))


def natural_length(digest: bytes, longest: int) -> int:
    """Length of an answer that ends by itself: lognormal, drawn once per prompt, at most ``longest``."""
    first, second = uniform(digest, b"length"), uniform(digest, b"length2")
    normal = math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)
    return max(1, min(longest, round(LENGTH_MEDIAN_TOKENS * math.exp(LENGTH_SPREAD * normal))))
