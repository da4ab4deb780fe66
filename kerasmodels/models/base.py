"""What every model shares: how it is saved, copied and loaded."""

import warnings
from pathlib import Path

import keras

from kerasmodels import data
from kerasmodels.checkpoints.image_processor import ImageProcessor
from kerasmodels.checkpoints.marian_text import MarianTokenizer
from kerasmodels.data.codec import TextCodec
from kerasmodels.layers.sublayers import KeepsSublayers
from kerasmodels.models.exported import ExportsItself
from kerasmodels.training import FitOnReplicas
from kerasmodels.training.repaired_trainer import RepairedTrainer

# What may stand beside a model and is kept with it, by the name of the class.
_COMPANIONS = {
    cls.__name__: cls
    for cls in (
        data.BertTokenizer,
        data.BytePairTokenizer,
        data.SentencePieceTokenizer,
        data.Vocabulary,
        data.WordPieceTokenizer,
        ImageProcessor,
        MarianTokenizer,
    )
}
_CODEC = "tokenizer"  # the file of a `TextCodec`


class BaseModel(ExportsItself, KeepsSublayers, RepairedTrainer, FitOnReplicas, keras.Model):
    """The base of all models that a constructor builds from sizes.

    A `.keras` file, `copy.deepcopy` and `pickle` keep the class, the weights, the optimizer, what
    was changed in single layers (see `KeepsSublayers`), and the tokenizer or preprocessor.
    `type(model).from_config(model.get_config())` gives a new model of the same class, with new
    weights and without the tokenizer. `keras.models.clone_model` rebuilds the graph alone, as it
    does for every functional model whose constructor is not Keras's: a plain functional model
    without `generate` and without checks, whose inputs must all be given.
    """

    companion_name = "tokenizer"  # the attribute that holds the tokenizer or preprocessor

    def _keep_arguments(self, policy, **arguments):
        """Makes the constructor's arguments attributes, and the entries of the config."""
        self.dtype_policy = policy
        self._arguments = arguments
        for name, value in arguments.items():
            setattr(self, name, value)

    def get_config(self):
        """Returns the constructor's arguments, and what was changed in single layers."""
        config = {
            **self._arguments,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
        }
        if not self.trainable:
            config["trainable"] = False
        return {**config, **self._changed_sublayers()}

    def save_assets(self, folder):
        """Keras's hook: writes the tokenizer or preprocessor beside the weights."""
        companion = getattr(self, self.companion_name, None)
        if companion is None:
            return
        name = type(companion).__name__
        if type(companion) is not _COMPANIONS.get(name):
            warnings.warn(
                f"The file does not hold the model's `{self.companion_name}`, since it is none of "
                f"{list(_COMPANIONS)}: set it again after loading. Received: {companion!r}",
                stacklevel=2,
            )
            return
        folder = Path(folder, self.companion_name, name)
        folder.mkdir(parents=True)
        if isinstance(companion, TextCodec):
            companion.save(folder / _CODEC)
        else:
            for file_name, content in companion.files.items():
                (folder / file_name).write_bytes(content)

    def load_assets(self, folder):
        """Keras's hook: reads what `save_assets` wrote; older files have nothing of it."""
        folder = None if folder is None else Path(folder, self.companion_name)
        for found in folder.iterdir() if folder is not None and folder.is_dir() else ():
            cls = _COMPANIONS[found.name]
            codec = issubclass(cls, TextCodec)
            companion = cls.load(found / _CODEC) if codec else cls.from_folder(found)
            setattr(self, self.companion_name, companion)
