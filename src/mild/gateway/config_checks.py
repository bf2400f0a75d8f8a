"""Check a configuration against its router, and what is worth knowing before traffic comes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from mild.endpoints.expert import Expert, is_loopback
from mild.errors import InvalidInputError, MildError, UnsupportedError
from mild.gateway.config import Settings
from mild.gateway.database.address import Address

if TYPE_CHECKING:
    from mild.artifact import Router


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence. With an error nothing can be served; a warning is likely a mistake."""

    kind: Literal["error", "warning", "note"]
    text: str


_error = partial(Finding, "error")
_warning = partial(Finding, "warning")
_note = partial(Finding, "note")


def check_against(settings: Settings, router: Router) -> list[Finding]:
    """What is worth knowing about settings and their router; InvalidInputError names every mismatch."""
    findings = findings_against(settings, router)
    errors = [finding.text for finding in findings if finding.kind == "error"]
    if errors:
        raise InvalidInputError(" ".join(errors))
    return findings


def findings_against(settings: Settings, router: Router) -> list[Finding]:
    """Everything that is worth knowing about settings and their router, errors first."""
    findings = [
        *_names(settings, router),
        *_fallbacks(settings, router),
        *_abilities(settings, router),
        *_novel(settings, router),
        *_target(settings, router),
        *findings_in(settings),
    ]
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: order.index(finding.kind))


def findings_in(settings: Settings) -> list[Finding]:
    """What is worth knowing about the settings alone."""
    return [
        *_money(settings),
        *_sessions(settings),
        *_exposure(settings),
        *_store(settings),
        *map(_note, settings.notes),
    ]


def _names(settings: Settings, router: Router) -> Iterator[Finding]:
    given = {expert.name: expert for expert in settings.experts}
    missing = [name for name in router.expert_names if name not in given]
    extra = [expert for name, expert in given.items() if name not in router.expert_names]
    source = "the settings" if settings.source is None else str(settings.source)
    for name in missing:
        close = difflib.get_close_matches(name, [expert.name for expert in extra], n=1)
        hint = ""
        if close:
            hint = f" Is it the one called {close[0]!r} ({given[close[0]].place or source})?"
        yield _error(
            f"{source} must name every expert of the router ({', '.join(router.expert_names)}); "
            f"{name!r} is missing.{hint}"
        )
    for expert in extra:
        if expert.role == "fallback":
            continue
        yield Finding(
            "warning" if missing else "note",
            f"{expert.place or source}: {expert.name} is not an expert of the router; it answers "
            "only to its own name.",
        )


def _fallbacks(settings: Settings, router: Router) -> Iterator[Finding]:
    names = [expert.name for expert in settings.experts if expert.role == "fallback"]
    if not names:
        return
    if all(name in names for name in router.expert_names):
        yield _error(
            "the router must have an expert to choose, but all of its experts have "
            'role = "fallback".'
        )
    if not settings.routing.fallback:
        yield _warning(f"{', '.join(names)} can be asked by name only: routing.fallback is false.")
        return
    routed = [settings.expert(name) for name in router.expert_names if name not in names]
    attempts = sum(1 + expert.retries for expert in routed if expert is not None)
    if attempts >= settings.routing.max_attempts:
        yield _warning(
            f"{', '.join(names)} may never be asked: the other experts use up "
            f"routing.max_attempts = {settings.routing.max_attempts} where each fails "
            f"({attempts} attempts with their retries)."
        )


def _novel(settings: Settings, router: Router) -> Iterator[Finding]:
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


def _target(settings: Settings, router: Router) -> Iterator[Finding]:
    """Whether the router meets the target, and at which trade-off."""
    place = settings.place("routing", "target")
    kept_back = [
        expert.name
        for expert in settings.experts
        if expert.role == "fallback" and expert.name in router.expert_names
    ]
    if settings.routing.target is None:
        if kept_back and router.info.target is not None:
            yield _warning(
                f"the router's target was solved with every expert; {', '.join(kept_back)} has "
                'role = "fallback" and is not chosen, so quality and dollars will be others.'
            )
        return
    if kept_back:
        yield _error(
            f"{place} needs every expert of the router among those that may be chosen: what its "
            f"trade-offs do is known for all of them together; {', '.join(kept_back)} has "
            'role = "fallback". Take away that role, or use routing.price_weight.'
        )
        return
    try:
        found = router.with_target(settings.routing.target.target)
    except MildError as error:
        yield _error(f"{place} cannot be used: {error}")
    else:
        if found.info.target is not None:
            yield _note(f"{place}: {found.info.target.sentence}")


def _abilities(settings: Settings, router: Router) -> Iterator[Finding]:
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
                "the router has no separate head for prices: router-mild-<t> is refused, "
                "model mild works."
            )


def _sessions(settings: Settings) -> Iterator[Finding]:
    routing = settings.routing
    if routing.session_from_content and not routing.pin_sessions:
        yield _warning("routing.session_from_content has no effect: routing.pin_sessions is false.")
    cached = any(expert.price_cached_in is not None for expert in settings.experts)
    if routing.pin_sessions == "soft" and not cached:
        yield _warning(
            'routing.pin_sessions = "soft" keeps no conversation with its expert: no expert has a '
            "price_cached_in."
        )


def _money(settings: Settings) -> Iterator[Finding]:
    access = settings.access
    free = [expert.name for expert in settings.experts if not expert.price.known]
    if free and len(free) < len(settings.experts):
        yield _warning(f"no price is given for {', '.join(free)}: counted as free.")
    elif free and (access.budget_day is not None or access.budget_month is not None):
        yield _warning("no expert has a price: the budgets cannot be reached.")
    elif free:
        yield _note("no expert has a price: spend is counted as 0.")
    for expert in settings.experts:
        if (expert.price_in is None) != (expert.price_out is None):
            lacking = "price_in" if expert.price_in is None else "price_out"
            yield _warning(f"{_place(expert)}{expert.name} has no {lacking}: it is taken as 0.")
    day, month = access.budget_day, access.budget_month
    if day is not None and month is not None and day > month:
        yield _warning(f"access.budget_day (${day:g}) is above access.budget_month (${month:g}).")


def _exposure(settings: Settings) -> Iterator[Finding]:
    for expert in settings.experts:
        parts = urlsplit(expert.base_url)
        exposed = parts.scheme == "http" and not is_loopback(parts.hostname or "")
        if exposed and expert.secret is not None:
            yield _warning(
                f"{_place(expert)}the key of {expert.name} travels unencrypted: http://."
            )
    if not settings.requires_key and not is_loopback(settings.host):
        yield _warning(
            f"anyone who reaches {settings.host} can spend: access.require_key is false."
        )
    if settings.page == "public" and settings.ledger.keep_text and not is_loopback(settings.host):
        yield _warning(
            f"anyone who reaches {settings.host} reads the last requests on the page, without a key: "
            'page is "public" and ledger.keep_text is true.'
        )
    if settings.ledger.keep_text:
        yield _note("the ledger keeps the text of every request: ledger.keep_text.")


def _store(settings: Settings) -> Iterator[Finding]:
    access, path = settings.access, settings.ledger.path
    if isinstance(settings.store, Address) and path is not None and not isinstance(path, Address):
        yield _note(
            "the ledger is a file of this machine alone, though the store is shared: ledger.path."
        )
    if access.lost_allowance and settings.sheds:
        yield _warning(
            "access.lost_allowance is never spent: requests are shed while the store is lost "
            '(access.when_store_lost = "serve" would use it).'
        )


def _place(expert: Expert) -> str:
    return f"{expert.place}: " if expert.place else ""
