"""Where the channels of an image stand."""

import keras


def standardize_data_format(data_format):
    """Return `"channels_last"` or `"channels_first"`; for `None` what Keras is set to.

    Raises:
        ValueError: For anything else.
    """
    data_format = keras.config.image_data_format() if data_format is None else data_format
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(
            "`data_format` must be 'channels_last' or 'channels_first'. "
            f"Received: data_format={data_format!r}"
        )
    return data_format
