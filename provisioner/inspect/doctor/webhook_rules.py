"""The webhook: who answers, whom the API server trusts, and what was let through unchecked."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from provisioner.inspect.doctor.check_rules import (
    Finding,
    Rule,
    Verdict,
    judged,
    ok,
    skipped,
    some,
    unknown,
)
from provisioner.inspect.doctor.evidence_rules import Evidence
from provisioner.inspect.reading.controller_rules import NAME_LABEL, OUR_NAME
from provisioner.inspect.reading.setup_kind_rules import Webhook, WebhookConfiguration

OUR_WEBHOOK = "ebs-webhook"
SECRET = "ebs-webhook-tls"  # noqa: S105 -- its name
SERVICE_LABEL = "kubernetes.io/service-name"
_CERTIFICATE = "tls.crt"
_REVIEWS = "ebs_webhook_reviews_total"
# webhook/model/review.py, UNCHECKED; tests compare them.
_UNCHECKED = frozenset({"InternalError", "BudgetExhausted", "Overloaded", "TooManyParts"})
_SOON = timedelta(days=7)
_NONE = "the webhook is not installed"


def is_ours(configuration: WebhookConfiguration) -> bool:
    """Whether a configuration is of this project's webhook."""
    return configuration.name == OUR_WEBHOOK or configuration.labels.get(NAME_LABEL) == OUR_NAME


def services_of(configurations: Sequence[WebhookConfiguration]) -> set[tuple[str, str]]:
    """Namespace and name of the Services that the API server asks."""
    return {
        (each.client_config.service.namespace, each.client_config.service.name)
        for each in _all(configurations)
        if each.client_config.service is not None
    }


def _all(configurations: Sequence[WebhookConfiguration]) -> Iterator[Webhook]:
    for configuration in configurations:
        yield from configuration.webhooks or ()


def authorities_in(pem_in_base64: str) -> list[x509.Certificate]:
    """The certificates of a ``caBundle`` or of a Secret's value.

    Raises:
        ValueError: it holds none, or something else.
    """
    try:
        pem = base64.b64decode(pem_in_base64, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64: {error}") from error
    return x509.load_pem_x509_certificates(pem)


def unchecked_in(metrics: str) -> dict[str, float]:
    """Reviews that no rule has answered, by reason, in what a pod's ``/metrics`` says."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            reason = sample.labels.get("reason", "")
            if sample.name == _REVIEWS and reason in _UNCHECKED:
                found[reason] = found.get(reason, 0.0) + sample.value
    return found


def _reachable(seen: Evidence) -> Finding:
    services = services_of(seen.cluster.webhooks)
    if not seen.cluster.webhooks:
        return skipped(_NONE)
    if not services:
        return skipped("the webhook is registered by URL, not by a Service")
    ready = {
        (each.metadata.namespace, each.labels.get(SERVICE_LABEL, ""))
        for each in seen.cluster.slices
        if any(endpoint.conditions.ready is not False for endpoint in each.endpoints or ())
    }
    problems = [
        f"Service {namespace}/{name} has no ready endpoint"
        for namespace, name in sorted(services - ready)
    ]
    good = ", ".join(f"Service {namespace}/{name}" for namespace, name in sorted(services))
    remedy = "objects are let through unchecked: look at the webhook's pods and their log"
    return judged(problems, good, remedy)


def _trusted(seen: Evidence) -> Finding:
    if not seen.cluster.webhooks:
        return skipped(_NONE)
    problems = []
    for configuration in seen.cluster.webhooks:
        for each in configuration.webhooks or ():
            why = _why_no_trust(each.client_config.ca_bundle or "", seen.now)
            if why and each.client_config.service is not None:
                problems.append(f"caBundle of {each.name} ({configuration.name}): {why}")
    remedy = (
        "the API server does not believe the webhook: delete the field, and the webhook writes it "
        "again; a GitOps tool must leave it alone (docs/webhook.md)"
    )
    return judged(problems, "every caBundle can be read and is valid", remedy)


def _why_no_trust(bundle: str, now: datetime) -> str:
    if not bundle:
        return "it is empty"
    try:
        found = authorities_in(bundle)
    except ValueError as error:
        return f"it cannot be read: {error}"
    if all(now >= each.not_valid_after_utc for each in found):
        latest = max(each.not_valid_after_utc for each in found)
        return f"it expired at {latest:%Y-%m-%dT%H:%MZ}"
    return ""


def _matches(seen: Evidence) -> Finding:
    if not seen.cluster.webhooks:
        return skipped(_NONE)
    data = (seen.cluster.secret.data or {}) if seen.cluster.secret is not None else {}
    if not data.get(_CERTIFICATE):
        return unknown(
            f"no Secret {SECRET} with {_CERTIFICATE} is beside the webhook's Service",
            "if the webhook keeps its certificates elsewhere, check them there",
        )
    try:
        served = authorities_in(data[_CERTIFICATE])[0]
    except ValueError as error:
        return Finding(
            Verdict.FAILED,
            f"{_CERTIFICATE} of Secret {SECRET} cannot be read: {error}",
            f"empty the Secret ({SECRET}): the webhook makes another certificate",
        )
    problems = [
        f"caBundle of {each.name} trusts nobody who issued the served certificate"
        for each in _all(seen.cluster.webhooks)
        if each.client_config.service is not None
        and not _issued(served, each.client_config.ca_bundle or "")
    ]
    remedy = "delete caBundle from the configuration: the webhook writes the right one"
    return judged(problems, f"issued by {served.issuer.rfc4514_string()}", remedy)


def _issued(served: x509.Certificate, bundle: str) -> bool:
    try:
        authorities = authorities_in(bundle)
    except ValueError:
        return False
    for authority in authorities:
        try:
            served.verify_directly_issued_by(authority)
        except Exception:  # noqa: S112 -- of several types: another name, key or signature
            continue
        return True
    return False


def _expiry(seen: Evidence) -> Finding:
    data = (seen.cluster.secret.data or {}) if seen.cluster.secret is not None else {}
    if not seen.cluster.webhooks:
        return skipped(_NONE)
    if not data.get(_CERTIFICATE):
        return unknown(f"no Secret {SECRET} with {_CERTIFICATE} is beside the webhook's Service")
    try:
        until = authorities_in(data[_CERTIFICATE])[0].not_valid_after_utc
    except ValueError as error:
        return unknown(f"{_CERTIFICATE} of Secret {SECRET} cannot be read: {error}")
    text = f"Secret {SECRET}: the certificate is valid until {until:%Y-%m-%dT%H:%MZ}"
    remedy = "the webhook renews it itself: look at its log, and at its right to write the Secret"
    if seen.now >= until:
        return Finding(Verdict.FAILED, text, remedy)
    if until - seen.now < _SOON:
        return Finding(Verdict.WARNING, text, remedy)
    return ok(text)


def _failure_policy(seen: Evidence) -> Finding:
    if not seen.cluster.webhooks:
        return skipped(_NONE)
    problems = [
        f"failurePolicy of {each.name} is Fail"
        for each in _all(seen.cluster.webhooks)
        if each.failure_policy != "Ignore"
    ]
    remedy = "set it to Ignore: otherwise nothing can be created while the webhook does not answer"
    return judged(problems, "Ignore everywhere", remedy, worst=Verdict.WARNING)


def _unchecked(seen: Evidence) -> Finding:
    if not seen.cluster.webhooks:
        return skipped(_NONE)
    if seen.cluster.unchecked is None:
        return unknown(
            "the webhook's metrics cannot be read through the API server (get pods/proxy)",
            "look at ebs_webhook_reviews_total in your monitoring (docs/alerts.md)",
        )
    text = [f"{count:.0f} for {cause}" for cause, count in seen.cluster.unchecked.items() if count]
    if not text:
        return ok("none since the webhook's pods started")
    return Finding(
        Verdict.WARNING,
        f"let through unchecked since the webhook's pods started: {some(text)}",
        "docs/webhook.md says what each cause means",
    )


_CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
RULES = (
    Rule(
        "webhook-reachable",
        "the webhook's Service has ready endpoints",
        (*_CONFIGURATIONS, "endpointslices"),
        _reachable,
    ),
    Rule("webhook-ca", "the API server trusts a valid authority", _CONFIGURATIONS, _trusted),
    Rule(
        "webhook-certificate",
        "the served certificate is of a trusted authority",
        (*_CONFIGURATIONS, "secrets"),
        _matches,
    ),
    Rule(
        "webhook-expiry",
        "the served certificate does not expire soon",
        (*_CONFIGURATIONS, "secrets"),
        _expiry,
    ),
    Rule(
        "webhook-failure-policy",
        "an outage of the webhook stops nothing",
        _CONFIGURATIONS,
        _failure_policy,
    ),
    Rule("webhook-unchecked", "no review was left out", _CONFIGURATIONS, _unchecked),
)
