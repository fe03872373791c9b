"""Rewards by HTTP: our JSON protocol, or any server of the Open Inference Protocol V2."""

import asyncio
import json
import re
import socket
from collections.abc import Sequence
from pathlib import Path

import httpx

from functions.reward.allowed_hosts import AllowedHosts, HostRefused, Resolve
from functions.reward.outcome import Asked, Outcome, Scored
from functions.reward.remote_protocols import BadAnswer, address_of, read_answer, request_body
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed, RewardTimeout
from shared.contracts.reward import RemoteReward, RewardInputs
from shared.service.together import together

_REQUESTS_AT_ONCE = 8
_MAX_ANSWER_BYTES = 2**24
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_WORTH_A_RETRY = frozenset({408, 425, 429, 500, 502, 503, 504})


class _Failed(Exception):
    """An attempt that another one may make good: ``pause_s`` is how long the server asks to wait."""

    def __init__(self, cause: str, *, timed_out: bool = False, pause_s: float = 0.0, is_final: bool = False) -> None:
        super().__init__(cause)
        self.timed_out = timed_out
        self.pause_s = pause_s
        self.is_final = is_final


async def resolve_by_dns(host: str, port: int) -> Sequence[str]:
    """The host's addresses."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class RemoteRewards:
    """Asks remote rewards. One for a replica.

    Each request goes to the address that was checked, whatever the name resolves to a moment later. There are no
    redirects and no proxies; the secret is read from its mounted file and goes to nobody but the server.
    """

    def __init__(
        self,
        *,
        allowed: AllowedHosts,
        secrets_folder: Path,
        resolve: Resolve = resolve_by_dns,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self._allowed = allowed
        self._secrets_folder = secrets_folder
        self._resolve = resolve
        self._first_pause_s = first_pause_s

    async def score(self, asked: Asked, inputs: RewardInputs, reward: RemoteReward) -> Scored:
        """Outcomes by sample, and the rows of the requests that failed ``num_attempts`` times.

        Raises InvalidInput for a host that is not allowed, a missing secret and rows that lack what has to be sent.
        """
        headers = await asyncio.to_thread(self._headers, reward)
        batches = [asked[start : start + reward.batch_size] for start in range(0, len(asked), reward.batch_size)]
        outcomes: dict[SampleId, Outcome] = {}
        failures: dict[str, RewardFailed] = {}
        free = asyncio.Semaphore(_REQUESTS_AT_ONCE)

        async def ask(client: httpx.AsyncClient, batch: Asked) -> None:
            async with free:
                try:
                    answered = await self._ask(client, batch, inputs, reward)
                except _Failed as failed:
                    for prompt, _ in batch:
                        failures.setdefault(prompt.row_uid, _error(reward, prompt.row_uid, failed, inputs.num_attempts))
                    return
            outcomes.update(zip((completion.id for _, completion in batch), answered, strict=True))

        # Limits are set for each attempt as a whole.
        async with httpx.AsyncClient(headers=headers, trust_env=False, follow_redirects=False, timeout=None) as client:
            await together(ask(client, batch) for batch in batches)
        return outcomes, failures

    async def _ask(
        self, client: httpx.AsyncClient, batch: Asked, inputs: RewardInputs, reward: RemoteReward
    ) -> list[Outcome]:
        body = await asyncio.to_thread(lambda: json.dumps(request_body(reward, batch)).encode())
        pause_s = self._first_pause_s
        for tries_left in reversed(range(inputs.num_attempts)):
            try:
                async with asyncio.timeout(inputs.timeout_s):
                    answer = await self._post(client, address_of(reward), body)
                return read_answer(reward, json.loads(answer), len(batch))
            except TimeoutError:
                failed = _Failed(f"no answer within {inputs.timeout_s:g} s", timed_out=True)
            except (httpx.TransportError, OSError) as error:
                failed = _Failed(f"{type(error).__name__}: {error}")
            except (ValueError, RecursionError) as error:
                failed = _Failed(str(error) if isinstance(error, BadAnswer) else "its answer is not JSON")
            except _Failed as error:
                failed = error
            if failed.is_final or not tries_left:
                raise failed
            await asyncio.sleep(min(_LONGEST_PAUSE_S, max(pause_s, failed.pause_s)))
            pause_s *= 2
        raise AssertionError("there is at least one attempt")

    async def _post(self, client: httpx.AsyncClient, url: str, body: bytes) -> bytes:
        try:
            target = httpx.URL(url)
            port = target.port or (443 if target.scheme == "https" else 80)
            address = await self._allowed.address_of(target.host, port, self._resolve)
        except (httpx.InvalidURL, UnicodeError) as error:  # the latter: no name that DNS can be asked for
            raise InvalidInput(f"The remote reward's url {url!r} is none: {error}.") from error
        except HostRefused as error:
            raise InvalidInput(f"The remote reward may not be asked: {error}.", host=target.host) from error
        # The name stays in the Host header and, for TLS, in what the certificate is checked against.
        request = client.build_request(
            "POST",
            target.copy_with(host=address),
            content=body,
            headers={"content-type": "application/json", "host": target.netloc.decode("ascii")},
            extensions={"sni_hostname": target.host},
        )
        response = await client.send(request, stream=True)
        try:
            _refuse_status(response)
            return await _read(response)
        finally:
            await response.aclose()

    def _headers(self, reward: RemoteReward) -> dict[str, str]:
        if reward.secret is None:
            return {}
        try:
            secret = (self._secrets_folder / reward.secret).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            # Without the error: one of decoding quotes the content.
            secret = ""
        if not re.fullmatch(r"[!-~]+", secret):
            raise InvalidInput(
                f"There is no secret {reward.secret!r} for the remote reward: mount it as a file of printable "
                "characters in RLHFLESS_SECRETS_DIR"
            )
        return {"authorization": f"Bearer {secret}"}


def _refuse_status(response: httpx.Response) -> None:
    status = response.status_code
    if status == 200:
        return
    if response.is_redirect:
        raise _Failed(f"HTTP {status}: redirects are not followed", is_final=True)
    try:
        pause_s = max(0.0, float(response.headers.get("retry-after", "0")))
    except ValueError:
        pause_s = 0.0
    raise _Failed(f"HTTP {status}", pause_s=pause_s, is_final=status not in _WORTH_A_RETRY)


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _MAX_ANSWER_BYTES:
            raise _Failed(f"its answer has more than {_MAX_ANSWER_BYTES} bytes", is_final=True)
    return bytes(body)


def _error(reward: RemoteReward, row_uid: str, failed: _Failed, num_attempts: int) -> RewardFailed:
    error = RewardTimeout if failed.timed_out else RewardFailed
    tries = "at once" if failed.is_final else f"in each of {num_attempts} attempts"
    return error(
        f"The remote reward at {reward.url} failed on row {row_uid}, {tries}: {failed}. Mend the server, raise "
        'reward.timeout_s, or leave such groups out with on_failure="drop_group".',
        row_uid=row_uid,
        cause=str(failed),
    )
