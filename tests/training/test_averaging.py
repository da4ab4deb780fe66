import os
import pathlib

import keras
import numpy as np
import pytest

from kerasmodels.training import AdamW, KeepLastCheckpoints, average_checkpoints


def make_model(units=3, seed=0, compiled=True):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(units, name="first"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dropout(0.1),  # a seed: integer state
            keras.layers.Dense(1, name="last"),
        ]
    )
    if compiled:
        model.compile(AdamW(0.01), loss="mse", run_eagerly=True)  # quicker than compiling
    return model


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 4)).astype("float32"), RNG.normal(size=(12, 1)).astype("float32")


def files_of_a_run(folder, suffix, count=3):
    model, paths, weights = make_model(), [], []
    for i in range(count):
        model.fit(X, Y, batch_size=6, verbose=0)
        paths.append(folder / f"{i}{suffix}")
        (model.save if suffix == ".keras" else model.save_weights)(paths[-1])
        weights.append(model.get_weights())
    return model, paths, [np.mean(w, axis=0, dtype="float64") for w in zip(*weights, strict=True)]


def assert_weights(model, expected):
    for a, b in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_mean_of_files(suffix, tmp_path):
    model, paths, expected = files_of_a_run(tmp_path, suffix)
    # into a model, compiled or not
    for target in (make_model(seed=9), make_model(seed=9, compiled=False)):
        assert average_checkpoints(paths, target) is target
        assert_weights(target, expected)
    # into files, from strings as well
    file = tmp_path / "mean.weights.h5"
    assert average_checkpoints(map(str, paths), str(file)) == str(file)
    fresh = make_model(seed=8, compiled=False)
    fresh.load_weights(file)
    assert_weights(fresh, expected)
    if suffix == ".keras":
        average_checkpoints(paths, tmp_path / "mean.keras")
        loaded = keras.saving.load_model(tmp_path / "mean.keras")
        assert_weights(loaded, expected)
        # The optimizer is the last file's.
        assert int(keras.ops.convert_to_numpy(loaded.optimizer.iterations)) == 6
        for a, b in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
            np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (a, b)))
    one = average_checkpoints(paths[-1:], make_model(seed=7))
    assert_weights(one, model.get_weights())
    assert sorted(p.name for p in tmp_path.glob(".*")) == []


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_mean_of_weights_in_half_precision(dtype, tolerance, tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype=dtype)])
    paths, weights = [tmp_path / f"{i}.weights.h5" for i in range(3)], []
    for path in paths:
        model.layers[0].kernel.assign(RNG.normal(size=(4, 3)))
        model.save_weights(path)
        kernel = keras.ops.cast(model.layers[0].kernel, "float32")
        weights.append(keras.ops.convert_to_numpy(kernel))
    average_checkpoints(paths, model)
    kernel = keras.ops.convert_to_numpy(keras.ops.cast(model.layers[0].kernel, "float32"))
    np.testing.assert_allclose(kernel, np.mean(weights, axis=0), rtol=tolerance)


def test_wrong_files_are_refused_and_nothing_is_written(tmp_path):
    _, paths, _ = files_of_a_run(tmp_path, ".weights.h5", 2)
    other = tmp_path / "other.weights.h5"
    make_model(units=5).save_weights(other)
    deeper = tmp_path / "deeper.weights.h5"
    model = keras.Sequential([make_model(), keras.layers.Dense(1, name="more")])
    model.build((None, 4))
    model.save_weights(deeper)
    broken = tmp_path / "broken.keras"
    broken.write_bytes(b"no zip")
    target = tmp_path / "mean.weights.h5"
    target.write_bytes(b"before")
    cases = [
        ([], target, ValueError, "paths"),
        ([*paths, other], target, ValueError, r"\(4, 3\)"),
        ([*paths, deeper], target, ValueError, "None"),
        ([*paths, broken], target, ValueError, "broken.keras"),
        ([tmp_path / "a.h5"], target, ValueError, "a.h5"),
        ([tmp_path / "a.keras"], target, FileNotFoundError, "a.keras"),
        (paths, tmp_path / "mean.npz", ValueError, "mean.npz"),
        (paths, tmp_path / "mean.keras", ValueError, "mean.keras"),
    ]
    for arguments, to, error, message in cases:
        with pytest.raises(error, match=message):
            average_checkpoints(arguments, to)
    assert target.read_bytes() == b"before"
    assert not list(tmp_path.glob(".*")) and not (tmp_path / "mean.keras").exists()
    with pytest.raises(ValueError):
        average_checkpoints(paths, make_model(units=5))


def names(callback):
    return [pathlib.Path(path).name for path in callback.paths]


def test_the_last_epochs_are_kept(tmp_path):
    model = make_model()
    weights = []
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(model.get_weights())
    )
    callback = KeepLastCheckpoints(tmp_path / "run", keep=2, every=2)
    model.fit(X, Y, epochs=7, verbose=0, callbacks=[callback, note])
    assert names(callback) == ["epoch-00004.weights.h5", "epoch-00006.weights.h5"]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == names(callback)
    average_checkpoints(callback.paths, model)
    assert_weights(model, [np.mean(w, axis=0) for w in zip(weights[3], weights[5], strict=True)])
    # A second run finds the files of the first.
    again = KeepLastCheckpoints(tmp_path / "run", keep=2)
    assert names(again) == names(callback)
    model.fit(X, Y, epochs=1, verbose=0, callbacks=[again])
    assert names(again) == ["epoch-00006.weights.h5", "epoch-00001.weights.h5"]


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_the_last_steps_are_kept_across_epochs_and_runs(steps_per_execution, tmp_path):
    if keras.backend.backend() == "torch" and steps_per_execution > 1:
        steps_per_execution = 1  # Keras refuses more there
    model = make_model(compiled=False)
    model.compile("sgd", loss="mse", steps_per_execution=steps_per_execution)
    callback = KeepLastCheckpoints(tmp_path, keep=3, every=4, unit="step")
    model.fit(X, Y, batch_size=2, epochs=3, verbose=0, callbacks=[callback])  # 6 steps an epoch
    assert names(callback) == [f"step-{n:07d}.weights.h5" for n in (8, 12, 16)]
    again = KeepLastCheckpoints(tmp_path, keep=3, every=4, unit="step")
    model.fit(X, Y, batch_size=2, epochs=1, verbose=0, callbacks=[again])
    assert names(again) == [f"step-{n:07d}.weights.h5" for n in (16, 20, 24)]
    assert sorted(p.name for p in tmp_path.iterdir()) == names(again)


def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    model = make_model()
    callback = KeepLastCheckpoints(tmp_path, keep=1)
    model.fit(X, Y, epochs=1, verbose=0, callbacks=[callback])
    before = callback.paths[0].read_bytes()

    def fail(path, **_):
        pathlib.Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(model, "save_weights", fail)
    for epochs in (1, 2):  # over the same file, and beside it
        with pytest.raises(OSError, match="disk full"):
            model.fit(
                X, Y, epochs=epochs, initial_epoch=epochs - 1, verbose=0, callbacks=[callback]
            )
        assert [p.name for p in tmp_path.iterdir()] == ["epoch-00001.weights.h5"]
        assert callback.paths[0].read_bytes() == before


@pytest.mark.parametrize("options", [{"keep": 0}, {"every": 0}, {"unit": "batch"}])
def test_bad_input(options, tmp_path):
    with pytest.raises(ValueError, match=next(iter(options))):
        KeepLastCheckpoints(tmp_path, **options)


def test_files_are_found_in_the_order_of_their_numbers(tmp_path):
    """Also where a copied folder has one time for all, and numbers outgrow their width."""
    for epoch in (100500, 99500, 100000):
        path = tmp_path / f"epoch-{epoch:05d}.weights.h5"
        path.touch()
        os.utime(path, (1, 1))
    numbers = [int(path.name[6:12].strip(".")) for path in KeepLastCheckpoints(tmp_path).paths]
    assert numbers == [99500, 100000, 100500]


def test_accumulated_gradients_do_not_hide_batches(tmp_path):
    def run():
        checkpoints = KeepLastCheckpoints(tmp_path, unit="step", every=2)
        model.fit(
            np.ones((4, 2)), np.ones((4, 1)), batch_size=1, verbose=0, callbacks=[checkpoints]
        )
        return [path.name for path in checkpoints.paths]

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), "mse")
    run()
    assert run() == [f"step-{n:07d}.weights.h5" for n in (2, 4, 6, 8)]
