"""Reading sentence pairs: one file of tab-separated lines, or two files aligned line by line.

Both readers are strict, because a corpus that is out of step by one line still trains, and learns
nothing. What they have in common:

- Files are UTF-8, with or without a byte order mark.
- A line ends with a line feed, or carriage return and line feed; a carriage return elsewhere is an
  error. Other Unicode line separators are ordinary text: splitting on them is how two aligned files
  get out of step.
- White space around a sentence is removed.
- Where both sentences are blank the line is skipped. Where only one is, the line is an error,
  or is skipped with `on_empty="skip"`.
"""

from collections.abc import Iterator
from pathlib import Path

__all__ = ["read_parallel", "read_tsv"]


def read_lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 file without their ends."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}: files must be UTF-8. Received: {error}."
                ) from error
            text = text.removesuffix("\n").rstrip("\r")
            if "\r" in text:  # lines of an old Mac, which would be one
                raise ValueError(
                    f"{path}, line {number}: a carriage return must stand at the end of a line, "
                    f"before the line feed. Received: {text[:80]!r}."
                )
            yield text


def _collect(rows, on_empty: str) -> tuple[list[str], list[str]]:
    """Splits (where, source, target) rows into two lists, following the rule for blank lines."""
    sources, targets = [], []
    for where, source, target in rows:
        if source and target:
            sources.append(source)
            targets.append(target)
        elif (source or target) and on_empty == "error":
            side = "target" if source else "source"
            raise ValueError(
                f"{where}: the {side} sentence is empty and its partner is not. Received: "
                f'{source or target!r}. Pass on_empty="skip" to leave such lines out.'
            )
    return sources, targets


def _check_on_empty(on_empty: str) -> None:
    if on_empty not in ("error", "skip"):
        raise ValueError(f'`on_empty` must be "error" or "skip". Received: {on_empty!r}.')


def read_tsv(
    path: str | Path,
    columns: tuple[int, int] | None = None,
    on_empty: str = "error",
) -> tuple[list[str], list[str]]:
    r"""Reads sentence pairs from a file of tab-separated lines.

    There is no quoting and no escape: a quotation mark is a character like any other.

    Args:
        path: A UTF-8 file with one pair a line.
        columns: The columns of source and target, counted from 0; a line may then have more
            columns than these. `None`: every line has exactly two, source and target.
        on_empty: What to do with a line on which one of the two sentences is blank: `"error"`
            or `"skip"`. A line on which both are blank is always skipped.

    Returns:
        Two lists of strings of the same length: sources and targets.

    Raises:
        ValueError: A line has too few or too many columns, is not UTF-8, or has one blank
            sentence (each with the line number); an argument is not one of those allowed.
        FileNotFoundError: There is no such file.

    Example:
    ```python
    from pathlib import Path
    from kerasmodels import data

    Path("pairs.tsv").write_text("go\tva\nthank you\tmerci\n", encoding="utf-8")
    sources, targets = data.read_tsv("pairs.tsv")
    print(targets)  # ['va', 'merci']
    ```
    """
    _check_on_empty(on_empty)
    if columns is not None and (len(columns) != 2 or min(columns) < 0):
        raise ValueError(
            "`columns` must be two column numbers counted from 0, those of source and target. "
            f"Received: columns={columns}."
        )

    def rows():
        for number, line in enumerate(read_lines(path), start=1):
            fields = [field.strip() for field in line.split("\t")]
            if not any(fields):
                continue
            if columns is None and len(fields) != 2:
                raise ValueError(
                    f"{path}, line {number}: expected 2 tab-separated columns. Received: "
                    f"{len(fields)} in {line!r}. Name two of them with `columns` if the file "
                    "has more."
                )
            first, second = columns or (0, 1)
            if len(fields) <= max(first, second):
                raise ValueError(
                    f"{path}, line {number}: expected at least {max(first, second) + 1} "
                    f"tab-separated columns for columns={columns}. Received: {len(fields)} in "
                    f"{line!r}."
                )
            yield f"{path}, line {number}", fields[first], fields[second]

    return _collect(rows(), on_empty)


def read_parallel(
    source_path: str | Path,
    target_path: str | Path,
    on_empty: str = "error",
) -> tuple[list[str], list[str]]:
    r"""Reads sentence pairs from two files of which line n of one belongs to line n of the other.

    Args:
        source_path: A UTF-8 file with one source sentence a line.
        target_path: A UTF-8 file with one target sentence a line.
        on_empty: What to do with a line that is blank in one file only: `"error"` or `"skip"`.
            A line that is blank in both is always skipped.

    Returns:
        Two lists of strings of the same length: sources and targets.

    Raises:
        ValueError: The files differ in their number of lines; a line is not UTF-8 or is blank
            in one file only (with the line number); `on_empty` is not one of those allowed.
        FileNotFoundError: There is no such file.

    Example:
    ```python
    from pathlib import Path
    from kerasmodels import data

    Path("train.en").write_text("go\nthank you\n", encoding="utf-8")
    Path("train.fr").write_text("va\nmerci\n", encoding="utf-8")
    sources, targets = data.read_parallel("train.en", "train.fr")
    print(sources)  # ['go', 'thank you']
    ```
    """
    _check_on_empty(on_empty)
    sources = [line.strip() for line in read_lines(source_path)]
    targets = [line.strip() for line in read_lines(target_path)]
    if len(sources) != len(targets):
        raise ValueError(
            "Aligned files must have the same number of lines. Received: "
            f"{source_path} with {len(sources)} and {target_path} with {len(targets)}."
        )
    rows = (
        (f"{source_path} and {target_path}, line {number}", source, target)
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), start=1)
    )
    return _collect(rows, on_empty)
