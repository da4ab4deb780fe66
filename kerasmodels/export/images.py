"""A classifier of images as a SavedModel: raw pixels in, names and scores out."""

import keras

from kerasmodels.export.archive import Archive, require_saved_model
from kerasmodels.export.inputs import input_specs
from kerasmodels.export.replacing import replacing
from kerasmodels.layers import ImagePreprocessing


def image_classifier(model, path, preprocessing=None, class_names=None, top=None):
    """Writes a TensorFlow SavedModel that tells what is on raw images of any size.

    `tf.saved_model.load(path)` needs TensorFlow alone, neither Keras nor this package, also for a
    model that was trained on JAX. Its function and its signature `serve` take uint8 images
    `(batch, height, width, 3)`, as decoders of files give them; the images of one batch have one
    size, and every batch may have another. They return a dictionary, the likeliest class first:

    - `scores`: float32 `(batch, top)`, probabilities (the softmax of the model's logits).
    - `class_names`: string `(batch, top)`, the names that belong to them.

    On JAX every new size of image is compiled when it first comes, and the file runs on the kind of
    device it was written on; written on a CPU (`JAX_PLATFORMS=cpu`) it runs on all.

    Args:
        model: a functional `keras.Model` of one input, preprocessed images, and one output, logits
            `(batch, classes)`, as `models.ResNet` is.
        path: the folder. A SavedModel that is there already is replaced when the new one is
            complete.
        preprocessing: what makes the model's input of raw images: a layer such as
            `layers.ImagePreprocessing`, with a `crop_size` or a fixed `image_size`. Defaults to
            what came with the model's preset, `model.preprocessor`.
        class_names: a name for each class. Defaults to `model.class_names`, and where there are
            none to the numbers of the classes.
        top: how many classes are returned. Defaults to all.

    Raises:
        ValueError: on the PyTorch backend; if the model is not functional or its output is not
            `(batch, classes)`; if there is neither a `preprocessing` nor a `model.preprocessor`, or
            its images do not fit the model; if `class_names` does not name every class or `top` is
            not from 1 to their number; if `path` holds something else than a SavedModel.

    Example:
    ```python
    import tensorflow as tf
    from kerasmodels import export, models

    model = models.ResNet.from_preset("hf://microsoft/resnet-50")
    export.image_classifier(model, "resnet-50", top=5)

    # Elsewhere:
    served = tf.saved_model.load("resnet-50")
    image = tf.io.decode_image(tf.io.read_file("cat.jpg"), channels=3)
    answer = served.serve(image[None])
    answer["class_names"][0], answer["scores"][0]  # five of each
    ```
    """
    require_saved_model("`export.onnx` for a `keras.Model` from raw images to scores")
    shape = getattr(input_specs(model), "shape", ())
    classes = tuple(getattr(model.output, "shape", ()))
    if len(shape) != 4 or len(classes) != 2 or classes[1] is None:
        raise ValueError(
            "`model` must have one input, images (batch, height, width, channels), and one output, "
            f"logits (batch, classes). Received: inputs {model.input}, outputs {model.output}"
        )
    count = classes[1]
    class_names = getattr(model, "class_names", None) if class_names is None else class_names
    class_names = [str(name) for name in (range(count) if class_names is None else class_names)]
    if len(class_names) != count:
        raise ValueError(
            f"`class_names` must name each of the {count} classes. "
            f"Received: {len(class_names)} names"
        )
    top = count if top is None else top
    if not isinstance(top, int) or not 1 <= top <= count:
        raise ValueError(f"`top` must be an integer from 1 to {count}. Received: top={top!r}")
    if preprocessing is None:
        processor = getattr(model, "preprocessor", None)
        if processor is None:
            raise ValueError(
                "`preprocessing` must be given, since the model has no `preprocessor` of a preset. "
                "Received: preprocessing=None"
            )
        data_format = getattr(model, "data_format", None)
        preprocessing = ImagePreprocessing(**processor.arguments, data_format=data_format)
    if not isinstance(preprocessing, keras.layers.Layer):
        raise ValueError(f"`preprocessing` must be a layer. Received: {preprocessing!r}")
    first = getattr(preprocessing, "data_format", None) == "channels_first"
    raw = (3, None, None) if first else (None, None, 3)
    images = keras.Input(raw, dtype="uint8", name="images")
    pixels = preprocessing(images)
    if any(None not in (n, m) and n != m for n, m in zip(pixels.shape, shape, strict=True)):
        raise ValueError(
            f"`preprocessing` must make images of the shape {shape}, which the model takes. "
            f"Received: {preprocessing.name}, which makes {pixels.shape}"
        )
    scores = keras.layers.Softmax(dtype="float32")(model(pixels))
    served = keras.Model(images, scores)

    def named(scores):
        import tensorflow as tf

        scores, places = tf.math.top_k(scores, top)  # of equal ones the lower class first
        return {"scores": scores, "class_names": tf.gather(tf.constant(class_names), places)}

    archive = Archive(served)
    archive.add("serve", lambda images: served(images, training=False), images, finish=named)
    with replacing(path, marker="saved_model.pb") as temporary:
        archive.write(temporary)
