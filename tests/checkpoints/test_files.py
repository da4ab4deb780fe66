"""Folders on disk: every format of weights, broken files, the hub, and saving all or nothing."""

import json
import os
import pickle

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from kerasmodels.checkpoints import files


@pytest.fixture
def tensors(rng):
    return {
        "a.weight": rng.normal(size=(3, 2)).astype("float32"),
        "b.weight": rng.normal(size=(4,)).astype("float16"),
        "c.weight": rng.normal(size=(1, 2)).astype(ml_dtypes.bfloat16),
    }


def write_shards(folder, tensors, suffix, write):
    names, weight_map = sorted(tensors), {}
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    for i, part in enumerate((names[:1], names[1:])):
        shard = f"{stem}-0000{i + 1}-of-00002.{suffix}"
        write({n: tensors[n] for n in part}, folder / shard)
        weight_map.update(dict.fromkeys(part, shard))
    index = folder / f"{stem}.{suffix}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def write_torch(tensors, path, **kwargs):
    import torch

    torch.save(
        {
            n: torch.tensor(a.astype("float32")).to(getattr(torch, a.dtype.name))
            for n, a in tensors.items()
        },
        path,
        **kwargs,
    )


def write_legacy(tensors, path):
    write_torch(tensors, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("kind", ["safetensors", "shards", "bin", "legacy bin", "bin shards"])
def test_every_format_of_weights_is_read(tmp_path, tensors, kind):
    if kind == "safetensors":
        save_file(tensors, tmp_path / "model.safetensors")
    elif kind == "shards":
        write_shards(tmp_path, tensors, "safetensors", save_file)
    elif kind == "bin shards":
        write_shards(tmp_path, tensors, "bin", write_torch)
    else:
        write = write_torch if kind == "bin" else write_legacy
        write(tensors, tmp_path / "pytorch_model.bin")
    with files.TensorFiles(tmp_path) as read:
        assert read.shapes == {name: array.shape for name, array in tensors.items()}
        for name, array in tensors.items():
            np.testing.assert_array_equal(
                read.read(name).astype("float32"), array.astype("float32")
            )


def test_safetensors_come_before_a_bin(tmp_path, tensors):
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"never read")
    with files.TensorFiles(tmp_path) as read:
        assert read.path.name == "model.safetensors"


@pytest.mark.parametrize("kept", [0, 4, 60, -3])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_truncated_file_is_named(tmp_path, tensors, name, kept):
    path = tmp_path / name
    (save_file if path.suffix == ".safetensors" else write_torch)(tensors, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=f"{name}.*(truncated|corrupt)"):
        files.TensorFiles(tmp_path)


class Evil:
    def __reduce__(self):
        return (os.system, ("true",))


@pytest.mark.parametrize("content", [{"a": Evil()}, Evil()])
def test_nothing_but_weights_is_unpickled(tmp_path, content):
    import torch

    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pytorch_model.bin.*more than weights"):
        files.TensorFiles(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="pytorch_model.bin.*more than weights"):
        files.TensorFiles(tmp_path)


@pytest.mark.parametrize("content", [[1, 2], {"a": 3}])
def test_a_bin_holds_tensors_by_name(tmp_path, content):
    import torch

    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="dictionary of tensors"):
        files.TensorFiles(tmp_path)


def test_a_bin_without_torch_says_what_is_needed(tmp_path, tensors, monkeypatch):
    write_torch(tensors, tmp_path / "pytorch_model.bin")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ImportError, match=r"PyTorch.*kerasmodels\[torch\]"):
        files.TensorFiles(tmp_path)


def test_missing_weights_and_shards(tmp_path, tensors):
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        files.TensorFiles(tmp_path)
    write_shards(tmp_path, tensors, "safetensors", save_file)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002.safetensors"):
        files.TensorFiles(tmp_path)


@pytest.mark.parametrize("index", [{}, {"weight_map": {"a": "../x.safetensors"}}])
def test_an_index_names_shards_of_its_folder(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="index.json"):
        files.TensorFiles(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe"])
def test_json_that_is_none(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match="config.json"):
        files.read_json(tmp_path / "config.json")


# === Finding a folder ===


def test_the_hub_is_asked_for_what_is_needed(tmp_path, monkeypatch):
    import huggingface_hub

    calls = []

    def snapshot_download(repository, allow_patterns):
        calls.append((repository, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    (tmp_path / "model.safetensors").touch()
    assert files.find_folder("hf://org/name", extra_files=["source.spm"]) == tmp_path
    ((repository, patterns),) = calls
    assert repository == "org/name"
    assert {"config.json", "model.safetensors", "source.spm"} <= set(patterns)
    assert not any("bin" in pattern for pattern in patterns)
    (tmp_path / "model.safetensors").unlink()
    files.find_folder("hf://org/name")
    assert "pytorch_model.bin" in calls[-1][1]
    files.find_folder("hf://org/name", load_weights=False)
    assert not any("model" in pattern for pattern in calls[-1][1])


def test_no_such_folder_or_repository(tmp_path, monkeypatch):
    import huggingface_hub

    def snapshot_download(repository, allow_patterns):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(FileNotFoundError, match="hf://org/name.*no connection"):
        files.find_folder("hf://org/name")
    for name in ("hf://name", "hf://a/b/c", "hf://", "hf:///b"):
        with pytest.raises(ValueError, match="organisation/name"):
            files.find_folder(name)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        files.find_folder(tmp_path / "nowhere")


def test_without_huggingface_hub(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"kerasmodels\[hub\]"):
        files.find_folder("hf://org/name")


# === Replacing files ===


def content_of(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("name", ["new", "deep/er/new"])
def test_a_new_folder_appears_whole(tmp_path, name):
    with files.replacing(tmp_path / name) as staging:
        files.write_json(staging / "config.json", {"b": 1})
        files.write_tensors(staging / "model.safetensors", {"a": np.ones((2, 3)).T})
        assert not (tmp_path / name).exists()
    folder = tmp_path / name
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    with files.TensorFiles(folder) as read:
        np.testing.assert_array_equal(read.read("a"), np.ones((3, 2)))
    (tmp_path / "plain").touch()
    for path in folder.iterdir():  # others may read them as any file of the user's
        assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_other_files_stay(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "config.json").write_text("old")
    with files.replacing(tmp_path) as staging:
        (staging / "config.json").write_text("new")
    assert content_of(tmp_path) == {"README.md": b"mine", "config.json": b"new"}


def test_a_failed_save_leaves_everything_as_it_was(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text("old")
    for name in ("old", "new"):
        with (
            pytest.raises(OSError, match="disk full"),
            files.replacing(tmp_path / name) as staging,
        ):
            (staging / "config.json").write_text("half")
            raise OSError("disk full")
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert content_of(tmp_path / "old") == {"config.json": b"old"}


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="is a file"), files.replacing(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "z.json").mkdir()
    with (
        pytest.raises(ValueError, match="z.json"),
        files.replacing(tmp_path) as staging,
    ):
        (staging / "a.json").touch()
        (staging / "z.json").touch()
    assert not (tmp_path / "a.json").exists()
