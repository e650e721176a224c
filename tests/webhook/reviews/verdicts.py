"""What the rules for pods say of a pod."""

from tests.webhook.reviews.pods import SHOP
from webhook.model import pod as pods
from webhook.reviews import pod_rules as rule


def judged(pod, cluster, *, namespace=SHOP, **more):
    return rule.judge(pods.read(pod), cluster, namespace=namespace, **more).answer


def evidence_of(pod, cluster):
    return rule.judge(pods.read(pod), cluster, namespace=SHOP).evidence


def let_through(pod, cluster, *, why="ZonesAgree"):
    answer = judged(pod, cluster)
    return answer.allowed and answer.warnings == () and answer.why == why


def warning_of(pod, cluster):
    answer = judged(pod, cluster)
    assert answer.allowed
    assert answer.why == "ZonesInDoubt"
    [warning] = answer.warnings
    return warning
