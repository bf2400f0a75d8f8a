"""Settings beside a router: what is missing, what cannot work, what is worth knowing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gateway_cases import cascade_router, knowing, priced_router, trading_router
from mild.artifact import Router
from mild.artifact.facts import mix_words
from mild.errors import InvalidInputError
from mild.features import HashingFeatures
from mild.policies import ConstantPolicy, MixPolicy
from mild_gateway.config import (
    AccessSettings,
    CascadeSettings,
    LedgerSettings,
    RoutingSettings,
    ServerSettings,
    Settings,
    TargetSettings,
)
from mild_gateway.config_checks import check_against, find_problems
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.secrets import Secret

KEY = Secret("0123456789ab", "a test")
BEHIND_A_PROXY = ServerSettings(trusted_proxies=("10.0.0.0/8",))


def expert(name, **more):
    return Expert(
        name,
        "http://127.0.0.1:1/v1",
        "m",
        price_in=1.0,
        price_out=1.0,
        defined_at="mild.toml, line 3",
        **more,
    )


def router(*names, text=True):
    step = HashingFeatures().fit(["a b", "b c"]) if text else None
    return Router(ConstantPolicy(np.linspace(0.1, 0.2, len(names)), 1), list(names), text=step)


def settings(*names, **more):
    experts = tuple(expert(name) for name in names)
    return Settings(experts=experts, source=Path("mild.toml"), **more)


def texts(findings, kind):
    return [finding.text for finding in findings if finding.kind == kind]


def test_settings_that_fit_leave_notes_only():
    findings = check_against(settings("small", "large"), router("small", "large"))
    assert {finding.kind for finding in findings} <= {"note"}


def test_experts_without_an_endpoint_are_one_warning_with_a_likely_misspelling():
    findings = check_against(settings("smal", "large"), router("small", "large", "huge"))
    assert texts(findings, "warning") == [
        "mild.toml has no endpoint for 2 of the 3 experts of the router, which decides without them: "
        "small, huge. Is 'small' the one called 'smal' (mild.toml, line 3)?",
        "mild.toml, line 3: smal is not an expert of the router; it answers only to its own name.",
    ]


def test_a_router_without_any_endpoint_is_one_error():
    names = [f"expert {number}" for number in range(17)]
    with pytest.raises(InvalidInputError) as caught:
        check_against(settings("other"), router(*names))
    assert str(caught.value) == (
        "mild.toml must have an endpoint for at least one expert of the router "
        "(expert 0, expert 1, expert 2, expert 3, expert 4 and 12 more); it has none."
    )


def test_a_cascade_of_three_experts_of_seventeen_needs_three_endpoints():
    names = tuple(f"expert {number}" for number in range(17))
    cascade = cascade_router(names, steps=((0, 1), (2,)))
    findings = check_against(settings(*names[:3]), cascade)
    (warning,) = texts(findings, "warning")
    assert "no endpoint for 14 of the 17 experts" in warning
    assert len(warning) < 200


def test_a_cascade_whose_experts_have_no_endpoint_is_a_warning():
    cascade = cascade_router(("a", "b", "c", "d"), steps=((0, 1), (2,)))
    findings = check_against(settings("d"), cascade)
    assert any(
        "asks only experts without an endpoint" in text for text in texts(findings, "warning")
    )


def test_novel_texts_need_an_expert_with_an_endpoint():
    given = settings("small", routing=RoutingSettings(on_novel="large"))
    with pytest.raises(
        InvalidInputError, match=r"on_novel must have an endpoint; 'large' has none"
    ):
        check_against(given, knowing(priced_router()))


def test_an_expert_that_the_router_does_not_know_is_a_note():
    findings = check_against(settings("a", "b", "c"), router("a", "b"))
    assert (
        "mild.toml, line 3: c is not an expert of the router; it answers only to its own name."
        in texts(findings, "note")
    )


def test_a_router_of_numbers_cannot_read_texts():
    with pytest.raises(InvalidInputError, match="must read texts"):
        check_against(settings("a", "b"), router("a", "b", text=False))


def test_a_price_weight_needs_a_head_for_prices():
    given = settings("a", "b", routing=RoutingSettings(price_weight=0.5))
    with pytest.raises(InvalidInputError, match=r"routing\.price_weight = 0\.5 cannot be used"):
        check_against(given, router("a", "b"))


@pytest.mark.parametrize(
    ("wanted", "tuned", "said"),
    [
        ({"max_dollars": 0.5}, True, "is not expected to be met"),
        ({"max_dollars": 2.0}, False, "tune it again"),
    ],
)
def test_a_target_that_the_router_does_not_reach_is_named_with_its_line(wanted, tuned, said):
    routing = RoutingSettings(target=TargetSettings(**wanted))
    given = settings("small", "large", routing=routing, lines={("routing", "target"): 7})
    with pytest.raises(InvalidInputError) as caught:
        check_against(given, trading_router() if tuned else priced_router())
    assert str(caught.value).startswith("mild.toml, line 7: routing.target cannot be used:")
    assert said in str(caught.value)


def test_a_target_that_is_reached_is_told_with_its_trade_off():
    routing = RoutingSettings(target=TargetSettings(max_dollars=4.0))
    findings = check_against(settings("small", "large", routing=routing), trading_router())
    assert any("t = 5" in text for text in texts(findings, "note"))


def test_a_target_needs_every_expert_of_the_router_to_be_chosen():
    routing = RoutingSettings(target=TargetSettings(max_dollars=4.0))
    given = Settings(
        (expert("small"), expert("large", role="fallback")),
        routing=routing,
        source=Path("mild.toml"),
        lines={("routing", "target"): 7},
    )
    (text,) = texts(find_problems(given, trading_router()), "error")
    assert text.startswith("mild.toml, line 7: routing.target needs all experts")
    free = (expert("small"), expert("large"), expert("backup", role="fallback"))
    assert not texts(find_problems(replace(given, experts=free), trading_router()), "error")


def test_a_saved_target_with_an_expert_that_is_not_chosen_is_a_warning():
    experts = (expert("small"), expert("large", role="fallback"))
    for target, count in (({"t": 5.0}, 1), (None, 0)):
        router = trading_router()
        saved = replace(router, info=router.info.with_notes({"target": target}))
        found = texts(find_problems(Settings(experts), saved), "warning")
        assert len([text for text in found if "the router's target" in text]) == count


def test_errors_come_first():
    findings = find_problems(settings("c"), router("a", "b", text=False))
    kinds = [finding.kind for finding in findings]
    assert kinds == sorted(kinds, key=["error", "warning", "note"].index)
    assert kinds.count("error") == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            Settings((expert("a"), replace(expert("b"), price_in=None, price_out=None))),
            "no price is given for b: counted as 0.",
        ),
        (
            Settings((replace(expert("a"), price_out=None),)),
            "mild.toml, line 3: a has no price_out: counted as 0.",
        ),
        (
            Settings(
                (replace(expert("a"), price_in=None, price_out=None),),
                access=AccessSettings(budget_day=1.0),
            ),
            "no expert has a price: the budgets cannot be reached.",
        ),
        (
            settings("a", access=AccessSettings(budget_day=5.0, budget_month=2.0)),
            "access.budget_day ($5) is above access.budget_month ($2).",
        ),
        (
            settings(
                "a", host="0.0.0.0", access=AccessSettings(require_key=False), server=BEHIND_A_PROXY
            ),
            "anyone who can reach 0.0.0.0 can spend money: access.require_key is false.",
        ),
        (
            settings(
                "a",
                host="0.0.0.0",
                page="public",
                ledger=LedgerSettings(keep_text=True),
                server=BEHIND_A_PROXY,
            ),
            "anyone who can reach 0.0.0.0 can read the last requests on the status page without a key: "
            'page is "public" and ledger.keep_text is true.',
        ),
        (
            Settings((replace(expert("a", secret=KEY), base_url="http://far.example/v1"),)),
            "mild.toml, line 3: the key of a is sent unencrypted, over http://.",
        ),
    ],
)
def test_likely_mistakes_are_warnings(given, said):
    assert texts(find_problems(given), "warning") == [said]


@pytest.mark.parametrize(
    ("host", "server", "warnings"),
    [
        ("0.0.0.0", ServerSettings(), 1),
        ("192.0.2.7", ServerSettings(), 1),
        ("127.0.0.1", ServerSettings(), 0),
        ("0.0.0.0", BEHIND_A_PROXY, 0),
        ("0.0.0.0", ServerSettings(tls_certificate="c.pem", tls_key="k.pem"), 0),
    ],
)
def test_a_public_address_without_a_proxy_or_tls_is_a_warning(host, server, warnings):
    found = texts(find_problems(settings("a", host=host, server=server)), "warning")
    assert len(found) == warnings
    for text in found:
        assert text.startswith(f"the gateway listens on {host}, in the clear")
        assert "server.trusted_proxies" in text


def test_a_ledger_that_keeps_texts_is_noted():
    keeping = settings("a", ledger=LedgerSettings(keep_text=True))
    assert texts(find_problems(keeping), "note") == [
        "the ledger keeps the text of every request: ledger.keep_text."
    ]


@pytest.mark.parametrize(
    ("name", "record", "errors"), [("a", True, 0), ("b", True, 1), ("a", False, 1), ("b", False, 2)]
)
def test_an_expert_for_novel_requests_must_be_the_routers_and_the_router_must_know(
    name, record, errors
):
    wanted = settings("a", "b", routing=RoutingSettings(on_novel=name))
    given = knowing(priced_router(("a",), (0.1,), (0.0,)))
    found = find_problems(wanted, given if record else replace(given, novelty=None))
    assert [finding.kind for finding in found].count("error") == errors


def with_fallback(*names, **routing):
    backup = expert("backup", role="fallback")
    routed = tuple(expert(name) for name in names)
    return Settings(experts=(*routed, backup), routing=RoutingSettings(**routing))


def test_a_fallback_need_not_be_the_routers():
    findings = find_problems(with_fallback("a", "b", max_attempts=6), router("a", "b"))
    assert not [finding for finding in findings if "backup" in finding.text]


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        (with_fallback("a", max_attempts=1), "warning", "can only be asked by name"),
        (with_fallback("a", "b"), "warning", "may never be asked: the other experts use up"),
        (with_fallback("a", max_attempts=2), "warning", "(2 attempts with their"),
    ],
)
def test_a_fallback_that_is_never_asked_is_a_warning(given, kind, said):
    names = [one.name for one in given.experts if one.role == "routed"]
    (text,) = texts(find_problems(given, router(*names)), kind)
    assert said in text
    assert text.startswith("backup ")


def test_a_router_needs_an_expert_that_is_no_fallback():
    with pytest.raises(InvalidInputError, match="an expert to choose"):
        check_against(with_fallback(), router("backup"))


@pytest.mark.parametrize(
    ("routing", "said"),
    [
        (
            {"session_from_content": True, "pin_sessions": False},
            "session_from_content has no effect",
        ),
        ({"pin_sessions": "soft"}, "no expert has a price_cached_in"),
    ],
)
def test_settings_of_sessions_without_effect_are_warnings(routing, said):
    (text,) = texts(find_problems(settings("a", routing=RoutingSettings(**routing))), "warning")
    assert said in text


def cascade_findings(*experts, **parts):
    names = ("small", "small#2", "large")
    settings = Settings(experts=tuple(experts), **parts)
    found = find_problems(settings, cascade_router(names))
    return {
        kind: [one.text for one in found if one.kind == kind]
        for kind in ("error", "warning", "note")
    }


def test_samples_of_a_cascade_are_calls_of_a_configured_expert():
    found = cascade_findings(expert("small"), expert("large"))
    assert found["error"] == found["warning"] == []
    assert any("mild asks small, small#2; then large." in text for text in found["note"])


def test_an_expert_of_a_cascade_without_an_endpoint_is_not_asked():
    found = cascade_findings(expert("large"))
    assert found["error"] == []
    assert any("no endpoint for 1 of the 2 experts" in text for text in found["warning"])
    assert any("mild asks large." in text for text in found["note"])


def test_a_mix_is_described_and_a_price_weight_that_drops_it_is_told():
    router = priced_router()
    policy = MixPolicy(router.policy, router.policy.with_prices(price_weight=9.0), 0.25, "salt")
    router = replace(router, policy=policy)
    for weight in (None, 2.0):
        settings = Settings(
            experts=(expert("small"), expert("large")), routing=RoutingSettings(price_weight=weight)
        )
        found = [(one.kind, one.text) for one in find_problems(settings, router)]
        notes = " ".join(text for kind, text in found if kind == "note")
        said = "25 % of the queries: a router with price weight 9; 75 %" in notes
        assert said == (weight is None), "a mix that is dropped is not described"
        warned = any("drops the mix" in text for kind, text in found if kind == "warning")
        assert warned == (weight is not None)


def test_the_mix_that_is_described_is_that_of_the_target():
    saved = trading_router().with_target(keep_quality=0.85)
    routing = RoutingSettings(target=TargetSettings(keep_quality=0.99))
    served = saved.with_target(keep_quality=0.99)
    assert saved.mix.share != served.mix.share
    notes = texts(find_problems(settings("small", "large", routing=routing), saved), "note")
    (said,) = [text for text in notes if "mixes two settings" in text]
    assert mix_words(served.mix, served.experts) in said
    # At this target the router has no mix.
    routing = RoutingSettings(target=TargetSettings(max_dollars=4.0))
    notes = texts(find_problems(settings("small", "large", routing=routing), saved), "note")
    assert not any("mixes two settings" in text for text in notes)


def test_what_a_cascade_does_not_use_is_told():
    spare = expert("large", role="fallback")
    routing, cascade = RoutingSettings(price_weight=1.0), CascadeSettings(stream="direct")
    found = cascade_findings(expert("small"), spare, expert("cascade"), routing=routing)
    assert any("no expert must have the name 'cascade'" in text for text in found["error"])
    assert any("does not ask large" in text for text in found["warning"])
    assert any("price_weight changes only" in text for text in found["warning"])
    plain = find_problems(Settings(experts=(expert("small"),), cascade=cascade), priced_router())
    assert any("[cascade] has no effect" in one.text for one in plain)
