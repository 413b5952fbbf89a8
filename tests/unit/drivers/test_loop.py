"""Jobs run on threads until the loop's threads are closed; what is asked for after that is left."""

from __future__ import annotations

import asyncio

from penstock.drivers.loop import AsyncioLoop


def test_a_job_asked_for_after_the_end_is_neither_run_nor_an_error() -> None:
    ran: list[str] = []

    async def stop_with_work_left() -> None:
        loop = AsyncioLoop(asyncio.get_running_loop())

        def again(outcome: object) -> None:
            ran.append("first")
            loop.run_in_thread(lambda: ran.append("second"), lambda outcome: ran.append("told"))

        loop.run_in_thread(lambda: None, again)
        await asyncio.to_thread(loop.close)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(stop_with_work_left())
    assert ran == ["first"]
