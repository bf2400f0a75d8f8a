"""Check a configuration against its router, and what is worth knowing before traffic comes."""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from mild.errors import InvalidInputError, MildError, MissingExtraError, UnsupportedError
from mild_gateway import decide
from mild_gateway.config import CascadeSettings, ServerSettings, Settings, read_settings
from mild_gateway.database import Address, DatabaseError
from mild_gateway.decide import Router
from mild_gateway.experts.expert import RETRIES, Expert, is_loopback
from mild_gateway.experts.secrets import SecretError, check_safe_file
from mild_gateway.grading import read_references
from mild_gateway.selection.models import (
    CASCADE,
    CASCADE_MODEL,
    ROUTER_MODEL,
    configured_name,
    without_endpoint,
)
from mild_gateway.tracing import import_exporter, is_enabled

# Fields of an expert that are not in the result; some headers are secrets.
_HIDDEN = {*Expert.internal, "headers"}
# Names that a sentence lists.
_MOST_LISTED = 5


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
        router_experts = None
        if self.router is not None:
            router_experts = self.router.experts
        is_ok = not any(finding.kind == "error" for finding in self.findings)
        return {
            "config": self.config,
            "listens": settings.url,
            "workers": settings.workers,
            "router": _text_or_none(self.folder),
            "router_experts": router_experts,
            "experts": {expert.name: _expert_document(expert) for expert in settings.experts},
            "requires_key": settings.requires_key,
            "budget_day": settings.access.budget_day,
            "budget_month": settings.access.budget_month,
            "requests_per_minute": settings.access.requests_per_minute,
            "store": _text_or_none(settings.store),
            "ledger": _text_or_none(settings.ledger.path),
            "tracing": is_enabled(settings.tracing),
            "findings": [asdict(finding) for finding in self.findings],
            "ok": is_ok,
        }


def _text_or_none(value: object) -> str | None:
    if value is None:
        return None
    return str(value)


def _expert_document(expert: Expert) -> dict[str, Any]:
    """The settings of an expert, and where its key is from."""
    document: dict[str, Any] = {"key": None}
    if expert.secret is not None:
        document["key"] = expert.secret.source
    document |= TypeAdapter(Expert).dump_python(expert, mode="json", exclude=_HIDDEN)
    return document


def check_config(
    config: str | os.PathLike[str], router: str | os.PathLike[str] | None = None
) -> ConfigCheck:
    """Read a configuration with its secrets and its router, and say what is worth knowing.

    A PostgreSQL store is read, not changed; no expert is asked and no port is opened.
    """
    settings = read_settings(config)
    folder = settings.router
    if router is not None:
        folder = Path(router)
    loaded = None
    if folder is not None:
        loaded = decide.load_router(folder)
    findings: list[ConfigFinding] = []
    findings += _store_findings(settings)
    findings += _tracing_findings(settings)
    findings += _tls_findings(settings)
    findings += _reference_findings(settings)
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


def exposure_warning(settings: Settings) -> str | None:
    """A sentence, where the gateway listens on a public address without a reverse proxy or TLS."""
    server = settings.server
    if is_loopback(settings.host) or server.trusted_proxies or server.tls_certificate is not None:
        return None
    return (
        f"the gateway listens on {settings.host}, in the clear, and no reverse proxy is named: put one in "
        "front of it, which limits slow and many connections, and name its address in "
        "server.trusted_proxies; or set server.tls_certificate and server.tls_key."
    )


def find_problems(settings: Settings, router: Router | None = None) -> list[ConfigFinding]:
    """Everything that is worth knowing about settings and their router, errors first."""
    findings: list[ConfigFinding] = []
    if router is not None:
        findings += _name_findings(settings, router)
        findings += _fallback_findings(settings, router)
        findings += _ability_findings(settings, decide.direct_router(router))
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
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.kind))


def _served_router(settings: Settings, router: Router) -> Router:
    """The router at the target of the settings; as it is saved if there is none, or none it can meet."""
    if settings.routing.target is None:
        return router
    try:
        return decide.at_target(router, settings.routing.target.target)
    except MildError:
        # _target_findings says why.
        return router


def _name_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    """Experts of the router without an endpoint, and endpoints that the router does not know."""
    router_names = list(dict.fromkeys(map(configured_name, router.experts)))
    missing = without_endpoint(router_names, _names(settings))
    unknown = [expert for expert in settings.experts if expert.name not in router_names]
    source = "the settings"
    if settings.source is not None:
        source = str(settings.source)
    hints = _likely_names(missing, unknown, source)
    kind_of_unknown = _note
    if missing:
        kind_of_unknown = _warning
    if len(missing) == len(router_names):
        yield _error(
            f"{source} must have an endpoint for at least one expert of the router "
            f"({_listed(router_names)}); it has none.{hints}"
        )
    elif missing:
        yield _warning(
            f"{source} has no endpoint for {len(missing)} of the {len(router_names)} experts of the "
            f"router, which decides without them: {_listed(missing)}.{hints}"
        )
    for expert in unknown:
        if expert.role != "fallback":
            yield kind_of_unknown(
                f"{expert.defined_at or source}: {expert.name} is not an expert of the router; it answers "
                "only to its own name."
            )


def _likely_names(missing: Sequence[str], unknown: Sequence[Expert], source: str) -> str:
    """Questions about names that are probably misspelled, each with a space before it."""
    origins = {expert.name: expert.defined_at or source for expert in unknown}
    questions = ""
    for name in missing:
        for close in difflib.get_close_matches(name, origins, n=1):
            questions += f" Is {name!r} the one called {close!r} ({origins[close]})?"
    return questions


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are.

    >>> _listed(["a", "b"]), _listed(list("abcdefgh"))
    ('a, b', 'a, b, c, d, e and 3 more')
    """
    if len(names) <= _MOST_LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_LISTED])} and {len(names) - _MOST_LISTED} more"


def _names(settings: Settings) -> list[str]:
    """Names of the experts of the settings."""
    return [expert.name for expert in settings.experts]


def _fallbacks_among(settings: Settings, names: Iterable[str]) -> list[str]:
    """Those of the names whose experts are kept back for failures."""
    fallbacks = []
    for name in names:
        expert = settings.expert(name)
        if expert is not None and expert.role == "fallback":
            fallbacks.append(name)
    return fallbacks


def _present(settings: Settings, router: Router) -> list[int]:
    """Indices of the router's experts that have an endpoint."""
    absent = without_endpoint(router.experts, _names(settings))
    return [k for k, name in enumerate(router.experts) if name not in absent]


def _fallback_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    names = _fallbacks_among(settings, _names(settings))
    if not names:
        return
    present = {router.experts[k] for k in _present(settings, router)}
    if present and present <= set(names):
        yield _error(
            "the router must have an expert to choose, but all of its experts have "
            'role = "fallback".'
        )
    if settings.routing.max_attempts == 1:
        yield _warning(f"{', '.join(names)} can only be asked by name: routing.max_attempts is 1.")
        return
    n_routed = len(set(router.experts) - set(names))
    attempts = n_routed * (1 + RETRIES)
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
    if name not in router.experts:
        known = ", ".join(router.experts)
        yield _error(
            f"routing.on_novel must be one of the router's experts ({known}); got {name!r}."
        )
    elif settings.expert(name) is None:
        yield _error(f"routing.on_novel must have an endpoint; {name!r} has none.")
    if not decide.knows_novelty(router):
        yield _error(
            "routing.on_novel needs a router that records how far requests are from its training data; "
            "fit it with `mild tune` or `mild fit`."
        )


def _target_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    """Whether the router meets the target, and at which trade-off."""
    key = settings.key_with_line("routing", "target")
    kept_back = _fallbacks_among(settings, router.experts)
    if settings.routing.target is None:
        if kept_back and decide.has_target(router):
            yield _warning(
                f"the router's target was solved with every expert; {', '.join(kept_back)} has "
                'role = "fallback" and is not chosen, so quality and dollars will differ.'
            )
        return
    if kept_back:
        yield _error(
            f"{key} needs all experts of the router, because its trade-offs were measured with all "
            f"of them; {', '.join(kept_back)} has "
            'role = "fallback". Remove that role, or use routing.price_weight.'
        )
        return
    try:
        solved = decide.at_target(router, settings.routing.target.target)
    except MildError as error:
        yield _error(f"{key} cannot be used: {error}")
        return
    sentence = f"{key}: {decide.target_of(solved)}"
    trade_off = decide.trade_off_of(solved)
    if trade_off is not None:
        # Clients name a trade-off as router-mild-<t>.
        sentence += f" The trade-off is t = {trade_off:g}."
    yield _note(sentence)


def _ability_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    if decide.input_of(router) == "numbers":
        yield _error(
            "the router must read texts, but it was fitted on numbers; save it with its text "
            "features: mild.save(router, folder, text=features)."
        )
    elif decide.input_of(router) == "vectors":
        yield _error(
            "the router must read texts, but it was fitted on vectors, which requests do not have; fit it "
            "on texts, or with text features that compute the vectors."
        )
    weight = settings.routing.price_weight
    tried_weight = 1.0
    if weight is not None:
        tried_weight = weight
    try:
        decide.at_price_weight(router, tried_weight)
    except (UnsupportedError, InvalidInputError) as error:
        if weight is not None:
            yield _error(f"routing.price_weight = {weight:g} cannot be used: {error}")
        else:
            yield _note(
                "the router has no separate head for prices: the models router-mild-<t> are refused; "
                "the model mild works."
            )


def _cascade_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    cascade = decide.cascade_of(router)
    if cascade is None:
        if settings.cascade != CascadeSettings():
            yield _warning("[cascade] has no effect: the router is no cascade.")
        return
    if not decide.mixes(router):
        yield _step_finding(settings, router, decide.drawn_cascade(cascade, None))
    if settings.expert(CASCADE) is not None:
        yield _error(
            f"no expert must have the name {CASCADE!r}: it stands for the cascade in the ledger."
        )
    asked_names = [configured_name(router.experts[k]) for k in decide.asked_experts(cascade)]
    kept_back = _fallbacks_among(settings, dict.fromkeys(asked_names))
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


def _step_finding(settings: Settings, router: Router, cascade: decide.Cascade) -> ConfigFinding:
    """Whom the cascade asks in each step."""
    model = ROUTER_MODEL
    if settings.cascade_by_name:
        model = CASCADE_MODEL
    served = decide.restricted_to(cascade, _present(settings, router))
    if served is None:
        return _warning(
            f"the cascade asks only experts without an endpoint: the model {model} asks one expert."
        )
    steps = [", ".join(router.experts[k] for k in step) for step in decide.steps_of(served)]
    return _note(
        f"the model {model} asks {'; then '.join(steps)}. The model mild-direct asks one expert."
    )


def _mix_findings(settings: Settings, router: Router) -> Iterator[ConfigFinding]:
    """Which settings the model mild mixes, or that it does not mix them any more."""
    if not decide.mixes(router):
        return
    if settings.routing.price_weight is not None and decide.cascade_of(router) is None:
        yield _warning(
            "routing.price_weight drops the mix of the router: its share was chosen for other prices."
        )
        return
    yield _note(
        f"the model mild mixes two settings: {decide.mix_in_words(router)}. The models "
        "router-mild-<t> have no mix."
    )


def _session_findings(settings: Settings) -> Iterator[ConfigFinding]:
    routing = settings.routing
    if routing.session_from_content and not routing.pin_sessions:
        yield _warning("routing.session_from_content has no effect: routing.pin_sessions is false.")
    has_cache_price = any(expert.price_cached_in is not None for expert in settings.experts)
    if routing.pin_sessions == "soft" and not has_cache_price:
        yield _warning(
            'routing.pin_sessions = "soft" has no effect: no expert has a price_cached_in.'
        )


def _grading_findings(settings: Settings, router: Router | None) -> Iterator[ConfigFinding]:
    grading = settings.grading
    key = partial(settings.key_with_line, "grading")
    if grading is None:
        return
    if settings.ledger.path is None:
        yield _error(f"{key('method')} needs a ledger, where the scores are kept.")
    if grading.method == "exact":
        if grading.references is None:
            yield _error(f"{key('references')} must name a file of right answers.")
        return
    expert = settings.expert(grading.expert or "")
    if expert is None:
        rule = f"must be one of the experts ({', '.join(_names(settings))})"
        yield _error(f"{key('expert')} {rule}; got {grading.expert!r}.")
        return
    if router is not None and expert.name in router.experts:
        yield _warning(
            f"{key('expert')}: {expert.name} is an expert of the router, and does not grade its own "
            "answers: nothing is learned about them here."
        )


def _reference_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """A file of right answers that cannot be used."""
    grading = settings.grading
    if grading is not None and grading.method == "exact" and grading.references is not None:
        try:
            read_references(grading)
        except MildError as error:
            yield _error(f"{settings.key_with_line('grading', 'references')}: {error}")


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
            lacking = "price_out"
            if expert.price_in is None:
                lacking = "price_in"
            yield _warning(f"{_origin(expert)}{expert.name} has no {lacking}: counted as 0.")
    day = access.budget_day
    month = access.budget_month
    if day is not None and month is not None and day > month:
        yield _warning(f"access.budget_day (${day:g}) is above access.budget_month (${month:g}).")


def _exposure_findings(settings: Settings) -> Iterator[ConfigFinding]:
    for expert in settings.experts:
        address = urlsplit(expert.base_url)
        is_exposed = address.scheme == "http" and not is_loopback(address.hostname or "")
        if is_exposed and expert.secret is not None:
            yield _warning(
                f"{_origin(expert)}the key of {expert.name} is sent unencrypted, over http://."
            )
    if not settings.requires_key and not is_loopback(settings.host):
        yield _warning(
            f"anyone who can reach {settings.host} can spend money: access.require_key is false."
        )
    warning = exposure_warning(settings)
    if warning is not None:
        yield _warning(warning)
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
    path = settings.ledger.path
    if isinstance(settings.store, Address) and path is not None and not isinstance(path, Address):
        yield _note(
            "the ledger is a file on this machine only, although the store is shared: ledger.path."
        )


def _origin(expert: Expert) -> str:
    """File and line of an expert, to begin a message with; empty if it is not from a file."""
    if not expert.defined_at:
        return ""
    return f"{expert.defined_at}: "


def _store_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """Problems of store and ledger; an SQLite file that is not there is created when it is needed."""
    from mild_gateway.database.engine import inspect_database, shown_place
    from mild_gateway.database.schema import SCHEMA

    # Both may be one PostgreSQL database.
    for location in dict.fromkeys((settings.store, settings.ledger.path)):
        if location is None:
            continue
        if not isinstance(location, Address) and not Path(location).is_file():
            continue
        shown = shown_place(location)
        try:
            schema = inspect_database(location)
        except DatabaseError as error:
            yield _error(f"{shown}: the store cannot be used: {error}.")
        except MildError as error:
            yield _error(str(error))
        else:
            if schema < SCHEMA:
                yield _note(f"{shown}: its tables are created at the first start.")


def _tracing_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """The extra that traces need, where it is missing."""
    if settings.tracing.endpoint is not None:
        try:
            import_exporter()
        except MissingExtraError as error:
            yield _error(str(error))


def _tls_findings(settings: Settings) -> Iterator[ConfigFinding]:
    """Certificate and key that cannot be used, and a key that others can read."""
    try:
        check_tls(settings.server)
        if settings.server.tls_key is not None:
            key = settings.key_with_line("server", "tls_key")
            check_safe_file(settings.server.tls_key.stat(), f"{key} names a file")
    except InvalidInputError as error:
        yield _error(str(error))
    except SecretError as error:
        yield _warning(f"{error}.")
