-- The filter's two entry points, as Envoy calls them. Everything about one stream travels in the dynamic metadata
-- `weighlock`: `arrival` (fixed at arrival) and `meter` (rewritten while the stream runs, so that a request that never
-- ends is known too). The configuration comes with the route, so that a change of it never touches a listener.
local json, frames, stream, request = ...
local byte, find, format, sub, tonumber = string.byte, string.find, string.format, string.sub, tonumber
local NAMESPACE = "weighlock"
local DEBUG = "weighlock-debug" -- what a client's `x-weighlock-debug` has become by now: see listeners.py
local SAVE_EVERY = 1.0 -- seconds between two writes of a running stream's reading
local MAX_JSON_BYTES = 1024 * 1024

-- Memory is collected in few large steps and late: small ones between the frames of hundreds of streams push each
-- other's data out of the processor's cache.
collectgarbage("setpause", 400)
collectgarbage("setstepmul", 1000)

-- Seconds, monotonic where it can be.
local function now(h) return tonumber(h:timestampString(EnvoyTimestampResolution.MICROSECOND)) / 1e6 end

local ok, ffi = pcall(require, "ffi")
if ok then
  ffi.cdef("typedef struct { long s; long ns; } weighlock_time; int clock_gettime(int, weighlock_time *);")
  local t = ffi.new("weighlock_time")
  now = function()
    ffi.C.clock_gettime(1, t)
    return tonumber(t.s) + tonumber(t.ns) / 1e9
  end
end

-- Functions of this file leave Lua with every second call, where compiled code ends: compiling them costs more than it
-- saves. What they call is compiled, and so is the clock, whose call is slow otherwise.
if jit then
  jit.off(true, true)
  jit.on(now)
end

local is_light = false

-- Handles of bodies hold two references and have nothing to free: without a finaliser they are collected at a part of
-- the price, and there is one for every frame.
local function make_light(body)
  if is_light then return end
  getmetatable(body).__gc, is_light = nil, true
end

local MAX_CONFIGS = 64
local configs, configs_n = {}, 0 -- by text: the routes of a plan differ, and their requests come mixed

local function config_of(h)
  local text = h:metadata():get("config")
  if text == nil then return nil end
  local found = configs[text]
  if not found then
    if configs_n >= MAX_CONFIGS then configs, configs_n = {}, 0 end
    found = json.decode(text)
    configs[text], configs_n = found, configs_n + 1
  end
  return found
end

local serial, salt = 0, nil

-- An id of our own: clients may send any request id twice.
local function new_id(h)
  if not salt then
    local place = string.match(tostring({}), "0x(%x+)") or "0"
    salt = format("%x%s", tonumber(h:timestampString(EnvoyTimestampResolution.MICROSECOND)), sub(place, -6))
  end
  serial = serial + 1
  return format("%s-%x", salt, serial)
end

local function metadata(h) return h:streamInfo():dynamicMetadata() end

-- Metadata are written as JSON text: a nested table would be copied field by field at every hand-over. Texts inside are
-- either cleaned or still escaped as they came, so they need no escaping here. Times are whole microseconds, and a text
-- is written by one format of whole numbers where it can be: every other way runs through more code, which has left the
-- processor's cache since the last request.
local function text_field(name, value)
  return value and ',"' .. name .. '":"' .. value .. '"' or ""
end

local function number_field(name, value)
  return value and format(',"%s":%d', name, value) or ""
end

-- It begins with what the response needs: three flags and the time of the arrival (see `arrival_of`).
local function save_arrival(h, a)
  local stream = ""
  if a.stream ~= nil then stream = a.stream and ',"stream":true' or ',"stream":false' end
  local text = format('{"at":"%s%s%s%d"%s%s%s%s%s%s%s%s}', a.id and "m" or "-", a.hide and "h" or "-", a.debug and "d" or "-",
    a.t0 * 1e6 + 0.5, text_field("id", a.id), text_field("tenant", a.tenant), text_field("bucket", a.bucket), number_field("tokens", a.tokens),
    number_field("bytes", a.bytes), text_field("model", a.model), stream, text_field("skip", a.skip))
  metadata(h):set(NAMESPACE, "arrival", text)
end

-- What the request left: when it arrived, and whether it is metered, its usage hidden, its variant shown; nil where it
-- left nothing.
local function arrival_of(h)
  local own = metadata(h):get(NAMESPACE)
  local text = own and own.arrival
  if not text then return nil end
  local metered, hides, shows = byte(text, 8, 10)
  return tonumber(sub(text, 11, find(text, '"', 11, true) - 1)) / 1e6, metered == 109, hides == 104, shows == 100
end

-- Reads the body where it is small enough to be held; asks for usage where that is wanted.
local function read_body(h, headers, cfg, kind, arrival)
  local length = tonumber(headers:get("content-length"))
  if length == nil or length > request.MAX_BODY_BYTES or headers:get("content-encoding") then
    return { large = true, bytes = length }
  end
  local buffer = h:body()
  if buffer == nil then return { bytes = 0 } end
  local bytes = buffer:length()
  local text = buffer:getBytes(0, bytes)
  local body = request.inspect(text)
  if body and cfg.include_usage and kind.takes_usage then
    local written = request.with_usage(text, body.top)
    if written then
      -- Handles that were fetched before the filter waited are void: fetch them again.
      h:headers():replace("content-length", tostring(buffer:setBytes(written)))
      arrival.hide = true
    end
  end
  return { bytes = bytes, body = body }
end

-- A body without a length passes through; its size is known when it has passed.
local function count_body(h)
  local bytes = 0
  for chunk in h:bodyChunks() do bytes = bytes + chunk:length() end
  return bytes
end

local function finish_late(h, cfg, arrival)
  arrival.tokens = request.estimate(cfg, count_body(h), nil)
  arrival.bucket = request.bucket(cfg, arrival.tokens)
  save_arrival(h, arrival)
end

local function decide_copy(headers, cfg, kind, arrival, seen, at)
  local refused = request.refusal(cfg, kind, arrival.tenant, seen)
  if seen.body and not seen.body.effects and kind.takes_usage then
    headers:replace("x-envoy-retry-on", "reset") -- it can be run again on another pod without harm
  end
  if cfg.copy_share <= 0 then return false end
  if not refused and not request.take_budget(cfg.mirror_rate, seen.bytes * cfg.copy_share, at) then refused = "budget" end
  if refused then
    arrival.skip = refused
    return false
  end
  headers:add("x-weighlock-copy", "1")
  headers:add("x-weighlock-pair", arrival.id)
  headers:add("x-weighlock-bucket", arrival.bucket)
  headers:add("x-weighlock-tokens", tostring(arrival.tokens))
  return true
end

local function on_live_request(h, headers, cfg, at)
  local debug = headers:get(DEBUG) == "1"
  if debug then headers:remove(DEBUG) end
  local kind = request.kind_of(cfg, headers:get(":path") or "")
  local arrival = { t0 = at, debug = debug }
  if not kind.is_inference or headers:get(":method") ~= "POST" then
    save_arrival(h, arrival)
    return
  end
  arrival.id = new_id(h)
  arrival.tenant = request.tenant(cfg, function(name) return headers:get(name) end, kind.path)
  headers:remove("accept-encoding") -- a compressed stream cannot be read
  local seen = read_body(h, headers, cfg, kind, arrival)
  headers = h:headers()
  if seen.body then arrival.model, arrival.stream = seen.body.model, seen.body.stream end
  if seen.bytes then
    arrival.bytes = seen.bytes
    arrival.tokens = request.estimate(cfg, seen.bytes, arrival.model)
    arrival.bucket = request.bucket(cfg, arrival.tokens)
  end
  headers:add("x-weighlock-tenant", arrival.tenant)
  headers:add("x-weighlock-kind", "live")
  if decide_copy(headers, cfg, kind, arrival, seen, at) then h:clearRouteCache() end
  save_arrival(h, arrival)
  if not seen.bytes then finish_late(h, cfg, arrival) end
end

-- A copy: what it is was decided when the live request arrived.
local function on_copy(h, headers, cfg, at)
  headers:replace("x-weighlock-kind", cfg.kind)
  save_arrival(h, {
    t0 = at, id = headers:get("x-weighlock-pair"), tenant = headers:get("x-weighlock-tenant"),
    bucket = headers:get("x-weighlock-bucket"), tokens = tonumber(headers:get("x-weighlock-tokens")),
  })
end

function envoy_on_request(h)
  local cfg = config_of(h)
  if cfg == nil then return end
  local at = now(h)
  local headers = h:headers()
  if cfg.kind then return on_copy(h, headers, cfg, at) end
  return on_live_request(h, headers, cfg, at)
end

local reasons, reasons_n = {}, 0

-- A finish reason as it may stand in a text.
local function reason_of(finish)
  local found = reasons[finish]
  if not found then
    if reasons_n >= 1000 then reasons, reasons_n = {}, 0 end
    found = sub(string.gsub(finish, "[%c\"\\]", "_"), 1, 40)
    reasons[finish], reasons_n = found, reasons_n + 1
  end
  return found
end

local COUNTS = '{"gaps":%d,"events":%d,"content":%d,"chunks":%d,"source":"%s","stream":%s'
local FIRST = COUNTS .. ',"ttft":%de-6,"last":%de-6'
local TIMES = FIRST .. ',"gap":%de-6,"gap_at":%de-6'

local function told(m)
  local t0 = m.start
  if m.gap then
    return format(TIMES, m.gaps, m.events, m.content, m.chunks, m.source, "true", (m.first_at - t0) * 1e6 + 0.5,
      (m.last_at - t0) * 1e6 + 0.5, m.gap * 1e6 + 0.5, (m.gap_at - t0) * 1e6 + 0.5)
  end
  if m.first_at then
    return format(FIRST, m.gaps, m.events, m.content, m.chunks, m.source, "true", (m.first_at - t0) * 1e6 + 0.5, (m.last_at - t0) * 1e6 + 0.5)
  end
  return format(COUNTS, m.gaps, m.events, m.content, m.chunks, m.source, "true")
end

local function save(h, m, ended, is_stream)
  local text = is_stream and told(m) or format(COUNTS, m.gaps, m.events, m.content, m.chunks, m.source, "false")
  local tokens = m.source ~= "none" and number_field("prompt", m.prompt) .. number_field("output", m.output) or ""
  local ending = ""
  if ended then
    ending = text_field("finish", m.finish and reason_of(m.finish)) .. text_field("model", m.model) .. text_field("outcome", stream.outcome(m))
  end
  metadata(h):set(NAMESPACE, "meter", text .. tokens .. ending .. "}")
end

local function read_chunk(m, chunk, size, s, at)
  make_light(chunk)
  local replaced = stream.feed(m, s, at)
  if size == 0 and m.hide then replaced = (replaced or "") .. stream.finish(m, at) end
  if replaced and (size > 0 or replaced ~= "") then chunk:setBytes(replaced) end
end

-- What is the same in every frame is kept in locals: see `frames.alike`.
local function meter_stream(h, m)
  local alike, lead, trail = frames.alike, nil, nil
  local chunks, count, last_at, gap, gap_at = 0, 0, nil, nil, nil -- since the last piece that was not alike
  local due = m.start + SAVE_EVERY
  for chunk in h:bodyChunks() do
    local at, size = now(h), chunk:length()
    local s = size > 0 and chunk:getBytes(0, size) or ""
    local n = lead and alike(s, lead, trail)
    if n then
      if at - last_at > gap then gap, gap_at = at - last_at, at end
      chunks, count, last_at = chunks + 1, count + n, at
    else
      stream.settle(m, chunks, count, last_at, gap, gap_at)
      local is_first = m.first_at == nil
      read_chunk(m, chunk, size, s, at)
      lead, trail = stream.usual(m)
      chunks, count, last_at, gap, gap_at = 0, 0, m.last_at, m.gap or -1, m.gap_at
      if is_first and m.first_at then due = at end
    end
    if at >= due then
      due = at + SAVE_EVERY
      stream.settle(m, chunks, count, last_at, gap, gap_at)
      chunks, count = 0, 0
      save(h, m, false, true)
    end
  end
  stream.settle(m, chunks, count, last_at, gap, gap_at)
  stream.finish(m, now(h))
  save(h, m, true, true)
end

local function meter_json(h, m)
  local parts, bytes = {}, 0
  for chunk in h:bodyChunks() do
    local size = chunk:length()
    bytes = bytes + size
    if size > 0 and bytes <= MAX_JSON_BYTES then parts[#parts + 1] = chunk:getBytes(0, size) end
  end
  if bytes > MAX_JSON_BYTES then return end
  stream.object(m, table.concat(parts), nil, now(h))
  m.chunks = #parts
  save(h, m, true, false)
end

local function show_variant(headers, h, debug)
  if not debug then
    headers:remove("x-weighlock-revision")
    return
  end
  local revision = headers:get("x-weighlock-revision")
  local cfg = config_of(h)
  if revision and cfg then headers:add("x-weighlock-variant", revision == cfg.candidate and "candidate" or "stable") end
end

function envoy_on_response(h)
  local t0, is_metered, hides, shows = arrival_of(h)
  if not t0 then return end
  local headers = h:headers()
  show_variant(headers, h, shows)
  if not is_metered or headers:get("content-encoding") then return end
  local content_type = headers:get("content-type") or ""
  if find(content_type, "text/event-stream", 1, true) then
    if hides then headers:remove("content-length") end
    return meter_stream(h, stream.new(t0, hides))
  end
  if find(content_type, "application/json", 1, true) then return meter_json(h, stream.new(t0, false)) end
end
