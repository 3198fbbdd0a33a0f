-- What a request is, decided once at arrival: tenant, length bucket, whether it may be copied, and whether usage must
-- be asked for. Pure: the Envoy handles stay in gate.lua, so that tests run this without a proxy.
local json, sha256 = ...
local M = {}
local find, sub, match, format, tonumber, ceil = string.find, string.sub, string.match, string.format, tonumber, math.ceil

M.MAX_BODY_BYTES = 1024 * 1024 -- longer bodies are neither buffered, nor rewritten, nor copied

-- Paths of generation requests; others pass unmetered.
local INFERENCE = { "/chat/completions", "/completions", "/v1/responses", "/v1/messages", "/generate", "/generate_stream", "/completion" }
local USAGE = { "/chat/completions", "/completions" } -- where `stream_options.include_usage` exists

local function ends_with(path, list)
  for i = 1, #list do
    local tail = list[i]
    if sub(path, -#tail) == tail then return true end
  end
  return false
end

local MAX_KNOWN, MAX_KEY = 10000, 256

-- `make` with a memory: what clients send again and again is worked out once. Long keys are not kept.
local function remembering(make)
  local known, n = {}, 0
  return function(key)
    local found = known[key]
    if found == nil then
      found = make(key)
      if #key > MAX_KEY then return found end
      if n >= MAX_KNOWN then known, n = {}, 0 end
      known[key], n = found, n + 1
    end
    return found
  end
end

-- What a request's target is, under this configuration: {path, is_inference, takes_usage, is_mirrored}.
function M.kind_of(cfg, target)
  if not cfg.kinds then
    cfg.kinds = remembering(function(text)
      local path = match(text, "^[^?#]*")
      local is_mirrored = ends_with(path, cfg.mirror_paths)
      return {
        path = path, is_inference = is_mirrored or ends_with(path, INFERENCE), takes_usage = ends_with(path, USAGE),
        is_mirrored = is_mirrored,
      }
    end)
  end
  return cfg.kinds(target)
end

local clean_name = remembering(function(name) return (string.gsub(sub(name, 1, 64), "[%c\"\\]", "_")) end)

local function clean(name)
  if name == nil or name == "" then return "unknown" end
  return clean_name(name)
end

local digest_of = remembering(function(key) return "key-" .. sub(sha256(key), 1, 16) end)

-- The tenant of a request. get: function(header name) -> value or nil.
function M.tenant(cfg, get, path)
  if cfg.tenant_header then return clean(get(cfg.tenant_header)) end
  if cfg.tenant_path then
    local i = 0
    for segment in string.gmatch(path, "[^/]+") do
      if i == cfg.tenant_path then return clean(segment) end
      i = i + 1
    end
    return "unknown"
  end
  if cfg.tenant_api_key_hash then
    local key = get("authorization") or get("x-api-key") or get("api-key")
    if key == nil or key == "" then return "unknown" end
    return digest_of((string.gsub(key, "^[Bb]earer%s+", "")))
  end
  return "unknown"
end

-- Prompt tokens as far as the size of the body tells, and the bucket they fall into.
function M.estimate(cfg, bytes, model)
  local ratio = cfg.bytes_per_token[model or ""] or cfg.bytes_per_token[""] or 4
  local overhead = cfg.overhead_bytes[model or ""] or cfg.overhead_bytes[""] or 0
  return ceil(math.max(bytes - overhead, 0) / ratio)
end

function M.bucket(cfg, tokens)
  for i = 1, #cfg.edges do
    if tokens <= cfg.edges[i] then return cfg.buckets[i] end
  end
  return cfg.buckets[#cfg.edges + 1]
end

local function text_at(body, at) return at and sub(body, at[1], at[2]) or nil end

local EFFECT_KEYS = { "mcp_servers", "web_search_options", "background", "conversation", "previous_response_id", "container" }

-- Whether answering a second time has effects beyond the answer: stored responses and tools that the server runs.
local function has_effects(body, top)
  if text_at(body, top.store) == "true" then return "store" end
  for i = 1, #EFFECT_KEYS do
    local text = text_at(body, top[EFFECT_KEYS[i]])
    if text and text ~= "null" and text ~= "false" and text ~= "[]" and text ~= "{}" then return "tools" end
  end
  local tools = text_at(body, top.tools)
  if not tools or tools == "null" then return nil end
  local list = json.decode(tools)
  if type(list) ~= "table" then return "tools" end
  for i = 1, #list do
    local tool = list[i]
    -- A tool with a name and a schema runs at the client; every other type runs at the server.
    local is_client = type(tool) == "table" and (tool.type == "function" or (tool.type == nil and tool.input_schema ~= nil))
    if not is_client then return "tools" end
  end
  return nil
end

-- The body with usage asked for; nil where the client asked itself or does not stream.
function M.with_usage(body, top)
  if text_at(body, top.stream) ~= "true" then return nil end
  local at = top.stream_options
  if not at then
    local brace = find(body, "{", 1, true)
    return sub(body, 1, brace) .. '"stream_options":{"include_usage":true},' .. sub(body, brace + 1)
  end
  local options = text_at(body, at)
  local inner = json.top(options)
  if not inner then return sub(body, 1, at[1] - 1) .. '{"include_usage":true}' .. sub(body, at[2] + 1) end
  if text_at(options, inner.include_usage) == "true" then return nil end
  local written
  if inner.include_usage then
    written = sub(options, 1, inner.include_usage[1] - 1) .. "true" .. sub(options, inner.include_usage[2] + 1)
  elseif next(inner) == nil then
    written = '{"include_usage":true}'
  else
    written = '{"include_usage":true,' .. sub(options, 2)
  end
  return sub(body, 1, at[1] - 1) .. written .. sub(body, at[2] + 1)
end

-- Reads a buffered body: {model, stream, usage_body, effects}; nil where it is no JSON object.
function M.inspect(body)
  local top = json.top(body)
  if not top then return nil end
  local model = text_at(body, top.model)
  if model then model = match(model, '^"(.*)"$') end
  if model and #model > 200 then model = nil end
  return { model = model, stream = text_at(body, top.stream) == "true", top = top, effects = has_effects(body, top) }
end

-- Why a request is not copied; nil where it may be.
function M.refusal(cfg, kind, tenant, seen)
  if not kind.is_mirrored then return "path" end
  if cfg.mirror_except[tenant] or not (cfg.mirror_tenants["*"] or cfg.mirror_tenants[tenant]) then return "tenant" end
  if seen.large then return "large" end
  if not seen.body then return "body" end
  return seen.body.effects
end

-- Token bucket of copied bytes: at most one second's worth may burst.
local budget = { left = nil, at = nil }

function M.take_budget(rate, bytes, now)
  if budget.left == nil then budget.left, budget.at = rate, now end
  budget.left = math.min(rate, budget.left + (now - budget.at) * rate)
  budget.at = now
  if budget.left < bytes then return false end
  budget.left = budget.left - bytes
  return true
end

return M
