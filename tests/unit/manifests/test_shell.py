"""What a shell text would run, by reading alone."""

import time

import pytest

from manifests.shell import Script, Token, read_script


def run(text: str, args: tuple[str, ...] = (), files: dict[str, str] | None = None, **env: str) -> Script:
    return read_script(
        text, {name: Token(value) for name, value in env.items()}, tuple(Token(a) for a in args), (files or {}).get
    )


def words(script: Script, index: int = -1) -> list[str]:
    return [word.text for word in script.commands[index].words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm serve 'org/m' --a 1 \\\n  --b 2", ["vllm", "serve", "org/m", "--a", "1", "--b", "2"]),
        ('x "a b" c\\ d $\'t\\tq\' "e\\"f"', ["x", "a b", "c d", "t\tq", 'e"f']),
        ("x # comment --y", ["x"]),
        ("A=1 B=2 x --c", ["x", "--c"]),
        ("x --json '{\n \"a\": 1\n}'", ["x", "--json", '{\n "a": 1\n}']),
        ("sleep 1 && x a; y b", ["y", "b"]),
        ("eval \"x '$A'\"", ["x", "z"]),
        ('exec x "$@"', ["x", "p", "q r"]),
        ("x ${B:-default} ${A:-other} ${A:+set}", ["x", "default", "z", "set"]),
        ("x $((2 * 3 + 1)) $(( N / 2 ))", ["x", "7", "4"]),
        ('L=(--a 1)\nL+=(--b "$A c")\nx "${L[@]}" ${#L[@]}', ["x", "--a", "1", "--b", "z c", "4"]),
        ("set -- m n; x $1 $2 $#", ["x", "m", "n", "2"]),
        ('f() { x --role "$1"; }\nf decode', ["x", "--role", "decode"]),
        ("x $(echo hi) `printf %s-%s a b`", ["x", "hi", "a-b"]),
        ("F=model.tar.gz; x ${F%.gz} ${F##*.} ${F/model/m} ${#F}", ["x", "model.tar", "gz", "m.tar.gz", "12"]),
        ('if [ "$A" = z ]; then x yes; else x no; fi', ["x", "yes"]),
        ("if [[ -z $A ]]; then x empty; elif [ $N -gt 5 ]; then x big; else x small; fi", ["x", "big"]),
        ("case $A in y) x y;; z|w) x z;; esac", ["x", "z"]),
        ("for i in 1 2; do x $i; done", ["x", "2"]),
        ("read -r -a ARR <<< '--a --b'\nx \"${ARR[@]}\"", ["x", "--a", "--b"]),
        ('P="--a 1"; x $P "$P"', ["x", "--a", "1", "--a 1"]),
    ],
)
def test_words_of_the_last_command(text: str, expected: list[str]) -> None:
    assert words(run(text, ("sh", "p", "q r"), A="z", N="8")) == expected


def test_what_depends_on_run_time_stays_an_expression() -> None:
    script = run('V="$(nvidia-smi -L)"; x --n "$V" --r $RANK')
    assert [(w.text, w.known) for w in script.commands[-1].words] == [
        ("x", True),
        ("--n", True),
        ("$(nvidia-smi -L)", False),
        ("--r", True),
        ("$RANK", False),
    ]


def test_a_condition_that_nobody_can_decide_leaves_both_branches_uncertain() -> None:
    script = run("if grep -q x /proc/cpuinfo; then MODE=a; x one; else MODE=b; x two; fi\ny $MODE")
    assert [command.certain for command in script.commands] == [False, False, True]
    assert not script.commands[-1].words[1].known


def test_what_follows_exec_never_runs() -> None:
    assert [command.words[0].text for command in run("exec x; y").commands] == ["x"]


def test_a_guard_that_exits_does_not_end_the_script() -> None:
    assert words(run("test -r /m || { echo missing; exit 1; }\nx a")) == ["x", "a"]


def test_heredocs_write_files_quoted_ones_as_they_are() -> None:
    script = run("cat > /a <<'E'\nk: $X\nE\ncat <<E > /b\nk: $X \\$Y\nE\necho one > /c; echo two >> /c", X="v")
    assert script.files == {"/a": "k: $X\n", "/b": "k: v $Y\n", "/c": "one\ntwo\n"}


def test_scripts_are_followed_and_prefix_variables_belong_to_one_command() -> None:
    script = run("source /lib.sh\nMODE=fast x $LIB\ny", files={"/lib.sh": "export LIB=1"})
    assert words(script, 0) == ["x", "1"]
    assert script.commands[0].env["MODE"].text == "fast" and "MODE" not in script.commands[1].env
    assert script.commands[1].env["LIB"].text == "1"


def test_a_lost_continuation_is_reported() -> None:
    script = run("x --a 1 \\ \n --b 2")
    assert [code for code, _, _ in script.problems] == ["lost-continuation"]
    assert words(script) == ["--b", "2"]


def test_lines_are_those_of_the_text() -> None:
    script = run("# one\nx \\\n  --a \\\n  --b")
    assert [word.line for word in script.commands[0].words] == [2, 3, 4]


def test_background_processes_are_marked() -> None:
    assert [command.background for command in run("ray start --head & x").commands] == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "f() { f; }; f",
        "while true; do x; done",
        "eval 'eval \"eval x\"'",
        "x " + "$(" * 200 + ")" * 200,
        "x ${" * 500,
        "for i in "
        + " ".join(str(n) for n in range(60))
        + "; do for j in 1 2 3 4 5 6 7 8 9; do for k in 1 2 3 4 5 6 7 8 9; do x $i$j$k; done; done; done",
        "x $((9**9**9)) $((1/0)) $((1 <<< 2))",
        "\0\x01 x \ud800".encode("utf-8", "replace").decode(),
        "cat <<E\n" + "a" * 200_000,
        "'" + "a" * 5000,
    ],
)
def test_hostile_texts_end_quickly_and_quietly(text: str) -> None:
    start = time.process_time()
    assert isinstance(run(text), Script)
    assert time.process_time() - start < 5
