"""The little of a Kubernetes client that the sandbox and its tests need, as the administrator.

Not the product's own edge: what is tested with the sandbox must not be what looks at the result.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Self

import aiohttp

from provisioner.sandbox.errors import SandboxError

TIMEOUT = aiohttp.ClientTimeout(total=30)

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(SandboxError):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """Speaks JSON with one API server; an async context manager."""

    def __init__(
        self, server: str, authority: Path, token: str, user_agent: str = "ebs-provisioner-sandbox"
    ) -> None:
        self.server = server
        self.user_agent = user_agent
        self.authority = authority
        self.token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=str(self.authority))
        self._session = aiohttp.ClientSession(
            self.server,
            connector=aiohttp.TCPConnector(ssl=context, limit=64),
            headers={"Authorization": f"Bearer {self.token}", "User-Agent": self.user_agent},
            timeout=TIMEOUT,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        **query: str,
    ) -> Any:
        """Send one request and return the decoded answer.

        Raises:
            ApiError: the API server refused it.
            aiohttp.ClientError, TimeoutError: it could not be reached.
        """
        assert self._session is not None
        headers = {"Content-Type": content_type} if body is not None else None
        async with self._session.request(
            method, path, json=body, headers=headers, params=query
        ) as reply:
            if reply.content_type != "application/json":
                answer: Any = await reply.text()
            else:
                answer = await reply.json()
            if reply.status >= 400:  # noqa: PLR2004 - HTTP's own border
                message = answer.get("message", "") if isinstance(answer, dict) else answer
                raise ApiError(reply.status, f"{method} {path}: {reply.status} {message}")
            return answer

    async def get(self, path: str, **query: str) -> Any:
        """Read an object or a list."""
        return await self.request("GET", path, **query)

    async def create(self, path: str, body: dict[str, Any]) -> Any:
        """POST an object to its collection."""
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: Any, kind: str = "merge", **query: str) -> Any:
        """Patch an object; ``kind`` is a key of ``PATCH_TYPES``."""
        return await self.request("PATCH", path, body, content_type=PATCH_TYPES[kind], **query)

    async def delete(self, path: str, **query: str) -> Any:
        """Delete an object or, by its path, a collection."""
        return await self.request("DELETE", path, **query)
