"""IOPS of volumes that grow or change: those of their class, kept under what the region gives."""

from dataclasses import replace

from provisioner.decide import attributes as attribute_rules
from provisioner.decide import capping
from provisioner.decide.volume_plan import Send, View
from provisioner.decide.wanted_shape import wanted_shape
from provisioner.ec2.ceilings import Ceilings
from provisioner.edges import Edges
from provisioner.model.attributes import Attributes
from provisioner.model.claim import Claim
from provisioner.model.errors import Reason
from provisioner.model.modification import shape_of
from provisioner.model.volume import CreateRequest
from provisioner.reconcile.modify_memory import Known
from provisioner.reconcile.modify_record import ModifyRecord


class ModifyCeiling:
    """As ``Capping`` for new volumes: EC2 is asked only where some region has less."""

    def __init__(self, edges: Edges, record: ModifyRecord) -> None:
        settings = edges.settings
        self._record = record
        self._caches, self._driver = edges.caches, settings.driver
        self._ceilings = Ceilings(
            edges.volumes, cluster_id=settings.cluster_id, extra_tags=settings.extra_tags
        )

    async def looked_up(self, claim: Claim, view: View) -> View:
        """The view with the class that is in force, and the region's ceiling where it may matter.

        Raises:
            Ec2Error: EC2 could not be asked.
        """
        volume = view.volume
        if volume is None:
            return view
        if view.size_gib is not None and claim.current_attributes_class_name:
            view = replace(view, in_force=self._in_force(claim))
        wanted = wanted_shape(
            shape_of(volume),
            volume.tags,
            size_gib=view.size_gib,
            attributes=view.attributes,
            in_force=view.in_force,
        )
        asked = wanted.fitted.asked if wanted.fitted is not None else None
        if not capping.depends_on_region(wanted.volume_type, asked):
            return view
        about = CreateRequest(
            client_token="",
            zone=volume.zone,
            size_gib=wanted.size_gib,
            volume_type=wanted.volume_type,
            outpost_arn=volume.outpost_arn or None,
        )
        return replace(view, ceiling=await self._ceilings.of(about))

    def _in_force(self, claim: Claim) -> Attributes | None:
        """What the class asks for that the claim's volume has; one that is gone asks for nothing.

        A smaller volume may have got fewer IOPS than its class asks for.
        """
        name = claim.current_attributes_class_name
        found = self._caches.attributes_classes.get(name)
        read = attribute_rules.read(name, found, driver=self._driver, is_csi=True)
        return read.attributes if isinstance(read, attribute_rules.Change) else None

    def tell(self, claim: Claim, known: Known, step: Send) -> None:
        """Say so where fewer IOPS are given than were asked for."""
        request, volume = step.request, known.volume
        if known.bare is not None and request.size_gib is not None:
            why = f"the volume grows without more IOPS, which EC2 has refused: {known.bare.message}"
            self._record.tell(claim, "Resizing", f"{Reason.IOPS_CAPPED}: {why}", warning=True)
        if step.fitted is None or volume is None:
            return
        volume_type = request.volume_type or volume.volume_type
        size_gib = request.size_gib or volume.size_gib
        text = capping.told(step.fitted, volume_type, size_gib)
        if text is not None:
            text = f"{Reason.IOPS_CAPPED}: {text}"
            self._record.tell(claim, "VolumeModify", text, warning=True)

    async def close(self) -> None:
        """Stop asking."""
        await self._ceilings.close()
