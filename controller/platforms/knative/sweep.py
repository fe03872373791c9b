"""``python -m controller.platforms.knative.sweep``: lowers overdue minima once. Run by a CronJob, so that a controller
that is gone for good holds no GPU."""

import asyncio
import sys
import time

from controller.platforms.knative.access import AccessInvalid, KubeAccess
from controller.platforms.knative.cluster_access import find_access
from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import KubeError
from controller.platforms.knative.sweeping import sweep
from controller.settings import ClusterSettings
from shared.observability.logging import log_to_stderr


async def sweep_once(access: KubeAccess) -> int:
    """Number of minima that were lowered. Raises ``KubeError``."""
    async with KubeClient(access) as client:
        return len(await sweep(client, time.time()))


def main() -> int:
    """Exit status: 0 done, 1 the API server refused or did not answer, 2 nothing says where it is."""
    log_to_stderr()
    try:
        count = asyncio.run(sweep_once(find_access(ClusterSettings.from_environment())))
    except AccessInvalid as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KubeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"lowered {count} overdue minima")
    return 0


if __name__ == "__main__":
    sys.exit(main())
