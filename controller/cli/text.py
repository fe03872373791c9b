"""Values as people read them, safe for a terminal."""

from datetime import datetime

MINUTE_S = 60
HOUR_S = 3600


def printable(text: object) -> str:
    """The text without characters that a terminal acts upon: what a model wrote must not move the cursor."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals, or a dash for one that is not known."""
    return "–" if value is None else f"{value:.{digits}f}"


def duration(seconds: float | None) -> str:
    """``75`` → ``1 min 15 s``."""
    if seconds is None:
        return "–"
    total = round(seconds)
    if total < MINUTE_S:
        return f"{total} s"
    if total < HOUR_S:
        return f"{total // MINUTE_S} min {total % MINUTE_S:02d} s"
    return f"{total // HOUR_S} h {total % HOUR_S // MINUTE_S:02d} min"


def money(usd: float) -> str:
    """Dollars, small amounts to the millionth: a short run on one machine costs less than a cent."""
    return f"{usd:.2f}" if usd >= 1 else f"{usd:.6f}"


def moment(unix_s: float | None) -> str:
    """A Unix time in this machine's time zone."""
    return "–" if unix_s is None else datetime.fromtimestamp(unix_s).strftime("%Y-%m-%d %H:%M:%S")


def size(num_bytes: int) -> str:
    """``1500000`` → ``1.4 MiB``."""
    amount, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
