"""A program asks through a ``litellm.Router``, in which a router of mild chooses the model.

The model server tells which model was asked what.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import contextmanager

import litellm
import pytest
from litellm.types.router import RouterRateLimitError

from journeys.adapter import ROUTER
from journeys.world import PRICES
from journeys_litellm import adapter
from journeys_litellm.asking import FOLLOW_UP, IMAGE, conversations, models_asked, user
from mild.errors import MildError


def llm_router(models, names=tuple(PRICES), **settings):
    """LiteLLM's router of these experts, which does not try again."""
    deployments = []
    for name in names:
        # The provider for endpoints that know chat completions and nothing else.
        params = {"model": f"custom_openai/{name}", "api_base": models.url, "api_key": "none"}
        deployments.append({"model_name": name, "litellm_params": params})
    return litellm.Router(model_list=deployments, num_retries=0, **settings)


@contextmanager
def failing(models, name, status):
    """Let a model answer with an error."""
    models.set_rules(name, {"status": status})
    try:
        yield
    finally:
        models.set_rules(name)


@pytest.fixture
def program(models, tuned):
    """LiteLLM's router with that of mild in it."""
    router = llm_router(models)
    adapter.attach(tuned.folder, router)
    return router


def ask(program, text):
    """The answer to a question."""
    return program.completion(adapter.MODEL, [user(text)]).choices[0].message.content


def joined(chunks):
    """The text of a stream."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def test_every_question_goes_to_the_model_that_mild_route_names(program, models, tuned):
    with models_asked(models) as asked:
        for text in tuned.choices:
            # The models repeat what they are asked.
            assert ask(program, text) == text
    assert asked == list(tuned.choices.items())
    with models_asked(models) as asked:
        for text in tuned.choices:
            assert joined(program.completion(adapter.MODEL, [user(text)], stream=True)) == text
    assert asked == list(tuned.choices.items())


async def test_so_does_every_question_of_many_at_a_time(program, models, tuned):
    async def answer(text):
        answer = await program.acompletion(adapter.MODEL, [user(text)])
        return answer.choices[0].message.content

    async def stream(text):
        chunks = await program.acompletion(adapter.MODEL, [user(text)], stream=True)
        return joined([chunk async for chunk in chunks])

    for way in (answer, stream):
        with models_asked(models) as asked:
            assert await asyncio.gather(*map(way, tuned.choices)) == list(tuned.choices)
        assert sorted(asked) == sorted(tuned.choices.items())


def test_the_last_text_of_the_user_decides(program, models, tuned):
    for name, text in tuned.one_for_each.items():
        (other, *_) = [found for key, found in tuned.one_for_each.items() if key != name]
        for kind, messages in conversations(text, other).items():
            with models_asked(models) as asked:
                program.completion(adapter.MODEL, messages)
            assert [model for _, model in asked] == [name], kind
    # Without a text there is still an answer.
    with models_asked(models) as asked:
        program.completion(adapter.MODEL, [user([IMAGE])])
    assert [model in PRICES for _, model in asked] == [True]


def test_all_texts_of_the_user_decide_if_so_set(program, models, tuned):
    reads_all = llm_router(models)
    adapter.attach(tuned.folder, reads_all, text="all")
    for name, text in tuned.one_for_each.items():
        if name != tuned.of_follow_up:
            question = {"role": "assistant", "content": "Exactly?"}
            messages = [user(text), question, user(FOLLOW_UP)]
            with models_asked(models) as asked:
                program.completion(adapter.MODEL, messages)
                reads_all.completion(adapter.MODEL, messages)
            assert asked == [(FOLLOW_UP, tuned.of_follow_up), (FOLLOW_UP, name)]


async def test_other_apis_are_routed_by_their_texts(program, models, tuned):
    for name, text in tuned.one_for_each.items():
        parts = [user([{"type": "input_text", "text": text}])]
        with models_asked(models) as asked:
            await program.atext_completion(adapter.MODEL, text)
            await program.aresponses(model=adapter.MODEL, input=text)
            await program.aresponses(model=adapter.MODEL, input=parts)
        assert asked == [(text, name)] * 3


def test_a_model_that_is_named_is_asked(program, models, tuned):
    for text, chosen in tuned.choices.items():
        for name in PRICES:
            if name != chosen:
                with models_asked(models) as asked:
                    program.completion(name, [user(text)])
                assert asked == [(text, name)]
    with models_asked(models) as asked, pytest.raises(litellm.BadRequestError):
        program.completion("nobody", [user("Hello")])
    assert asked == []


def test_an_expert_that_cools_down_is_passed_over_for_the_next_best(models, tuned):
    program = llm_router(models, allowed_fails=0, cooldown_time=3600)
    adapter.attach(tuned.folder, program)
    text, order = next(iter(tuned.orders.items()))
    for name in order:
        with models_asked(models) as asked:
            assert ask(program, text) == text
            asyncio.run(program.acompletion(adapter.MODEL, [user(text)]))
        assert asked == [(text, name)] * 2
        with failing(models, name, 429), pytest.raises(litellm.RateLimitError):
            ask(program, text)
    # Nobody is left: LiteLLM's own error.
    with models_asked(models) as asked, pytest.raises(RouterRateLimitError):
        ask(program, text)
    assert asked == []


def test_fallbacks_are_litellms(models, tuned):
    for name, text in tuned.one_for_each.items():
        other = tuned.orders[text][-1]
        program = llm_router(models, fallbacks=[{adapter.MODEL: [other]}])
        adapter.attach(tuned.folder, program)
        with failing(models, name, 500), models_asked(models) as asked:
            assert ask(program, text) == text
        assert asked == [(text, name), (text, other)]


def test_a_router_that_was_read_needs_its_folder_no_more(models, tuned, tmp_path):
    shutil.copytree(tuned.folder / ROUTER, tmp_path / ROUTER)
    program = llm_router(models)
    adapter.attach(tmp_path, program)
    shutil.rmtree(tmp_path / ROUTER)
    with models_asked(models) as asked:
        for text in tuned.choices:
            ask(program, text)
    assert asked == list(tuned.choices.items())


def test_what_cannot_choose_is_refused_before_anything_is_asked(models, tuned, tmp_path):
    def refusal(folder, router):
        with pytest.raises(MildError) as caught:
            adapter.attach(folder, router)
        return caught.value.code

    assert refusal(tmp_path, llm_router(models)) == adapter.NO_ROUTER
    shutil.copytree(tuned.folder / ROUTER, tmp_path / ROUTER)
    for path in (tmp_path / ROUTER).rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
    assert refusal(tmp_path, llm_router(models)) == adapter.NO_ROUTER
    # LiteLLM lacks an expert, and goes on without the router.
    others = list(PRICES)[1:]
    without = llm_router(models, others)
    assert refusal(tuned.folder, without) == adapter.EXPERT_MISSING
    with models_asked(models) as asked:
        without.completion(others[0], [user("Hello")])
    assert asked == [("Hello", others[0])]


def test_of_a_cascade_the_best_expert_is_asked_directly(models, tuned_cascade):
    program = llm_router(models)
    adapter.attach(tuned_cascade.folder, program)
    with models_asked(models) as asked:
        for text in tuned_cascade.choices:
            program.completion(adapter.DIRECT, [user(text)])
    assert asked == list(tuned_cascade.choices.items())
