"""The `AdmissionLimits` block: what it accepts, and what the library takes from it."""

from __future__ import annotations

import uuid

import pytest

from blocks import AdmissionLimits, EndpointLimit
from headgate.admission import request_key
from headgate.admission.bank import Outage
from headgate.core import Model


def test_a_limit_without_a_name_is_called_by_the_host_of_its_endpoint() -> None:
    endpoints = ("api.example.com", "https://API.example.com/v1", "http://127.0.0.1:8000/v1", "http://[::1]:8000/v1")
    block = AdmissionLimits(limits=[EndpointLimit(endpoint=endpoint, slots=4) for endpoint in endpoints])
    assert [rule.name for rule in block.rules()] == [
        "headgate:api.example.com",
        "headgate:api.example.com",
        "headgate:127.0.0.1:8000",
        "headgate:[::1]:8000",
    ]


@pytest.mark.parametrize(
    ("endpoint", "provider", "is_covered"),
    [
        ("api.example.com", "https://api.example.com/v1", True),
        ("api.example.com", "https://api.example.com/v1#1a2b3c4d", True),
        ("api.example.com", "https://api.example.com:8443/v1", False),
        ("api.example.com", "https://other.example.com/v1", False),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1", True),
        ("*.example.com", "https://api.example.com/v1", True),
        ("https://api.example.com/v1", "https://api.example.com/v1#1a2b3c4d", True),
        ("https://api.example.com/v1/", "https://api.example.com/v1", True),
        ("https://api.example.com", "https://api.example.com/v1", True),
        ("https://api.example.com/v1", "https://api.example.com/v10", False),
        ("[::1]:8000", "http://[::1]:8000/v1", True),
        ("http://[::1]:8000", "http://[::1]:8000/v1", True),
        ("[::1]:*", "http://[::1]:8000/v1", True),
        ("[::1]:8000", "http://[::2]:8000/v1", False),
    ],
)
def test_an_endpoint_covers_what_lies_below_it(endpoint: str, provider: str, is_covered: bool) -> None:
    assert EndpointLimit(endpoint=endpoint, slots=4, limit="x").rule().covers(provider) is is_covered


def test_a_limit_covers_a_model_at_an_ipv6_address() -> None:
    model = Model("m", base_url="http://[::1]:8000/v1")
    assert EndpointLimit(endpoint="[::1]:8000", slots=4).rule().covers(request_key(model).account.provider)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"endpoint": "*.example.com", "slots": 4}, "has no name"),
        ({"endpoint": "[::1", "slots": 4}, "the limit of endpoint '\\[::1' has no name"),
        ({"endpoint": "", "slots": 4}, "endpoint"),
        ({"endpoint": "a", "slots": -1}, "slots"),
        ({"endpoint": "a", "slots": 4, "per_process": 0}, "per_process"),
        ({"endpoint": "a", "slots": 4, "model_caps": {"m": 0}}, "cap of 'm' at 'a' must be >= 1"),
        ({"endpoint": "a", "slots": 4, "limit": "a/b"}, "has '/'"),
        ({"endpoint": "a", "slots": 4, "slot": 4}, "slot"),
    ],
)
def test_limits_that_cannot_work_are_refused_where_they_are_written(entry: dict[str, object], told: str) -> None:
    with pytest.raises(Exception, match=told):
        AdmissionLimits(limits=[entry])


@pytest.mark.parametrize("field", [{"lease_s": 59}, {"block_slots": 0}, {"outage": "panic"}])
def test_rules_that_cannot_work_are_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        AdmissionLimits(limits=[], **field)


async def test_a_saved_block_says_the_same_when_it_is_loaded(prefect: object) -> None:
    name = f"b-{uuid.uuid4().hex[:8]}"
    caps = {"vendor/large": 4}
    entry = EndpointLimit(endpoint="*.example.com", slots=64, limit="ours", per_process=16, model_caps=caps)
    await AdmissionLimits(limits=[entry], block_slots=4, lease_s=90, outage="stop").asave(name)
    block = await AdmissionLimits.aload(name)
    (rule,) = block.rules()
    assert (rule.name, rule.slots, rule.most, dict(rule.model_caps)) == ("ours", 64, 16, caps)
    assert (block.bank_rules().block, block.bank_rules().lease_s) == (4, 90.0)
    assert block.bank_rules().outage is Outage.STOP
