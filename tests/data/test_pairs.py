import pytest

from kerasmodels import data


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def test_tsv(tmp_path):
    path = write(
        tmp_path / "pairs.tsv", '\ufeffgo\tva\n\n  thank you \t"merci"\r\n\t\nça va\t\u4f60\u597d'
    )
    assert data.read_tsv(path) == (["go", "thank you", "ça va"], ["va", '"merci"', "\u4f60\u597d"])


def test_tsv_columns(tmp_path):
    path = write(tmp_path / "pairs.tsv", "1\tgo\tva\tCC-BY\n2\tno\tnon\n")
    assert data.read_tsv(path, columns=(1, 2)) == (["go", "no"], ["va", "non"])
    assert data.read_tsv(path, columns=(2, 0)) == (["va", "non"], ["1", "2"])
    with pytest.raises(ValueError, match=r"line 2: expected at least 4 .*Received: 3"):
        data.read_tsv(path, columns=(1, 3))
    for columns in ((1,), (0, -1), (0, 1, 2)):
        with pytest.raises(ValueError, match="columns"):
            data.read_tsv(path, columns=columns)


@pytest.mark.parametrize(
    "content, message",
    [
        ("a\tb\n\nc d\n", r"line 3: expected 2 .*Received: 1 in 'c d'"),
        ("a\tb\na\tb\tc\n", r"line 2: expected 2 .*Received: 3"),
        (b"a\tb\na\t\xff\n", r"line 2: files must be UTF-8"),
        (b"a\tb\rc\td\r", r"line 1: a carriage return must stand at the end"),
        ("a\tb\n \tb\n", r"line 2: the source sentence is empty"),
        ("a\tb\na\t \n", r"line 2: the target sentence is empty"),
    ],
)
def test_tsv_malformed(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        data.read_tsv(write(tmp_path / "pairs.tsv", content))


def test_parallel(tmp_path):
    # Line separators of Unicode and form feeds are text: both files keep three lines.
    source = write(tmp_path / "train.en", "one\u2028still one\n\n two\x0b\x85 \n")
    target = write(tmp_path / "train.de", "eins\n \r\nzwei\r\n")
    assert data.read_parallel(source, target) == (["one\u2028still one", "two"], ["eins", "zwei"])


def test_parallel_malformed(tmp_path):
    source = write(tmp_path / "a", "one\ntwo\nthree\n")
    with pytest.raises(ValueError, match=r"same number of lines.*a with 3 .*b with 2"):
        data.read_parallel(source, write(tmp_path / "b", "eins\nzwei\n"))
    with pytest.raises(ValueError, match=r"line 2: the target sentence is empty.*'two'"):
        data.read_parallel(source, write(tmp_path / "b", "eins\n\ndrei"))
    with pytest.raises(ValueError, match=r"b, line 3: files must be UTF-8"):
        data.read_parallel(source, write(tmp_path / "b", b"eins\nzwei\ndr\xe9i"))
    with pytest.raises(FileNotFoundError):
        data.read_parallel(source, tmp_path / "nothing")


def test_on_empty(tmp_path):
    path = write(tmp_path / "pairs.tsv", "a\tb\nc\t\n\td\ne\tf\n")
    assert data.read_tsv(path, on_empty="skip") == (["a", "e"], ["b", "f"])
    a, b = write(tmp_path / "a", "a\nc\n\ne"), write(tmp_path / "b", "b\n\nd\nf")
    assert data.read_parallel(a, b, on_empty="skip") == (["a", "e"], ["b", "f"])
    with pytest.raises(ValueError, match="on_empty"):
        data.read_tsv(path, on_empty="keep")
