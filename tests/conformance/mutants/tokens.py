"""Broken rules of ``probes/tokens.py``."""

from tests.conformance.mutants.mutant import Mutant, off

MUTANTS = (
    Mutant(
        "token-again",
        "tokens.volume_of_token",
        "if token is None:\n        return None",
        "return None",
    ),
    Mutant(
        "token-shows-the-volume-as-it-is",
        "volumes.create_volume",
        "render_volume(known)",
        "render_volume(known).replace('available', 'creating')",
    ),
    Mutant(
        "token-ignores-the-order-of-tags",
        "params.Params.fingerprint",
        'not name.startswith(("X-Amz-", "TagSpecification."))',
        'not name.startswith(("X-Amz-",))',
    ),
    off(
        "token-of-other-parameters",
        "tokens.volume_of_token",
        "token.fingerprint != call.params.fingerprint()",
    ),
    Mutant(
        "token-of-other-tags",
        "params.Params.fingerprint",
        '{(f"tag:{key}", value or "") for key, value in tags}',
        "set()",
    ),
    Mutant(
        "token-in-another-zone",
        "tokens.token_key",
        "(*key, zone) if call.world.settings.token_per_zone else key",
        "key",
    ),
    Mutant(
        "token-of-a-deleted-volume",
        "tokens.volume_of_token",
        'if volume is None or record_of(volume).state == "deleting":',
        'if volume is None or record_of(volume).state == "deleting":\n        return None\n    if False:',
    ),
    Mutant("token-length", "tokens.token_key", "len(token) > _LENGTH", "len(token) > 100"),
    Mutant("token-is-ascii", "tokens.token_key", "or not token.isascii()", ""),
    Mutant(
        "token-case",
        "tokens.token_key",
        "key = (*call.scope, token)",
        "key = (*call.scope, token.lower())",
    ),
    Mutant(
        "token-of-both-calls",
        "tokens.token_key",
        "key = (*call.scope, token)",
        "key = (*call.scope, call.params.flat['Action'], token)",
    ),
    Mutant("token-of-a-copy", "copies.copy_volumes", "keep_token(call, key, volume)", "pass"),
)
