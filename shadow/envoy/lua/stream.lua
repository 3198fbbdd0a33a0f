-- The meter's reading of a response: server-sent events cut at any byte, chunk objects, whole JSON bodies. Run by Envoy
-- on every response and by `weighlock read-stream` on files: one semantics. Times are whatever clock the caller passes.
-- It knows the framing; what frames and objects say is read by frames.lua and objects.lua.
local json, objects, frames = ...
local M = {}
local byte, find, sub, match = string.byte, string.find, string.sub, string.match
local is_table, note_error, note_tokens = objects.is_table, objects.note_error, objects.note_tokens
local MAX_EVENT_BYTES = 4 * 1024 * 1024

-- A fresh reading; it is made at its full size, so that it need not grow. hide_usage: swallow events that carry usage and no choices (see `feed`).
function M.new(start, hide_usage)
  return {
    start = start, hide = hide_usage, events = 0, content = 0, first_event = nil, chunks = 0,
    prompt = nil, output = nil, source = "none", finish = nil, done = false, err = nil, model = nil,
    first_at = nil, last_at = nil, gap = nil, gap_at = nil, gaps = 0,
    tail = "", line = 1, sent = 0, skip_lf = false, hid_last = false, data = nil, name = nil, head = false,
    lead = false, trail = false, lead_head = false, lead_shape = false, scanned = 1,
  }
end

-- One event with data. Returns whether it is a usage-only event.
local function read_event(m, data, name, now)
  if m.done then return false end
  m.events = m.events + 1
  local is_object = byte(data, 1) == 123
  if name == nil and is_object then
    local was_read, bare = frames.read(m, data, now)
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
  local bare = objects.read(m, o, name, now)
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
-- Adds what `alike` found in `chunks` pieces since the last piece that `feed` read: `frames` frames, the last one at
-- `last_at`; gap: the longest pause before any of them, which ended at `gap_at`. It is what `feed` would have noted.
function M.settle(m, chunks, count, last_at, gap, gap_at)
  if chunks == 0 then return end
  m.chunks, m.hid_last = m.chunks + chunks, false
  m.events, m.content, m.gaps = m.events + count, m.content + count, m.gaps + count
  if m.gap == nil or gap > m.gap then m.gap, m.gap_at = gap, gap_at end
  m.last_at = last_at
end

-- Reads `s` if it is usual; returns whether it was. Such bytes go to the client as they are.
function M.quick(m, s, now)
  local lead, trail = M.usual(m)
  local n = lead and frames.alike(s, lead, trail)
  if not n then return false end
  M.settle(m, 1, n, now, now - m.last_at, now)
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
