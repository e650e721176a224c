"""Calls that are tried with DryRun, and what KMS says of the keys that they name."""

import asyncio
from collections.abc import Iterable, Sequence

from provisioner.inspect.doctor import right_rules
from provisioner.inspect.doctor.evidence_rules import DefaultKey, KeyTry, Try
from provisioner.inspect.doctor.key_rules import ClassKey
from provisioner.inspect.doctor.right_rules import Attempt, Samples
from provisioner.inspect.reading.aws import Aws
from provisioner.model.errors import Ec2Error


async def try_it(aws: Aws, attempt: Attempt) -> Try:
    """Send a call with DryRun; EC2's answer."""
    if attempt.missing:
        return Try(attempt.action, "", "", attempt.missing)
    try:
        await aws.call("ec2", attempt.action, **attempt.params, DryRun=True)
    except Ec2Error as answer:
        message = answer.message.removeprefix(f"{answer.code}: ")
        return Try(attempt.action, attempt.on, answer.code or "NoAnswer", message)
    return Try(attempt.action, attempt.on, "Carried out", "EC2 has ignored DryRun")


async def tried(aws: Aws, attempts: Iterable[Attempt]) -> list[Try]:
    """All of them at once, in their order."""
    return list(await asyncio.gather(*(try_it(aws, each) for each in attempts)))


async def named_keys(aws: Aws, classes: Sequence[ClassKey], samples: Samples) -> list[KeyTry]:
    """The keys that classes name, as an identity is told of them."""
    asked = (_try_key(aws, each.name, each.key, samples) for each in classes if each.key)
    return list(await asyncio.gather(*asked))


async def default_key_of(
    caller: Aws, aws: Aws, classes: Sequence[ClassKey], samples: Samples
) -> DefaultKey | None:
    """The account's default key, None if no class uses it.

    Args:
        caller: who is asked which key that is.
        aws: whose rights are tried.
        classes: of the driver; where the account encrypts all volumes, each that names no key
            uses the default one.
        samples: as for other tries.
    """
    keyless = [each for each in classes if not each.key]
    users = tuple(each.name for each in keyless if each.encrypted)
    every = tuple(each.name for each in keyless)
    try:
        if every != users:
            answer = await caller.call("ec2", "GetEbsEncryptionByDefault")
            users = every if answer.get("EbsEncryptionByDefault") else users
        if not users:
            return None
        answer = await caller.call("ec2", "GetEbsDefaultKmsKeyId")
    except Ec2Error as error:
        return DefaultKey(every, refusal=f"{error.action}: {error.message}")
    return DefaultKey(users, await _try_key(aws, "", str(answer["KmsKeyId"]), samples))


async def _try_key(aws: Aws, name: str, key: str, samples: Samples) -> KeyTry:
    creation = await try_it(aws, right_rules.creation(samples, key))
    try:
        answer = await aws.call("kms", "DescribeKey", KeyId=key)
    except Ec2Error as error:
        return KeyTry(name, key, creation, refusal=error.message)
    told = answer["KeyMetadata"]
    return KeyTry(
        name, key, creation, state=str(told["KeyState"]), manager=str(told.get("KeyManager", ""))
    )
