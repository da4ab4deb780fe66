"""Files that a callback writes epoch by epoch or step by step, found again in their order."""

import re


def numbered_files(folder, name):
    """The files of a folder whose names differ in a number, with that number.

    Names are padded with zeros to some width, and a long run outgrows every width: as text,
    `epoch-10000.png` comes before `epoch-9500.png`.

    Args:
        folder: A `pathlib.Path`; it need not be there.
        name: What the files are called, `"epoch-{}.png"`.

    Returns:
        A list of pairs `(number, path)`, the smallest number first.
    """
    before, after = name.split("{}")
    pattern = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    found = ((pattern.fullmatch(path.name), path) for path in folder.glob(f"{before}*{after}"))
    return sorted((int(match[1]), path) for match, path in found if match)
