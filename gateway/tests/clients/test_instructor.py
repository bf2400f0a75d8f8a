"""instructor: models of pydantic as answers, by schema and by tool."""

import pytest
from pydantic import BaseModel, Field

from clients.client_cases import SUM

instructor = pytest.importorskip("instructor")
openai = pytest.importorskip("openai")


class Total(BaseModel):
    total: int = Field(ge=1)
    unit: str | None = None


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_answers_are_instances_of_the_model(gateway, mode):
    with openai.OpenAI(base_url=gateway.api, api_key="none", max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode[mode])
        found, answer = client.chat.completions.create_with_completion(
            model="mild",
            response_model=Total,
            messages=[{"role": "user", "content": SUM}],
            max_retries=0,
        )
    # By schema the answer is the sum; the arguments of a tool are the first number of the question.
    assert found.total == {"TOOLS": 17, "JSON_SCHEMA": 391}[mode]
    assert answer.model == "rules"
