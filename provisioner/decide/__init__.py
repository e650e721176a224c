"""Decisions: objects in, one frozen decision out. Pure functions, never async.

One file a flow; the same file name in ``reconcile`` carries the decision out.
"""
