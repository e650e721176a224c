from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

EXAMPLES = Path(__file__).with_name("leaks_on_purpose.py")


async def test_a_task_left_behind_fails_its_own_test_in_whichever_loop():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(EXAMPLES)),
        cwd=EXAMPLES.parents[1],
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()

    text = output.decode()
    assert re.findall(r"^ERROR \S+::(\w+)", text, re.MULTILINE) == [
        "test_leaks_in_its_own_loop",
        "test_leaks_in_the_modules_loop",
        "test_has_a_fixture_that_leaks",
    ], text
    assert "5 passed, 3 errors" in text
