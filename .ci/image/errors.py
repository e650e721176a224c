"""What ends a build with one sentence."""


class ImageError(Exception):
    """The image cannot be built; the text says why and what would help."""


class NotAvailableError(ImageError):
    """A locked package is neither cached, nor on the mirror, nor in the archive."""
