"""Prompts and answers without a tokenizer."""

from tools.enginesim.text import (
    ANSWER_TOKEN_CHARS,
    WORDS,
    answer_text,
    block_hashes,
    count_tokens,
    natural_length,
    prompt_digest,
)


def test_four_bytes_are_one_token() -> None:
    assert [count_tokens(b"x" * size) for size in (0, 1, 4, 5, 400)] == [1, 1, 1, 2, 100]


def test_equal_prefixes_have_equal_leading_hashes() -> None:
    shared = b"a" * 64 * 10
    first, second = block_hashes(shared + b"b" * 64, "", 16), block_hashes(shared + b"c" * 64, "", 16)
    assert first[:10] == second[:10]
    assert first[10] != second[10]
    assert block_hashes(shared, "other", 16)[0] != first[0]


def test_answers_are_exact_per_prompt_and_part_under_other_numerics() -> None:
    digest = prompt_digest(b"question", "model")
    exact = answer_text(digest, 400, "")
    assert exact == answer_text(digest, 400, "")
    assert len(exact) == 400 * ANSWER_TOKEN_CHARS
    approximate = answer_text(digest, 400, "kv=fp8")
    assert approximate != exact
    assert approximate == answer_text(digest, 400, "kv=fp8")
    assert len(set(WORDS)) == 256


def test_divergence_comes_at_different_tokens() -> None:
    firsts = set()
    for number in range(30):
        digest = prompt_digest(b"%d" % number, "model")
        one, other = answer_text(digest, 200, ""), answer_text(digest, 200, "q=awq")
        firsts.add(next((at // 5 for at in range(1000) if one[at] != other[at]), None))
    assert len(firsts) > 15


def test_natural_lengths_spread_within_the_room() -> None:
    lengths = [natural_length(prompt_digest(b"%d" % number, "m"), 300) for number in range(200)]
    assert 1 <= min(lengths) < 60
    assert max(lengths) == 300
