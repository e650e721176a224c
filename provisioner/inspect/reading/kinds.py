"""Where the kinds that only the command line reads are in the API."""

from provisioner.inspect.reading.kind_rules import Event, WatchedPod, WatchedSnapshot
from provisioner.kube.resources import VOLUME_SNAPSHOTS, Resource
from provisioner.model.meta import KubeObject

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", KubeObject)
EVENTS = Resource("", "v1", "events", "Event", Event)
WATCHED_PODS = Resource("", "v1", "pods", "Pod", WatchedPod)
WATCHED_SNAPSHOTS = Resource(
    VOLUME_SNAPSHOTS.group, "v1", VOLUME_SNAPSHOTS.plural, VOLUME_SNAPSHOTS.kind, WatchedSnapshot
)
