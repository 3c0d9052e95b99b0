"""The one exception that means "the input is wrong", told so that its reader can mend it."""

from __future__ import annotations

from os import PathLike


class InputError(ValueError):
    """Something the user gave cannot be used.

    ``str(error)`` is a single line: where (file, row, field), what is wrong, and what would be right. The command line
    prints it and exits with status 2; no traceback is shown.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | PathLike[str] | None = None,
        row: int | None = None,
        field: str | None = None,
        expected: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.row = row
        self.field = field
        self.expected = expected
        where = []
        if self.file is not None:
            where.append(self.file)
        if row is not None:
            where.append(f"row {row}")
        if field is not None:
            where.append(f"field {field!r}")
        text = f"{', '.join(where)}: {problem}" if where else problem
        if expected is not None:
            text += f"; expected {expected}"
        super().__init__(" ".join(text.split()))
