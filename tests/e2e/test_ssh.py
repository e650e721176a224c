import socket

import asyncssh
import pytest

from provisioner.sandbox.errors import SandboxError
from tests.e2e import ssh


class Machine:
    """A node without a kubelet to stop."""

    def __init__(self) -> None:
        self.running = True
        self.done: list[str] = []
        self.trouble = ""

    async def shell(self, command: str) -> ssh.Answer:
        return 3, f"out of {command}", "errors"

    async def stop(self) -> None:
        self.done.append("stop")
        self.running = False

    async def start(self) -> None:
        if self.trouble:
            raise SandboxError(self.trouble)
        self.done.append("start")
        self.running = True

    def runs(self) -> bool:
        return self.running


@pytest.mark.parametrize(
    ("verb", "done", "running"),
    [("stop", ["stop"], False), ("start", ["start"], True), ("restart", ["stop", "start"], True)],
)
async def test_systemctl_stops_and_starts_the_kubelet(verb, done, running):
    machine = Machine()

    assert await ssh.answer(machine, f"systemctl {verb} kubelet") == (0, "", "")
    assert (machine.done, machine.running) == (done, running)


async def test_systemctl_says_whether_it_runs():
    machine = Machine()
    question = "systemctl show kubelet --property ActiveState --value"

    assert await ssh.answer(machine, question) == (0, "active\n", "")
    await machine.stop()
    assert await ssh.answer(machine, question) == (0, "inactive\n", "")


async def test_a_kubelet_that_cannot_be_started_is_a_status_with_its_reason():
    machine = Machine()
    machine.trouble = "kubelet cannot be started on a node"

    assert await ssh.answer(machine, "systemctl start kubelet") == (
        1,
        "",
        "kubelet cannot be started on a node\n",
    )


async def test_there_is_no_sudo():
    _, _, errors = await ssh.answer(Machine(), "sudo --version")

    assert "command not found" in errors  # what the suite looks for


@pytest.mark.parametrize("command", ["mount | grep x", "systemctl stop kubelets", "ls /var"])
async def test_anything_else_is_the_shells(command):
    assert await ssh.answer(Machine(), command) == (3, f"out of {command}", "errors")


async def test_a_client_with_the_key_gets_status_output_and_errors():
    key = asyncssh.generate_private_key("ssh-ed25519")
    listener = socket.create_server(("127.0.0.1", 0))
    address, port = listener.getsockname()

    async with ssh.listening(listener, Machine(), key):
        connecting = asyncssh.connect(
            address, port, username="root", client_keys=[key], known_hosts=None, config=None
        )
        async with connecting as client:
            ran = await client.run("mount | grep x")

    assert (ran.exit_status, ran.stdout, ran.stderr) == (3, "out of mount | grep x", "errors")


async def test_a_client_with_another_key_is_refused():
    key, other = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    listener = socket.create_server(("127.0.0.1", 0))
    address, port = listener.getsockname()

    async with ssh.listening(listener, Machine(), key):
        with pytest.raises(asyncssh.PermissionDenied):
            await asyncssh.connect(
                address, port, username="root", client_keys=[other], known_hosts=None, config=None
            )
