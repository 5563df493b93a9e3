"""Where a database is, in words without its password; psycopg is imported only when there is an address to look at."""

from __future__ import annotations

_PORT = "5432"


def place_of(url: str) -> str:
    """Return where a database is, as in `db.internal:5432/shop`, from an address that can be used."""
    known = {**_defaults(), **read_address(url)}
    hosts = (known.get("host") or known.get("hostaddr") or "local socket").split(",")
    ports = known.get("port", _PORT).split(",")
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    addresses = ",".join(f"{_host(host)}:{port or _PORT}" for host, port in zip(hosts, ports, strict=False))
    return f"{addresses}/{known.get('dbname') or known.get('user', '')}"


def read_address(url: str) -> dict[str, str]:
    """Return the parts of an address, by libpq's names; raise `psycopg.Error` for one that cannot be read."""
    from psycopg.conninfo import conninfo_to_dict

    return {name: str(value) for name, value in conninfo_to_dict(url).items()}


def _defaults() -> dict[str, str]:
    """Return what libpq takes from its own variables, such as `PGHOST`, and from the user's name."""
    from psycopg.pq import Conninfo

    return {option.keyword.decode(): option.val.decode() for option in Conninfo.get_defaults() if option.val}


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
