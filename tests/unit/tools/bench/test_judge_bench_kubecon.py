"""The table of the KubeCon A/B runs in the docs is what the command prints."""

from pathlib import Path

from tools.bench.judge.kubecon import BEGIN, DOCUMENT, END, rows_of, table


def test_the_table_in_the_docs_is_the_command_s(shared_data: Path) -> None:
    text = (Path(__file__).parents[4] / DOCUMENT).read_text(encoding="utf-8")
    assert text.split(BEGIN, 1)[1].split(END, 1)[0].strip() == table(shared_data / "traces" / "kubecon-na-2025-ab")


def test_which_variant_passes_at_which_load(shared_data: Path) -> None:
    found = {(r[0].strip("`"), r[1]): r[2] for r in rows_of(shared_data / "traces" / "kubecon-na-2025-ab")}
    passes = {(v, load) for (v, load), verdict in found.items() if verdict == "PASS"}
    assert passes == {
        ("vllm", "31.4 req/s"),
        ("vllm", "61.8 req/s"),
        ("vllm", "92.2 req/s"),
        ("vllm+batch_size", "38 req/s"),
        ("vllm+batch_size", "74.9 req/s"),
        ("vllm+v0_engine", "40.2 req/s"),
    }
    assert found["vllm+v0_engine", "79.4 req/s"] == "FAIL" and found["vllm", "1 req/s"] == "INCONCLUSIVE"
