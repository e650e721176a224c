"""What the clients of the API server and of the metadata service share."""

from typing import Self

import aiohttp


class HttpClient:
    """Has one HTTP session at most, which its first request opens."""

    _session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
