"""Which revisions are forgotten."""

from controller.platforms.local.revision_garbage import NUM_KEPT, outdated


def test_the_newest_unreferenced_are_kept() -> None:
    names = [f"rollout-{number:05d}" for number in range(1, 26)]
    assert NUM_KEPT == 20
    assert outdated(names, {names[-1]}) == names[:4]
    assert outdated(names, {names[-1], names[0], names[2]}) == [names[1], names[3]]
    assert outdated(names[:20], {names[19]}) == []
