"""Where the kinds that only the command line reads are in the API."""

from provisioner.inspect.reading.kind_rules import CsiDriver, Event, WatchedPod, WatchedSnapshot
from provisioner.kube.resources import VOLUME_SNAPSHOTS, Resource

EVENTS = Resource("", "v1", "events", "Event", Event)
WATCHED_PODS = Resource("", "v1", "pods", "Pod", WatchedPod)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", CsiDriver)
WATCHED_SNAPSHOTS = Resource(
    VOLUME_SNAPSHOTS.group, "v1", VOLUME_SNAPSHOTS.plural, VOLUME_SNAPSHOTS.kind, WatchedSnapshot
)
