"""Read the other claims of the same pods, and those that a move is moved with, as they are now."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from provisioner.controller.moving.phase_rules import Await, Undo
from provisioner.controller.moving.together import companion_rules as rules
from provisioner.controller.moving.together.companion_rules import Companion
from provisioner.controller.shared.services import Services
from provisioner.kube.client import find
from provisioner.kube.resources import CLAIMS, PLACED_VOLUMES, VOLUME_MOVES
from provisioner.model.pod import Pod
from provisioner.model.volume_move import VolumeMove

Rule = Callable[[VolumeMove, Sequence[Companion]], Await | Undo | None]


class Companions:
    """Reads from the API server, as caches may be old. All raise ``KubeError``."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._caches = services.caches

    async def of_pods(self, move: VolumeMove, pods: Iterable[Pod], zone: str) -> list[Companion]:
        """The other claims of pods; ``zone``: where the move goes, "" if it stays in its zone."""
        users: dict[str, list[str]] = {}
        for pod in pods if zone else ():
            for key in pod.claim_keys:
                # An ephemeral one goes with its pod, and the next pod has another.
                if key != move.claim_key and key not in pod.ephemeral_claim_keys:
                    users.setdefault(key.partition("/")[2], []).append(pod.name)
        return await self._read(move, users)

    async def before_begin(self, move: VolumeMove) -> Await | Undo | None:
        """See ``companion_rules``."""
        return await self._decided(move, rules.before_begin)

    async def before_stop(self, move: VolumeMove) -> Await | Undo | None:
        """See ``companion_rules``."""
        return await self._decided(move, rules.before_stop)

    async def undone(self, move: VolumeMove) -> Undo | None:
        """See ``companion_rules``; nothing is read as long as a cache shows them under way."""
        if rules.go_on(move, self._known(move)):
            return None
        return rules.undone(move, await self._moved_with(move))

    async def before_swap(self, move: VolumeMove) -> Await | Undo | None:
        """See ``companion_rules``."""
        return await self._decided(move, rules.before_swap)

    async def before_return(self, move: VolumeMove) -> Await | Undo | None:
        """See ``companion_rules``."""
        return await self._decided(move, rules.before_return)

    async def _decided(self, move: VolumeMove, rule: Rule) -> Await | Undo | None:
        """What a rule says of them; to wait for moves that are under way, caches are enough.

        Else a hundred that wait for one would read each other every two seconds.
        """
        known = self._known(move)
        if rules.go_on(move, known):
            found = rule(move, known)
            if isinstance(found, Await):
                return found
        return rule(move, await self._moved_with(move))

    def _known(self, move: VolumeMove) -> list[Companion]:
        """The other claims with their moves, as caches have them, and no more of them."""
        namespace, moves = move.metadata.namespace, self._caches.moves
        return [
            Companion(name, moves=moves.keyed("claim", f"{namespace}/{name}"))
            for name in move.spec.moved_with
            if name != move.spec.claim_name
        ]

    async def led_by(self, move: VolumeMove) -> list[VolumeMove]:
        """See ``companion_rules``."""
        return rules.led_by(move, await self._moved_with(move))

    def promised_to(self, move: VolumeMove) -> list[VolumeMove]:
        """See ``companion_rules``; caches are enough, as our own process writes who is ready."""
        return rules.promised_to(move, self._known(move))

    async def is_led(self, move: VolumeMove) -> bool:
        """See ``companion_rules``."""
        return rules.is_led(move, await self._moved_with(move))

    async def not_moved(self, move: VolumeMove) -> str:
        """See ``companion_rules``."""
        return rules.not_moved(move, await self._moved_with(move))

    async def _moved_with(self, move: VolumeMove) -> list[Companion]:
        others: dict[str, list[str]] = {
            name: [] for name in move.spec.moved_with if name != move.spec.claim_name
        }
        return await self._read(move, others)

    async def _read(self, move: VolumeMove, users: dict[str, list[str]]) -> list[Companion]:
        if not users:
            return []
        listing = self._client.list(VOLUME_MOVES, namespace=move.metadata.namespace)
        moves = (await listing).items
        return [await self._companion(move, name, pods, moves) for name, pods in users.items()]

    async def _companion(
        self, move: VolumeMove, name: str, pods: Sequence[str], moves: Sequence[VolumeMove]
    ) -> Companion:
        told = Companion(name, moves=[e for e in moves if e.spec.claim_name == name], pods=pods)
        if not pods and rules.go_on(move, [told]):
            return told
        claim = await find(self._client, CLAIMS, name, move.metadata.namespace)
        bound_to = claim.spec.volume_name if claim is not None else ""
        volume = await find(self._client, PLACED_VOLUMES, bound_to) if bound_to else None
        zones = volume.zones if volume is not None else None
        return replace(told, persistent_volume=bound_to, zones=zones)
