"""Moves that give a claim the old volume of another move again."""
