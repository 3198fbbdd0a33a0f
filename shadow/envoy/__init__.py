"""What Envoy is told: pure builders of its configuration, the filter's Lua, and the xDS server."""
