"""How long EC2 may describe the world as it was, and how often to look meanwhile.

Source: EC2 developer guide "Eventual consistency" and "Ensuring idempotency", which name no bound;
a minute is our choice.
"""

CONSISTENCY_S = 60.0
LOOK_AGAIN_S = 5.0
