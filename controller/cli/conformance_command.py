"""``rlhfless conformance``: whether whatever answers at a URL can take a stage's place."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from controller.cli.run_commands import print_json
from controller.cli.session import ExitCode, fail, result_console
from controller.cli.text import printable
from controller.conformance.checks import Finding, Verdict
from controller.conformance.settings import ConformanceInvalid, ConformanceSettings
from controller.conformance.trial import try_function
from shared.contracts.errors import StageError

STYLES = {Verdict.PASSED: "green", Verdict.FAILED: "bold red", Verdict.SKIPPED: "dim"}


def try_and_report(settings: ConformanceSettings, *, as_json: bool) -> ExitCode:
    """Run all checks and print them; a failure where one of them failed."""
    try:
        findings = asyncio.run(try_function(settings))
    except ConformanceInvalid as error:
        return fail(str(error), ExitCode.USAGE)
    except StageError as error:
        return fail(f"the store that was named: {error.message}", ExitCode.UNREACHABLE)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        result_console().print(finding_table(findings))
        counts = Counter(finding.verdict for finding in findings)
        result_console().print(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict))
    failed = any(finding.verdict is Verdict.FAILED for finding in findings)
    return ExitCode.FAILURE if failed else ExitCode.OK


def finding_table(findings: Sequence[Finding]) -> Table:
    """A line for each check."""
    table = Table("check", "verdict", "what was seen")
    for finding in findings:
        verdict = Text(finding.verdict, style=STYLES[finding.verdict])
        table.add_row(finding.check, verdict, Text(printable(finding.said), overflow="fold"))
    return table
