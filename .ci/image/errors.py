"""What ends a build with one sentence."""


class ImageError(Exception):
    """The image cannot be built; the text says why and what would help."""
