"""The controller: one folder for each story of a volume, and what they share.

In each folder ``flow.py`` says what wakes the story and what one pass does, ``rules.py`` and
``*_rules.py`` decide (pure functions, never async), ``record.py`` writes to the API server.
"""
