"""``mild card``: the model card of a router."""

from __future__ import annotations

import mild as library


def test_the_card_is_printed_written_and_given_as_json(mild, fitted, tmp_path):
    done = mild("card", fitted, "--license", "mit")
    assert done.code == 0
    assert done.out == library.load(fitted).card("mit", fitted.name)
    assert mild("card", fitted, "--license", "mit", "--json").json()["card"] == done.out
    target = tmp_path / "card.md"
    assert mild("card", fitted, "--license", "mit", "--out", target).code == 0
    assert target.read_text() == done.out
    refused = mild("card", fitted, "--out", target, "--json")
    assert (refused.code, refused.json()["code"]) == (1, "output_exists")
    refused = mild("card", fitted, "--license", "My own", "--json")
    assert (refused.code, refused.json()["code"]) == (1, "invalid_license")
