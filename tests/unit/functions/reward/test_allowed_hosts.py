"""Which addresses may be asked."""

import pytest

from functions.reward.allowed_hosts import AllowedHosts, HostRefused

PUBLIC, CLUSTER, METADATA = "93.184.215.14", "10.96.0.7", "169.254.169.254"


async def address(entries: list[str], host: str, *found: str) -> str:
    async def resolve(name: str, port: int) -> list[str]:
        assert (name, port) == (host, 80)
        return list(found)

    return await AllowedHosts.parse(entries).address_of(host, 80, resolve)


async def test_a_named_host_with_a_public_address_is_asked_there() -> None:
    assert await address(["judge.example"], "judge.example", PUBLIC) == PUBLIC
    assert await address(["*.example"], "Judge.Example.", PUBLIC) == PUBLIC
    assert await address([PUBLIC], PUBLIC, PUBLIC) == PUBLIC


async def test_a_private_address_needs_its_network_in_the_list() -> None:
    assert await address(["judge.svc", "10.96.0.0/12"], "judge.svc", CLUSTER) == CLUSTER
    assert await address(["10.96.0.0/12"], "judge.svc", CLUSTER) == CLUSTER
    assert await address(["127.0.0.1", "::1"], "localhost", "::1", "127.0.0.1") == "::1"


@pytest.mark.parametrize(
    ("entries", "host", "found"),
    [
        ([], "judge.example", [PUBLIC]),
        (["other.example"], "judge.example", [PUBLIC]),
        (["*.example"], "example", [PUBLIC]),
        (["*.example"], "evilexample", [PUBLIC]),
        (["judge.example"], "judge.example", [METADATA]),
        (["judge.example"], "judge.example", ["127.0.0.1"]),
        (["judge.example"], "judge.example", [CLUSTER]),
        (["judge.example"], "judge.example", ["::ffff:127.0.0.1"]),
        (["judge.example"], "judge.example", ["fe80::1%eth0"]),
        (["judge.example"], "judge.example", ["fd00::1"]),
        (["judge.example"], "judge.example", ["0.0.0.0"]),
        (["judge.example"], "judge.example", ["224.0.0.1"]),
        (["judge.example"], "judge.example", [PUBLIC, METADATA]),
        (["10.96.0.0/12"], "judge.svc", [CLUSTER, PUBLIC]),
        (["judge.example"], "judge.example", []),
    ],
)
async def test_what_is_refused(entries: list[str], host: str, found: list[str]) -> None:
    with pytest.raises(HostRefused, match=host):
        await address(entries, host, *found)
