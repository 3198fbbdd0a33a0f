"""The one way a command reports bad input: a line on stderr and exit code 2."""


class BadInput(Exception):
    """Input that a person must mend.

    Args:
        file: file name, object or option that is wrong (`-` for standard input).
        path: where inside it (JSON path, line and column, or "" for the whole).
        problem: what is wrong.
        remedy: what to do about it.
    """

    def __init__(self, file: str, path: str, problem: str, remedy: str) -> None:
        super().__init__(f"{file}: {path}: {problem}; {remedy}" if path else f"{file}: {problem}; {remedy}")
        self.file = file
        self.path = path
        self.problem = problem
        self.remedy = remedy
