"""How an answer fits a terminal."""

from controller.cli.output import fit

LINE = "    max-num-seqs goes from 64 to 96. It acts on which requests run together, and when (scheduler)"


def test_a_program_gets_whole_lines() -> None:
    assert fit(LINE, None) == LINE


def test_long_lines_go_on_below_their_beginning() -> None:
    fitted = fit(f"short\n{LINE}", 50).split("\n")
    assert fitted[0] == "short" and max(map(len, fitted)) <= 50
    assert all(line.startswith("        ") for line in fitted[2:])
    assert " ".join(" ".join(fitted[1:]).split()) == " ".join(LINE.split())


def test_colours_and_words_longer_than_the_terminal_stay_whole() -> None:
    coloured = "\x1b[1m" + "x" * 38 + "\x1b[0m"
    assert fit(coloured, 40) == coloured
    assert "y" * 60 in fit(f"see {'y' * 60}", 40)
