"""Check a configuration against its router, and what is worth knowing before traffic comes."""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from mild.artifact import Router, load, mix_words
from mild.errors import InvalidInputError, MildError, MissingExtraError, UnsupportedError
from mild_gateway.config import CascadeSettings, ServerSettings, Settings, read_settings
from mild_gateway.database import Address, DatabaseError
from mild_gateway.experts.expert import Expert, is_loopback
from mild_gateway.experts.redaction import LONG
from mild_gateway.experts.secrets import SecretError, check_safe_file
from mild_gateway.grading import read_references
from mild_gateway.selection.models import CASCADE, configured_name
from mild_gateway.tracing import import_exporter, is_enabled

# Fields of an expert that are not in the result; some headers are secrets.
_HIDDEN = {*Expert.internal, "headers"}


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """One sentence. With an error nothing can be served; a warning is likely a mistake."""

    kind: Literal["error", "warning", "note"]
    text: str


_error = partial(ConfigFinding, "error")
_warning = partial(ConfigFinding, "warning")
_note = partial(ConfigFinding, "note")


@dataclass(frozen=True)
class ConfigCheck:
    """What ``mild check`` found: the settings, the router, and sentences on both."""

    config: str
    settings: Settings
    folder: Path | None
    router: Router | None
    findings: list[ConfigFinding]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, without any secret; ``ok`` if the gateway could start."""
        settings = self.settings
        experts = {
            expert.name: {"key": None if expert.secret is None else expert.secret.source}
            | TypeAdapter(Expert).dump_python(expert, mode="json", exclude=_HIDDEN)
            for expert in settings.experts
        }
        return {
            "config": self.config,
            "listens": settings.url,
            "workers": settings.workers,
            "router": None if self.folder is None else str(self.folder),
            "router_experts": None if self.router is None else self.router.expert_names,
            "experts": experts,
            "requires_key": settings.requires_key,
            "budget_day": settings.access.budget_day,
            "budget_month": settings.access.budget_month,
            "requests_per_minute": settings.access.requests_per_minute,
            "store": None if settings.store is None else str(settings.store),
            "when_store_lost": "shed" if settings.sheds else "serve",
            "ledger": None if settings.ledger.path is None else str(settings.ledger.path),
            "tracing": is_enabled(settings.tracing),
            "findings": [asdict(finding) for finding in self.findings],
            "ok": not any(finding.kind == "error" for finding in self.findings),
        }


def check_config(
    config: str | os.PathLike[str], router: str | os.PathLike[str] | None = None
) -> ConfigCheck:
    """Read a configuration with its secrets and its router, and say what is worth knowing.

    A PostgreSQL store is read, not changed; no expert is asked and no port is opened.
    """
    settings = read_settings(config)
    folder = settings.router if router is None else Path(router)
    loaded = None if folder is None else load(folder)
    findings = [*_postgres_findings(settings), *_tracing_findings(settings)]
    findings += [*_tls_findings(settings), *_reference_findings(settings)]
    findings += find_problems(settings, loaded)
    return ConfigCheck(os.fspath(config), settings, folder, loaded, findings)


def check_tls(server: ServerSettings) -> None:
    """Refuse a certificate and key that cannot be used; uvicorn would say so in a traceback."""
    if server.tls_certificate is None or server.tls_key is None:
        return

    def refuse_password() -> str:
        raise InvalidInputError(
            f"tls_key must be a key without a passphrase; {server.tls_key} has one.",
            parameter="tls_key",
        )

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.tls_certificate, server.tls_key, refuse_password)
    except OSError as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise InvalidInputError(
            "tls_certificate and tls_key must be PEM files that belong together; "
            f"{server.tls_certificate} and {server.tls_key}: {reason}.",
            parameter="tls_certificate",
        ) from error


def check_against(settings: Settings, router: Router) -> list[ConfigFinding]:
    """What is worth knowing about settings and their router; InvalidInputError names every mismatch."""
    findings = find_problems(settings, router)
    errors = [finding.text for finding in findings if finding.kind == "error"]
    if errors:
        raise InvalidInputError(" ".join(errors))
    return findings


def find_problems(settings: Settings, router: Router | None = None) -> list[ConfigFinding]:
    """Everything that is worth knowing about settings and their router, errors first."""
    findings: list[ConfigFinding] = []
    if router is not None:
        findings += _name_findings(settings, router)
        findings += _fallback_findings(settings, router)
        findings += _ability_findings(settings, router.direct)
        served = _served_router(settings, router)
        findings += _cascade_findings(settings, served)
        findings += _mix_findings(settings, served)
        findings += _novelty_findings(settings, router)
        findings += _target_findings(settings, router)
    findings += _money_findings(settings)
    findings += _session_findings(settings)
    findings += _grading_findings(settings, router)
    findings += _exposure_findings(settings)
    findings += _sqlite_findings(settings)
    findings += map(_note, settings.notes)
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.kind))


def _served_router(settings: Settings, router: Router) -> Router:
    """The router at the target of the settings; as it is saved if there is none, or none it can meet."""
    if settings.routing.target is None:
        return router
    try:
        return router.with_target(settings.routing.target.target)
    except MildError:
        # _target_findings says why.
        return router


def _name_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    given = {expert.name: expert for expert in settings.experts}
    wanted = [configured_name(name) for name in router.expert_names]
    missing = [name for name in dict.fromkeys(wanted) if name not in given]
    extra = [expert for name, expert in given.items() if name not in wanted]
    source = "the settings" if settings.source is None else str(settings.source)
    for name in missing:
        close = difflib.get_close_matches(name, [expert.name for expert in extra], n=1)
        hint = "".join(f" Is it {one!r} ({given[one].place or source})?" for one in close)
        yield _error(
            f"{source} must name every expert of the router ({', '.join(dict.fromkeys(wanted))}); "
            f"{name!r} is missing.{hint}"
        )
    found = _warning if missing else _note
    for expert in extra:
        if expert.role != "fallback":
            yield found(
                f"{expert.place or source}: {expert.name} is not an expert of the router; it answers "
                "only to its own name."
            )


def _fallback_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    names = [expert.name for expert in settings.experts if expert.role == "fallback"]
    if not names:
        return
    if all(name in names for name in router.expert_names):
        yield _error(
            "the router must have an expert to choose, but all of its experts have "
            'role = "fallback".'
        )
    if not settings.routing.fallback:
        yield _warning(f"{', '.join(names)} can only be asked by name: routing.fallback is false.")
        return
    routed = [settings.expert(name) for name in router.expert_names if name not in names]
    attempts = sum(1 + expert.retries for expert in routed if expert is not None)
    if attempts >= settings.routing.max_attempts:
        yield _warning(
            f"{', '.join(names)} may never be asked: the other experts use up "
            f"routing.max_attempts = {settings.routing.max_attempts} if each of them fails "
            f"({attempts} attempts with their retries)."
        )


def _novelty_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    name = settings.routing.on_novel
    if name is None:
        return
    if name not in router.expert_names:
        known = ", ".join(router.expert_names)
        yield _error(
            f"routing.on_novel must be one of the router's experts ({known}); got {name!r}."
        )
    if router.novelty is None:
        yield _error(
            "routing.on_novel needs a router that records how far requests are from its training data; "
            "fit it again with this version of mild."
        )


def _target_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    """Whether the router meets the target, and at which trade-off."""
    place = settings.place("routing", "target")
    known = map(settings.expert, router.expert_names)
    kept_back = [expert.name for expert in known if expert and expert.role == "fallback"]
    if settings.routing.target is None:
        if kept_back and router.info.target is not None:
            yield _warning(
                f"the router's target was solved with every expert; {', '.join(kept_back)} has "
                'role = "fallback" and is not chosen, so quality and dollars will differ.'
            )
        return
    if kept_back:
        yield _error(
            f"{place} needs all experts of the router, because its trade-offs were measured with all "
            f"of them; {', '.join(kept_back)} has "
            'role = "fallback". Remove that role, or use routing.price_weight.'
        )
        return
    try:
        found = router.with_target(settings.routing.target.target)
    except MildError as error:
        yield _error(f"{place} cannot be used: {error}")
    else:
        solved = found.info.target
        if solved is not None:
            # Clients name a trade-off as router-mild-<t>.
            weight = "" if solved.t is None else f" The trade-off is t = {solved.t:g}."
            yield _note(f"{place}: {solved.sentence}{weight}")


def _ability_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    if router.text is None:
        yield _error(
            "the router must read texts, but it was fitted on numbers; save it with its text "
            "features: mild.save(router, folder, text=features)."
        )
    weight = settings.routing.price_weight
    try:
        router.with_prices(price_weight=1.0 if weight is None else weight)
    except (UnsupportedError, InvalidInputError) as error:
        if weight is not None:
            yield _error(f"routing.price_weight = {weight:g} cannot be used: {error}")
        else:
            yield _note(
                "the router has no separate head for prices: the models router-mild-<t> are refused; "
                "the model mild works."
            )


def _cascade_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    policy, names = router.cascade, router.expert_names
    if policy is None:
        if settings.cascade != CascadeSettings():
            yield _warning("[cascade] has no effect: the router is no cascade.")
        return
    if router.mix is None:
        (cascade,) = policy.cascades
        steps = [", ".join(names[k] for k in step) for step in cascade.steps]
        yield _note(
            f"the model mild asks {'; then '.join(steps)}. The model mild-direct asks one expert."
        )
    if settings.expert(CASCADE) is not None:
        yield _error(
            f"no expert must have the name {CASCADE!r}: it stands for the cascade in the ledger."
        )
    asked = map(settings.expert, dict.fromkeys(configured_name(names[k]) for k in policy.order))
    kept_back = [expert.name for expert in asked if expert and expert.role == "fallback"]
    if kept_back:
        yield _warning(
            f'the cascade does not ask {", ".join(kept_back)}, because of role = "fallback"; its answers '
            "count as missing."
        )
    if settings.routing.price_weight is not None:
        yield _warning(
            "routing.price_weight changes only the models mild-direct and router-mild-<t>: the steps and "
            "thresholds of a cascade are those of its training."
        )


def _mix_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    """Which settings the model mild mixes, or that it does not mix them any more."""
    if router.mix is None:
        return
    if settings.routing.price_weight is not None and router.cascade is None:
        yield _warning(
            "routing.price_weight drops the mix of the router: its share was chosen for other prices."
        )
        return
    yield _note(
        f"the model mild mixes two settings: {mix_words(router.mix, router.expert_names)}. The models "
        "router-mild-<t> have no mix."
    )


def _session_findings(settings: Settings) -> Iterator[ConfigFinding]:
    routing = settings.routing
    if routing.session_from_content and not routing.pin_sessions:
        yield _warning("routing.session_from_content has no effect: routing.pin_sessions is false.")
    cached = any(expert.price_cached_in is not None for expert in settings.experts)
    if routing.pin_sessions == "soft" and not cached:
        yield _warning(
            'routing.pin_sessions = "soft" has no effect: no expert has a price_cached_in.'
        )


def _grading_findings(settings: Settings, router: Router | None) -> Iterator[ConfigFinding]:
    grading, place = settings.grading, partial(settings.place, "grading")
    if grading is None:
        return
    if settings.ledger.path is None:
        yield _error(f"{place('method')} needs a ledger, where the scores are kept.")
    if grading.method == "exact":
        if grading.references is None:
            yield _error(f"{place('references')} must name a file of right answers.")
        return
    known = [expert.name for expert in settings.experts]
    expert = settings.expert(grading.expert or "")
    if expert is None:
        rule = f"must be one of the experts ({', '.join(known)})"
        yield _error(f"{place('expert')} {rule}; got {grading.expert!r}.")
        return
    if router is not None and expert.name in router.expert_names:
        yield _warning(
            f"{place('expert')}: {expert.name} is an expert of the router, and does not grade its own "
            "answers: nothing is learned about them here."
        )


def _reference_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """A file of right answers that cannot be used."""
    grading = settings.grading
    if grading is not None and grading.method == "exact" and grading.references is not None:
        try:
            read_references(grading)
        except MildError as error:
            yield _error(f"{settings.place('grading', 'references')}: {error}")


def _money_findings(settings: Settings) -> Iterator[ConfigFinding]:
    access = settings.access
    free = [expert.name for expert in settings.experts if not expert.price.known]
    if free and len(free) < len(settings.experts):
        yield _warning(f"no price is given for {', '.join(free)}: counted as 0.")
    elif free and (access.budget_day is not None or access.budget_month is not None):
        yield _warning("no expert has a price: the budgets cannot be reached.")
    elif free:
        yield _note("no expert has a price: spend is counted as 0.")
    for expert in settings.experts:
        if (expert.price_in is None) != (expert.price_out is None):
            lacking = "price_in" if expert.price_in is None else "price_out"
            yield _warning(f"{_place(expert)}{expert.name} has no {lacking}: counted as 0.")
    day, month = access.budget_day, access.budget_month
    if day is not None and month is not None and day > month:
        yield _warning(f"access.budget_day (${day:g}) is above access.budget_month (${month:g}).")


def _exposure_findings(settings: Settings) -> Iterator[ConfigFinding]:
    for expert in settings.experts:
        parts = urlsplit(expert.base_url)
        exposed = parts.scheme == "http" and not is_loopback(parts.hostname or "")
        if exposed and expert.secret is not None:
            yield _warning(
                f"{_place(expert)}the key of {expert.name} is sent unencrypted, over http://."
            )
        if expert.secret is not None and len(expert.secret.value) < LONG:
            yield _warning(
                f"{_place(expert)}the key of {expert.name} is too short to be redacted from answers "
                f"(fewer than {LONG} characters); it is redacted from error messages only."
            )
    if not settings.requires_key and not is_loopback(settings.host):
        yield _warning(
            f"anyone who can reach {settings.host} can spend money: access.require_key is false."
        )
    if settings.page == "public" and settings.ledger.keep_text and not is_loopback(settings.host):
        yield _warning(
            f"anyone who can reach {settings.host} can read the last requests on the status page without "
            'a key: page is "public" and ledger.keep_text is true.'
        )
    if settings.ledger.keep_text:
        yield _note("the ledger keeps the text of every request: ledger.keep_text.")
    elif settings.ledger.keep_features:
        yield _note(
            "the ledger keeps features of every text, which may reveal words of it: ledger.keep_features."
        )


def _sqlite_findings(settings: Settings) -> Iterator[ConfigFinding]:
    access, path = settings.access, settings.ledger.path
    if isinstance(settings.store, Address) and path is not None and not isinstance(path, Address):
        yield _note(
            "the ledger is a file on this machine only, although the store is shared: ledger.path."
        )
    if access.lost_allowance and settings.sheds:
        yield _warning(
            "access.lost_allowance has no effect: requests are refused while the store cannot be reached "
            '(access.when_store_lost = "serve" uses it).'
        )


def _place(expert: Expert) -> str:
    return f"{expert.place}: " if expert.place else ""


def _postgres_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """Problems of a PostgreSQL store; an SQLite file is created when it is needed."""
    address = settings.store
    if not isinstance(address, Address):
        return
    from mild_gateway.database.engine import SCHEMA, inspect_database

    try:
        version = inspect_database(address)
    except DatabaseError as error:
        yield _error(f"{address.shown}: the store cannot be used: {error}.")
    except MildError as error:
        yield _error(str(error))
    else:
        if version < SCHEMA:
            yield _note(f"{address.shown}: its tables are created at the first start.")


def _tracing_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """The extra that traces need, where it is missing."""
    if settings.tracing.enabled or settings.tracing.endpoint:
        try:
            import_exporter()
        except MissingExtraError as error:
            yield _error(str(error))


def _tls_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """Certificate and key that cannot be used, and a key that others can read."""
    try:
        check_tls(settings.server)
        if settings.server.tls_key is not None:
            place = settings.place("server", "tls_key")
            check_safe_file(settings.server.tls_key.stat(), f"{place} names a file")
    except InvalidInputError as error:
        yield _error(str(error))
    except SecretError as error:
        yield _warning(f"{error}.")
