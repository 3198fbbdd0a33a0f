"""What the gate decides when a request arrives: lua/request.lua, run in an embedded LuaJIT."""

import hashlib
import json
from typing import Any

import pytest
from lupa import luajit21

from shadow.envoy.routes import make_filter_text
from shadow.envoy.script import lua_source
from tests.unit.shadow.builders import make_config


class Request:
    """The Lua module with Python values."""

    def __init__(self, **config: Any) -> None:
        self.lua = luajit21.LuaRuntime(unpack_returned_tuples=True)
        load = self.lua.eval("function(text, a, b) return assert(loadstring(text))(a, b) end")
        self.json = load(lua_source("json"))
        self.module = load(lua_source("request"), self.json, load(lua_source("sha256")))
        self.sha256 = load(lua_source("sha256"))
        self.config = self.json.decode(make_filter_text(make_config(**config), 0.5))

    def tenant(self, headers: dict[str, str], path: str = "/v1/chat/completions") -> str:
        return str(self.module.tenant(self.config, headers.get, path))

    def refusal(self, body: dict[str, Any] | None, tenant: str = "acme", path: str = "/v1/chat/completions") -> Any:
        seen = self.lua.table()
        if body is not None:
            seen.body = self.module.inspect(json.dumps(body))
        return self.module.refusal(self.config, self.module.kind_of(self.config, path), tenant, seen)

    def with_usage(self, text: str) -> Any:
        return self.module.with_usage(text, self.module.inspect(text).top)


def test_tenant_from_header() -> None:
    request = Request()
    assert request.tenant({"x-tenant": "acme"}) == "acme"
    assert request.tenant({}) == "unknown"
    assert request.tenant({"x-tenant": 'a"b\\c'}) == "a_b_c"


def test_tenant_from_path() -> None:
    request = Request(tenant_header=None, tenant_path=1)
    assert request.tenant({}, "/t/acme/v1/chat/completions") == "acme"


def test_tenant_from_key_never_shows_the_key() -> None:
    request = Request(tenant_header=None, tenant_api_key_hash=True)
    want = "key-" + hashlib.sha256(b"sk-secret").hexdigest()[:16]
    assert request.tenant({"authorization": "Bearer sk-secret"}) == want
    assert request.tenant({"x-api-key": "sk-secret"}) == want


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_sha256(size: int) -> None:
    text = "ab" * (size // 2) + "x" * (size % 2)
    assert Request().sha256(text) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("tokens", "bucket"), [(1, "0-512"), (512, "0-512"), (513, "513-2048"), (2048, "513-2048"), (2049, "2049+")]
)
def test_bucket_edges(tokens: int, bucket: str) -> None:
    request = Request()
    assert request.module.bucket(request.config, tokens) == bucket


def test_estimate_uses_the_models_ratio() -> None:
    request = Request(bytes_per_token=(("", 4.0), ("big", 2.0)))
    assert request.module.estimate(request.config, 1000, "big") == 500
    assert request.module.estimate(request.config, 1000, "other") == 250
    assert request.module.estimate(request.config, 1000, None) == 250


def test_estimate_leaves_out_what_is_no_prompt() -> None:
    request = Request(bytes_per_token=(("", 4.0),), overhead_bytes=(("", 200.0), ("bare", 0.0)))
    assert request.module.estimate(request.config, 1000, "other") == 200
    assert request.module.estimate(request.config, 1000, "bare") == 250
    assert request.module.estimate(request.config, 100, "other") == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"model": "m"}, None),
        ({"model": "m", "tools": [{"type": "function", "function": {"name": "f"}}]}, None),
        ({"model": "m", "tools": []}, None),
        ({"model": "m", "store": False}, None),
        ({"model": "m", "store": True}, "store"),
        ({"model": "m", "tools": [{"type": "web_search"}]}, "tools"),
        ({"model": "m", "tools": [{"type": "function"}, {"type": "mcp", "server_url": "x"}]}, "tools"),
        ({"model": "m", "web_search_options": {"user_location": "x"}}, "tools"),
        (None, "body"),
    ],
)
def test_what_may_not_be_copied(body: dict[str, Any] | None, reason: str | None) -> None:
    assert Request().refusal(body) == reason


def test_tenants_and_paths_that_may_not_be_copied() -> None:
    request = Request(mirror_tenants=("acme", "globex"), mirror_except=("globex",))
    assert request.refusal({"model": "m"}) is None
    assert request.refusal({"model": "m"}, tenant="globex") == "tenant"
    assert request.refusal({"model": "m"}, tenant="other") == "tenant"
    assert request.refusal({"model": "m"}, path="/v1/responses") == "path"


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "stream": True},
        {"stream": True, "stream_options": None},
        {"stream": True, "stream_options": {}},
        {"stream": True, "stream_options": {"include_usage": False}},
        {"stream": True, "stream_options": {"continuous_usage_stats": True}},
        {"messages": [{"content": 'say "stream_options": {"include_usage": true} \\'}], "stream": True},
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_usage_is_asked_for_and_nothing_else_changes(body: dict[str, Any], indent: int | None) -> None:
    written = json.loads(Request().with_usage(json.dumps(body, indent=indent)))
    options = written.pop("stream_options")
    assert options.pop("include_usage") is True
    before = body.get("stream_options") or {}
    assert options == {k: v for k, v in before.items() if k != "include_usage"}
    assert written == {k: v for k, v in body.items() if k != "stream_options"}


@pytest.mark.parametrize(
    "body", [{"stream": False}, {"model": "m"}, {"stream": True, "stream_options": {"include_usage": True}}]
)
def test_usage_is_left_alone(body: dict[str, Any]) -> None:
    assert Request().with_usage(json.dumps(body)) is None


def test_budget_refuses_above_the_rate() -> None:
    take = Request().module.take_budget
    assert take(1000, 900, 1.0) is True
    assert take(1000, 200, 1.0) is False
    assert take(1000, 200, 1.2) is True


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", '{"a":', '{"a":1', '{"model":"m"'])
def test_what_is_no_object_is_not_read(text: str) -> None:
    assert Request().module.inspect(text) is None


BODIES: list[dict[str, Any]] = [
    {"model": "m", "messages": [{"role": "user", "content": 'brackets ]}[{ and \\" quotes'}], "stream": True},
    {"prompt": list(range(2000)), "stream": False, "n": -1.5e3, "stop": None},
    {"messages": [], "tools": [[[]], {}, [{"a": [1, {"b": "]"}]}]], "x": "\u597d"},
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("indent", [None, 0, 2, "\t"])
def test_values_are_found_where_they_stand(body: dict[str, Any], indent: int | str | None) -> None:
    request, text = Request(), json.dumps(body, indent=indent)
    found = request.json.top(text)
    assert {key: json.loads(text[at[1] - 1 : at[2]]) for key, at in found.items()} == body
    for cut in range(1, len(text), 1 + len(text) // 200):
        assert request.json.top(text[:cut]) is None


def test_a_target_is_worked_out_once() -> None:
    request = Request(mirror_paths=("/own/path",))
    kind = request.module.kind_of(request.config, "/v1/chat/completions?x=1")
    assert (kind.path, kind.is_inference, kind.takes_usage, kind.is_mirrored) == (
        "/v1/chat/completions",
        True,
        True,
        False,
    )
    own, other = (request.module.kind_of(request.config, path) for path in ("/own/path", "/v1/models"))
    assert (own.is_inference, own.takes_usage, own.is_mirrored) == (True, False, True)
    assert not other.is_inference
    lua = request.lua
    same = lua.eval("rawequal")
    assert same(kind, request.module.kind_of(request.config, "/v1/chat/completions?x=1"))
    assert not same(*(request.module.kind_of(request.config, "/v1/models?" + "x" * 300) for _ in range(2)))
