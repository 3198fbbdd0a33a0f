"""Listeners: what a client's headers become before anything reads them."""

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import header_mutation_pb2

from shadow.envoy.listeners import GateTimes, make_copies_listener, make_live_listener
from shadow.envoy.script import lua_source


def _manager_of(listener: object) -> hcm_pb2.HttpConnectionManager:
    manager = hcm_pb2.HttpConnectionManager()
    assert listener.filter_chains[0].filters[0].typed_config.Unpack(manager)  # type: ignore[attr-defined]
    return manager


def test_headers_of_our_names_do_not_come_from_clients() -> None:
    (extension,) = _manager_of(make_live_listener("127.0.0.1", 8000, GateTimes())).early_header_mutation_extensions
    early = header_mutation_pb2.HeaderMutation()
    assert extension.typed_config.Unpack(early)
    asked, ours, retries = early.mutations
    assert ours.remove_on_match.key_matcher.prefix == "x-weighlock-"
    assert retries.remove == "x-envoy-retry-on"
    # What a client asks for outlives that under a name that the script reads.
    assert asked.append.header.value == "%REQ(x-weighlock-debug)%"
    assert f'DEBUG = "{asked.append.header.key}"' in lua_source("gate")


def test_copies_keep_what_the_live_side_wrote() -> None:
    assert not _manager_of(make_copies_listener(GateTimes())).early_header_mutation_extensions
