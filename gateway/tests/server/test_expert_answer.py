import pytest

from mild_gateway.experts.events import event_data
from mild_gateway.server.expert_answer import is_error


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "down"}}\n\n',
        b'event: error\ndata: {"message": "down"}\n\n',
        b'event:error\ndata: {"message": "down"}\n\n',
        b': busy\r\nevent: error\r\ndata: "down"\r\n\r\n',
        b'id: 1\revent: error\rdata: "down"\r\r',
    ],
)
def test_an_error_is_known_by_its_event_or_its_data(event):
    assert is_error(event, event_data(event))


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": null, "choices": [{"delta": {}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "\\nevent: error\\n"}}]}\n\n',
        b'event: errors\ndata: {"choices": []}\n\n',
        b'event: message\ndata: {"choices": []}\n\n',
    ],
)
def test_what_only_speaks_of_errors_is_none(event):
    assert not is_error(event, event_data(event))
