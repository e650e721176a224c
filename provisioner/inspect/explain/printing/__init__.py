"""How an explanation is printed, and what each cause means."""
