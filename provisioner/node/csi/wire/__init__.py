"""CSI and the kubelet's registration on the wire.

``*_pb2.py`` and ``*_pb2.pyi`` are generated from the ``.proto`` files beside them, which are our
own words and wire-compatible with the official ones for the calls that we serve::

    .venv/bin/python -m tests.node.generate     # writes them again
"""
