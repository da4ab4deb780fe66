"""Files of images, read by PIL the way that everything here wants them: RGB, the right way up."""


def open_image(path, formats=None):
    """An image whose pixels are not read yet.

    Args:
        path: The file.
        formats: Names of PIL's formats that are allowed; all by default.

    Returns:
        A PIL image.

    Raises:
        ValueError: If the file is no such image, or has more than 8 bits a channel.
    """
    from PIL import Image

    try:
        image = Image.open(path, formats=formats)
    except Exception as error:  # of a broken file PIL raises whatever its bytes lead to
        kinds = f" ({', '.join(formats)})" if formats else ""
        raise ValueError(
            f"Every file must be an image{kinds}. {str(path)!r} cannot be read: {error}"
        ) from error
    if image.mode.startswith(("I", "F")):
        image.close()
        raise ValueError(
            f"Images must have 8 bits a channel. {str(path)!r} has more (mode {image.mode!r})."
        )
    return image


def read_image(path, formats=None):
    """An image in RGB, turned as its EXIF data say.

    Args:
        path: The file.
        formats: As for `open_image`.

    Returns:
        A PIL image.

    Raises:
        ValueError: If the file is no such image, is truncated or corrupt, or has more than 8 bits a
            channel.
    """
    from PIL import ImageOps

    with open_image(path, formats) as image:
        try:
            image = ImageOps.exif_transpose(image)
            if "transparency" in image.info:  # PIL warns of a palette unless it gets an alpha first
                image = image.convert("RGBA")
            return image.convert("RGB")
        except Exception as error:  # see above
            raise ValueError(f"{str(path)!r} is truncated or corrupt: {error}") from error
