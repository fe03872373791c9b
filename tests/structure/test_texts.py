"""What holds for every committed text: it installs from wherever the reader installs from, and its links lead on."""

import re
from pathlib import Path
from urllib.parse import unquote

from tests.structure.source_tree import ROOT, text_of, tracked_files

# Joined here, so that this file does not name them either.
REGISTRY_DOMAINS = [
    ".".join(labels)
    for labels in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("conda", "anaconda", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
    ]
]

LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
ABSOLUTE = re.compile(r"[a-z][a-z+.-]*:")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Anchors of a Markdown file's headings, as the usual viewers make them."""
    headings = HEADING.findall(FENCE.sub("", text_of(path)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_on(target: str, source: Path) -> bool:
    """True if a link of a Markdown file leads to a file, and heading if it names one, of the repository."""
    name, _, anchor = target.partition("#")
    place = (ROOT / source.parent / unquote(name)).resolve() if name else ROOT / source
    if not place.exists() or not place.is_relative_to(ROOT):
        return False
    return not anchor or place.suffix != ".md" or anchor in anchors(place.relative_to(ROOT))


def test_no_file_names_a_package_registry() -> None:
    named = [f"{path}: {host}" for path in tracked_files() for host in REGISTRY_DOMAINS if host in text_of(path)]
    assert named == []


def test_links_resolve() -> None:
    found = [
        f"{path}: {target}"
        for path in tracked_files()
        if path.suffix == ".md"
        for target in LINK.findall(FENCE.sub("", text_of(path)))
        if not ABSOLUTE.match(target) and not leads_on(target, path)
    ]
    assert not found, "\n".join(found)
