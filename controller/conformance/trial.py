"""All checks of one function."""

import httpx

from controller.conformance.checks import Finding, findings_of
from controller.conformance.edge import edge_checks
from controller.conformance.protocol import protocol_checks
from controller.conformance.settings import ConformanceSettings
from controller.conformance.subject import Subject
from controller.conformance.work import work_checks
from controller.conformance.workshop import open_workshop


async def try_function(
    settings: ConformanceSettings, *, transport: httpx.AsyncBaseTransport | None = None
) -> list[Finding]:
    """What each check found. Raises ``ConformanceInvalid``, and ``StoreUnavailable`` if the store does not answer."""
    async with (
        open_workshop(settings) as workshop,
        Subject(settings, transport=transport) as subject,
    ):
        checks = [
            *edge_checks(subject),
            *protocol_checks(subject, workshop),
            *work_checks(subject, workshop, settings),
        ]
        return await findings_of(checks, subject)
