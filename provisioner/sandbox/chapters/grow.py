"""A claim is edited to be larger: its volume grows, and its file system when a kubelet comes."""

from __future__ import annotations

from provisioner.sandbox.stage import CLAIMS, PVS, Json, Stage

TITLE = "The claim grows"

_PENDING = "FileSystemResizePending"
_LARGER = '{"spec": {"resources": {"requests": {"storage": "50Gi"}}}}'
_SIZE_GIB = 50


async def tell(stage: Stage) -> None:
    """Tell it, after the chapter of the claim ``website``.

    Raises:
        SandboxError: a step was not seen.
    """
    teller = stage.teller
    await teller.kubectl("patch", "pvc", "website", f"--patch={_LARGER}")
    name = (await stage.api.get(f"{CLAIMS}/website"))["spec"]["volumeName"]

    async def grown() -> bool:
        volume = await stage.volume(name)
        found = await stage.api.get(f"{PVS}/{name}")
        capacity: str = found["spec"]["capacity"]["storage"]
        return (volume["Size"], capacity) == (_SIZE_GIB, f"{_SIZE_GIB}Gi")

    await teller.until(f"EC2 and the persistent volume show {_SIZE_GIB} GiB", grown)

    async def pending() -> Json | None:
        claim: Json = await stage.api.get(f"{CLAIMS}/website")
        said = {each["type"] for each in claim["status"].get("conditions", [])}
        waits = claim["status"].get("allocatedResourceStatuses", {}).get("storage")
        return claim if _PENDING in said and waits == "NodeResizePending" else None

    claim = await teller.until("the file system is left to the kubelet of the pod", pending)
    await teller.kubectl("get", "pvc", "website")
    for each in claim["status"]["conditions"]:
        teller.console.print(f"[dim]{each['type']}: {each['message']}[/]")
    teller.aside(
        "No kubelet runs here, so the claim keeps its old size. With a kubelet, the file system "
        "grows as soon as a pod uses the claim. A raw device, in the next chapter, is done "
        "immediately."
    )
