-- The meter's reading of a response: server-sent events cut at any byte, chunk objects, whole JSON bodies. Run by Envoy
-- on every response and by `weighlock read-stream` on files: one semantics. Times are whatever clock the caller passes.
local json = ...
local M = {}
local NULL = json.null
local byte, find, sub, match, gsub, tonumber, type = string.byte, string.find, string.sub, string.match, string.gsub, tonumber, type
local MAX_EVENT_BYTES = 4 * 1024 * 1024
local MAX_SHAPES = 8

-- A fresh reading. hide_usage: swallow events that carry usage and no choices (see `feed`).
function M.new(start, hide_usage)
  return {
    start = start, hide = hide_usage, events = 0, content = 0, first_event = nil, chunks = 0,
    prompt = nil, output = nil, source = "none", finish = nil, done = false, err = nil, model = nil,
    first_at = nil, last_at = nil, gap = nil, gap_at = nil, gaps = 0,
    tail = "", line = 1, sent = 0, skip_lf = false, hid_last = false, data = nil, name = nil, head = nil,
    lead = nil, trail = nil,
  }
end

local function has_text(v)
  if type(v) == "string" then return v ~= "" end
  if type(v) ~= "table" or v == NULL then return false end
  if v.text ~= nil and has_text(v.text) then return true end
  if v.thinking ~= nil and has_text(v.thinking) then return true end
  if v.content ~= nil and has_text(v.content) then return true end
  if v.summary ~= nil and has_text(v.summary) then return true end
  for i = 1, #v do
    if has_text(v[i]) then return true end
  end
  return false
end

local function is_table(v) return type(v) == "table" and v ~= NULL end

local function is_filled(v)
  if type(v) == "string" then return v ~= "" end
  return is_table(v) and next(v) ~= nil
end

local function has_call(call)
  if not is_table(call) then return false end
  local f = is_table(call["function"]) and call["function"] or (is_table(call.custom) and call.custom) or call
  return is_filled(f.name) or is_filled(f.arguments) or is_filled(f.input)
end

local function delta_has_content(d)
  if has_text(d.content) or has_text(d.reasoning_content) or has_text(d.reasoning) then return true end
  if has_text(d.reasoning_details) or has_text(d.thinking) then return true end
  if is_table(d.tool_calls) then
    for i = 1, #d.tool_calls do
      if has_call(d.tool_calls[i]) then return true end
    end
  end
  return is_table(d.function_call) and has_call(d.function_call)
end

local function is_client_code(v)
  local n = tonumber(v)
  return n ~= nil and n >= 400 and n < 500
end

local CODES = { "code", "status_code", "status", "http_status_code", "statusCode", "http_status", "error_code" }

local function names_client_code(v)
  if not is_table(v) then return false end
  for i = 1, #CODES do
    local code = v[CODES[i]]
    if (type(code) == "number" or type(code) == "string") and is_client_code(code) then return true end
  end
  return false
end

local function note_error(m, detail, around)
  local class = (names_client_code(detail) or names_client_code(around)) and "client_error" or "server_error"
  m.err = m.err or class
  local text = detail
  if is_table(detail) then text = detail.message or detail.detail or detail.type or detail.code end
  if m.message == nil and (type(text) == "string" or type(text) == "number") then m.message = sub(tostring(text), 1, 300) end
end

local function note_finish(m, reason)
  if type(reason) == "string" and reason ~= "" then
    m.finish = reason
    if reason == "error" then note_error(m, "the finish reason is error", nil) end
  end
end

local function count_of(v)
  if type(v) == "number" and v >= 0 then return v end
  return nil
end

local function note_tokens(m, source, prompt, output)
  prompt, output = count_of(prompt), count_of(output)
  if (prompt == nil and output == nil) or (source == "engine" and m.source == "usage") then return end
  if source ~= m.source then m.prompt, m.output = nil, nil end
  m.source, m.prompt, m.output = source, prompt or m.prompt, output or m.output
end

local function note_usage(m, u)
  if is_table(u) then note_tokens(m, "usage", u.prompt_tokens or u.input_tokens, u.completion_tokens or u.output_tokens) end
end

local function note_content(m, now)
  m.content = m.content + 1
  if m.first_event == nil then
    m.first_event, m.first_at = m.events - 1, now
  else
    local gap = now - m.last_at
    m.gaps = m.gaps + 1
    if m.gap == nil or gap > m.gap then m.gap, m.gap_at = gap, now end
  end
  m.last_at = now
end

local function read_choices(m, choices)
  local content = false
  for i = 1, #choices do
    local c = choices[i]
    if is_table(c) then
      if is_table(c.delta) and delta_has_content(c.delta) then content = true end
      if is_table(c.message) and delta_has_content(c.message) then content = true end
      if has_text(c.text) then content = true end
      note_finish(m, c.finish_reason)
      note_usage(m, c.usage)
      if c.error ~= nil and c.error ~= NULL then note_error(m, c.error, c) end
    end
  end
  return content
end

-- Protocols that name their events by `type`: Anthropic messages and OpenAI responses. Returns content, terminator.
local function read_typed(m, o)
  local kind = o.type
  if kind == "content_block_delta" then
    local d = is_table(o.delta) and o.delta or {}
    return has_text(d.text) or has_text(d.thinking) or is_filled(d.partial_json), false
  elseif kind == "content_block_start" then
    local b = is_table(o.content_block) and o.content_block or {}
    return has_text(b.text) or has_text(b.thinking) or is_filled(b.name), false
  elseif kind == "message_start" then
    if is_table(o.message) then note_usage(m, o.message.usage) end
  elseif kind == "message_delta" then
    if is_table(o.delta) then note_finish(m, o.delta.stop_reason) end
  elseif kind == "message_stop" then
    return false, true
  elseif kind == "message" then
    note_finish(m, o.stop_reason)
    return has_text(o.content), false
  elseif find(kind, "^response%.") then
    if is_table(o.response) then note_usage(m, o.response.usage) end
    if kind == "response.failed" then note_error(m, is_table(o.response) and o.response.error or o, o) end
    local ended = kind == "response.completed" or kind == "response.incomplete" or kind == "response.failed"
    return find(kind, "%.delta$") ~= nil and is_filled(o.delta), ended
  end
  return false, false
end

-- Native streams of llama.cpp, TGI and Ollama, which have no `choices`.
local function read_native(m, o)
  local content = false
  if is_table(o.token) then content = has_text(o.token.text) and o.token.special ~= true end
  if is_table(o.details) then
    note_finish(m, o.details.finish_reason)
    note_tokens(m, "engine", nil, o.details.generated_tokens)
  end
  if type(o.content) == "string" and o.stop ~= nil then content = o.content ~= "" end
  if o.stop == true then note_finish(m, type(o.stop_type) == "string" and o.stop_type or "stop") end
  note_tokens(m, "engine", o.tokens_evaluated or o.prompt_eval_count, o.tokens_predicted or o.eval_count)
  if type(o.response) == "string" and o.done ~= nil then content = o.response ~= "" end
  if is_table(o.message) and o.done ~= nil then content = delta_has_content(o.message) end
  if o.done == true then note_finish(m, type(o.done_reason) == "string" and o.done_reason or "stop") end
  if o.text ~= nil and is_table(o.meta_info) then
    content = has_text(o.text)
    local reason = o.meta_info.finish_reason
    note_finish(m, is_table(reason) and reason.type or reason)
    note_tokens(m, "engine", o.meta_info.prompt_tokens, o.meta_info.completion_tokens)
  end
  return content
end

-- One decoded chunk object. Returns whether it carries usage and nothing else.
local function read_object(m, o, name, now)
  if o.error ~= nil and o.error ~= NULL and o.error ~= false and o.error ~= "" then
    note_error(m, o.error, o)
  elseif name == "error" or o.object == "error" or o.type == "error" then
    note_error(m, o, nil)
  end
  local content, ended, bare = false, false, false
  if is_table(o.choices) then
    content = read_choices(m, o.choices)
    bare = #o.choices == 0 and is_table(o.usage)
  else
    if type(o.type) == "string" then content, ended = read_typed(m, o) end
    if read_native(m, o) then content = true end
  end
  note_usage(m, o.usage)
  if is_table(o.x_groq) then note_usage(m, o.x_groq.usage) end
  if is_table(o.timings) then note_tokens(m, "engine", o.timings.prompt_n, o.timings.predicted_n) end
  if m.model == nil and type(o.model) == "string" and o.model ~= "" and #o.model <= 200 then m.model = o.model end
  if content then note_content(m, now) end
  if ended then m.done = true end
  return bare, content
end

-- Frames of one stream begin alike: `{"id":...,"model":...,` and then `"choices":`. Such a beginning is read once per
-- stream. What follows repeats over all streams but for its text, so it is looked up among what was read before: an
-- equal rest means the same, and so does a rest that differs in one non-empty string.
local HEAD_KEYS = { id = true, object = true, created = true, model = true, system_fingerprint = true, service_tier = true, provider = true }
local TEXT_KEYS = { '"content":"', '"text":"', '"reasoning_content":"', '"reasoning":"', '"content": "', '"text": "' }
local MAX_KNOWN = 256
local shapes, shapes_next = {}, 0 -- {before, after} of rests that carry text and nothing else that counts
local rests, rests_n = {}, 0 -- rests that carry no text: rest -> {finish reason}

-- Whether a beginning holds nothing that counts but the model's name.
local function is_plain_head(m, head)
  if head == m.head then return true end
  local o = json.decode(sub(head, 1, -2) .. "}")
  if not is_table(o) or o.object == "error" then return false end
  for key in pairs(o) do
    if not HEAD_KEYS[key] then return false end
  end
  m.head = head
  if m.model == nil and type(o.model) == "string" and o.model ~= "" and #o.model <= 200 then m.model = o.model end
  return true
end

local function known_text(rest)
  local n = #rest
  for i = 1, #shapes do
    local shape = shapes[i]
    local before, after = shape.before, shape.after
    local close = n - #after + 1
    if close > #before + 1 and sub(rest, 1, #before) == before and find(rest, '"', #before + 1, true) == close
      and byte(rest, close - 1) ~= 92 and sub(rest, close) == after then
      return shape
    end
  end
  return nil
end

-- Remembers what stands around the text in a frame of this stream, for `alike`.
local function remember_frame(m, beginning, shape)
  if m.lead_head == m.head and m.lead_shape == shape then return end
  m.lead_head, m.lead_shape, m.lead = m.head, shape, nil
  local lead, trail = "data: " .. beginning .. shape.before, shape.after .. "\n\n"
  if find(lead, "[\r\n]") or find(shape.after, "[\r\n]") then return end
  m.lead, m.trail = lead, trail
end

local function learn_text(rest)
  for i = 1, #TEXT_KEYS do
    local _, e = find(rest, TEXT_KEYS[i], 1, true)
    if e and byte(rest, e + 1) ~= 34 then
      local close = find(rest, '"', e + 1, true)
      if close and byte(rest, close - 1) ~= 92 then
        shapes_next = shapes_next % MAX_SHAPES + 1
        shapes[shapes_next] = { before = sub(rest, 1, e), after = sub(rest, close) }
        return
      end
    end
  end
end

local function learn_rest(rest, finish)
  if rests_n >= MAX_KNOWN then rests, rests_n = {}, 0 end
  rests[rest], rests_n = { finish = finish }, rests_n + 1
end

-- A frame of the usual make. Returns whether it was read here, and whether it is usage only.
local function read_usual(m, data, now)
  local at = find(data, '"choices":', 1, true)
  if not at then return false end
  local comma = at - 1
  while byte(data, comma) == 32 do comma = comma - 1 end
  if comma < 2 or byte(data, comma) ~= 44 or not is_plain_head(m, sub(data, 1, comma)) then return false end
  local rest = sub(data, at)
  local known = rests[rest]
  if known then
    if known.finish then m.finish = known.finish end
    return true, false
  end
  local shape = known_text(rest)
  if shape then
    remember_frame(m, sub(data, 1, at - 1), shape)
    note_content(m, now)
    return true, false
  end
  local o = json.decode("{" .. rest)
  if not is_table(o) then return false end
  local err, source, prompt, output = m.err, m.source, m.prompt, m.output
  local finish = m.finish
  m.finish = nil
  local bare, content = read_object(m, o, nil, now)
  local own = m.finish
  m.finish = own or finish
  if m.err == err and m.source == source and m.prompt == prompt and m.output == output and not m.done
    and not is_table(o.usage) and o.error == nil then
    if not content then learn_rest(rest, own) elseif not own then learn_text(rest) end
  end
  return true, bare and not m.err
end

-- One event with data. Returns whether it is a usage-only event.
local function read_event(m, data, name, now)
  if m.done then return false end
  m.events = m.events + 1
  local is_object = byte(data, 1) == 123
  if name == nil and is_object then
    local was_read, bare = read_usual(m, data, now)
    if was_read then return bare end
  end
  if not is_object and match(data, "^%s*(.-)%s*$") == "[DONE]" then
    m.done = true
    return false
  end
  local o = json.decode(data)
  if not is_table(o) then
    if name == "error" then note_error(m, data, nil) end
    return false
  end
  local bare = read_object(m, o, name, now)
  if name == "message_stop" then m.done = true end
  return bare and not m.err
end

-- A comment line: some engines put token counters there.
function M.comment(m, text)
  if m.done or not find(text, "output_tokens", 1, true) then return end
  local o = json.decode(match(text, "^%s*(.-)%s*$"))
  if is_table(o) then note_tokens(m, "engine", o.input_tokens, o.output_tokens) end
end

-- One chunk object (or whole body) as text, outside of SSE framing.
function M.object(m, text, name, now)
  return read_event(m, text, name, now)
end

local function read_line(m, s, from, to)
  local c = byte(s, from)
  if c == 239 and sub(s, from, from + 2) == "\239\187\191" then
    from = from + 3
    c = byte(s, from)
  end
  if c == 58 then return M.comment(m, sub(s, from + 1, to)) end
  if c == 100 and sub(s, from, from + 3) == "data" then
    local n = byte(s, from + 4)
    if n == 58 then
      local start = byte(s, from + 5) == 32 and from + 6 or from + 5
      local text = sub(s, start, to)
      m.data = m.data and (m.data .. "\n" .. text) or text
    elseif from + 3 == to then
      m.data = m.data and (m.data .. "\n") or ""
    end
  elseif c == 101 and sub(s, from, from + 5) == "event:" then
    m.name = match(sub(s, from + 6, to), "^%s*(.-)%s*$")
  end
end

-- Ends the event at hand; returns whether it is usage only.
local function end_event(m, now)
  local data, name = m.data, m.name
  m.data, m.name = nil, nil
  if data == nil or data == "" then return false end
  if name == "message" or name == "" or name == "llm_metrics" then name = nil end
  return read_event(m, data, name, now)
end

-- Whether an unfinished event may still turn out to be usage only (then its bytes must wait).
local function may_be_usage(tail)
  if tail == "" or find(tail, "[DONE", 1, true) then return false end
  return not find(tail, '"choices"%s*:%s*%[%s*[^%]%s]')
end

-- What stands before and after the text in this stream's usual frames; nil where the next bytes need `feed`.
function M.usual(m)
  if m.done or m.tail ~= "" or m.skip_lf or m.data ~= nil or m.name ~= nil then return nil end
  return m.lead, m.trail
end

-- How many frames `s` is, where it is nothing but whole frames with text, alike but for that text: most of what engines
-- send. nil for everything else. It builds no string and touches no table: with hundreds of streams at once, what a
-- stream keeps in memory has left the processor's cache between two of its frames.
function M.alike(s, lead, trail)
  if find(s, "\r", 1, true) then return nil end
  local lead_n, trail_n, n = #lead, #trail, #s
  local i, frames = 1, 0
  repeat
    if find(s, lead, i, true) ~= i then return nil end
    local text = i + lead_n
    local quote = find(s, '"', text, true)
    if quote == nil or quote == text or byte(s, quote - 1) == 92 then return nil end
    local after = quote + trail_n
    if find(s, trail, quote, true) ~= quote or find(s, "\n", text, true) ~= after - 2 then return nil end
    i, frames = after, frames + 1
  until i > n
  return frames
end

-- Adds what `alike` found in `chunks` pieces since the last piece that `feed` read: `frames` frames, the last one at
-- `last_at`; gap: the longest pause before any of them, which ended at `gap_at`. It is what `feed` would have noted.
function M.settle(m, chunks, frames, last_at, gap, gap_at)
  if chunks == 0 then return end
  m.chunks, m.hid_last = m.chunks + chunks, false
  m.events, m.content, m.gaps = m.events + frames, m.content + frames, m.gaps + frames
  if m.gap == nil or gap > m.gap then m.gap, m.gap_at = gap, gap_at end
  m.last_at = last_at
end

-- Reads `s` if it is usual; returns whether it was. Such bytes go to the client as they are.
function M.quick(m, s, now)
  local lead, trail = M.usual(m)
  local frames = lead and M.alike(s, lead, trail)
  if not frames then return false end
  M.settle(m, 1, frames, now, now - m.last_at, now)
  return true
end

-- Reads the next bytes of an event stream. Returns nil where they may go to the client as they are, else the bytes
-- to send in their place (only in a reading made with hide_usage).
function M.feed(m, s, now)
  m.chunks = m.chunks + 1
  local buf, fresh = s, m.tail == ""
  if not fresh then buf = m.tail .. s end
  local line, event, from = m.line, 1, m.sent + 1
  local out, changed = nil, not fresh and m.sent < #m.tail
  if m.skip_lf and #s > 0 then
    if byte(s, 1) == 10 then
      line = line + 1
      if fresh then event = 2 end
      if fresh and m.hid_last then from, changed, out = from + 1, true, "" end
    end
    m.skip_lf = false
  end
  local has_cr = find(s, "\r", 1, true) or (not fresh and find(m.tail, "\r", 1, true))
  local size = #buf
  local scan = line
  if not has_cr and m.scanned and m.scanned > scan then scan = m.scanned end
  while true do
    local stop = find(buf, has_cr and "[\r\n]" or "\n", scan, not has_cr)
    if not stop then break end
    local after = stop + 1
    if has_cr and byte(buf, stop) == 13 then
      if byte(buf, after) == 10 then after = after + 1 elseif after > size then m.skip_lf = true end
    end
    if stop > line then
      read_line(m, buf, line, stop - 1)
    else
      local bare = end_event(m, now)
      m.hid_last = false
      if bare and m.hide and from <= event then
        out, from, changed, m.hid_last = (out or "") .. sub(buf, from, event - 1), after, true, true
      end
      event = after
    end
    line, scan = after, after
  end
  if size - line > MAX_EVENT_BYTES then line, event = size + 1, size + 1 end
  local keep = m.hide and event or line
  local result = nil
  local upto = size
  if m.hide and may_be_usage(sub(buf, event)) and from <= event then upto, changed = event - 1, changed or event <= size end
  if m.hide and changed then result = (out or "") .. sub(buf, from, upto) end
  m.tail = sub(buf, keep)
  m.line, m.scanned = line - keep + 1, size - keep + 2
  m.sent = upto - keep + 1
  if m.sent < 0 then m.sent = 0 end
  return result
end

-- The end of the stream: an event without its blank line counts when it is whole. Returns bytes still held back.
function M.finish(m, now)
  local rest = m.hide and sub(m.tail, m.sent + 1) or ""
  if m.line <= #m.tail then read_line(m, m.tail, m.line, #m.tail) end
  local data = m.data
  if data ~= nil and data ~= "" then
    local whole = match(data, "^%s*(.-)%s*$") == "[DONE]" or json.decode(data) ~= nil
    if whole and end_event(m, now) then rest = "" end
  end
  m.tail, m.line, m.sent, m.data, m.scanned = "", 1, 0, nil, nil
  return rest
end

-- How the response ended, going by its body alone.
function M.outcome(m)
  if m.err then return m.err end
  if not m.done and not m.finish then return "truncated" end
  if m.content == 0 then return "empty" end
  return "ok"
end

return M
