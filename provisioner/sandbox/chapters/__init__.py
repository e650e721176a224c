"""The chapters of the demo, a file each: ``TITLE``, and ``tell``, in which a user does it."""
