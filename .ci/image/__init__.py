"""Builds the container images that users run: ``make image``.

No container engine, no registry and no root: Debian's packages are read as archives, wheels are
unpacked by pip, and the result is written as an OCI archive. All inputs are locked by their hashes.
"""
