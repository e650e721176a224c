"""Extra tags of volumes that exist; those of new ones are in ``model/tags.py``."""
