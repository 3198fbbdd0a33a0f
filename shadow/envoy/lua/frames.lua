-- Frames of the usual make, read without decoding them. Called by stream.lua with one event's data, and by gate.lua with
-- whole pieces (`alike`). It knows how frames repeat, not how they are cut; whatever it does not know for certain it
-- leaves to objects.lua. `m` is the reading of stream.lua.
local json, objects = ...
local M = {}
local byte, find, sub, match, tonumber, type = string.byte, string.find, string.sub, string.match, tonumber, type
local is_table, note_content, note_model, note_tokens = objects.is_table, objects.note_content, objects.note_model, objects.note_tokens

-- Frames of one stream begin alike: `{"id":...,"model":...,` and then `"choices":`. Such a beginning is read once per
-- stream. What follows repeats over all streams but for its text, so it is looked up among what was read before: an
-- equal rest means the same, and so does a rest that differs in one non-empty string.
local HEAD_KEYS = { id = true, object = true, created = true, model = true, system_fingerprint = true, service_tier = true, provider = true }
local TEXT_KEYS = { '"content":"', '"text":"', '"reasoning_content":"', '"reasoning":"', '"content": "', '"text": "' }
local MAX_KNOWN, MAX_SHAPES = 256, 8
local shapes, shapes_next = {}, 0 -- what stands around the text in rests that carry text and nothing else that counts
local rests, rests_n = {}, 0 -- rests that carry no text: rest -> {finish reason}

-- How most engines begin; and how they tell usage, in the orders that are about.
local HEAD = '^{"id": ?"[^"\\]*", ?"object": ?"([^"\\]*)", ?"created": ?%d+, ?"model": ?"([^"\\]*)",$'
local USAGE = '^"choices": ?%[%], ?"usage": ?{"prompt_tokens": ?(%d+), ?([^{}]*)}}$'
local OUTPUT = { '^"completion_tokens": ?(%d+)$', '^"total_tokens": ?%d+, ?"completion_tokens": ?(%d+)$', '^"completion_tokens": ?(%d+), ?"total_tokens": ?%d+$' }

-- The model that a beginning names, "" where it names none; nil where it holds something else that counts.
local function model_of(head)
  local kind, model = match(head, HEAD)
  if kind then return kind ~= "error" and model or nil end
  local o = json.decode(sub(head, 1, -2) .. "}")
  if not is_table(o) or o.object == "error" then return nil end
  for key in pairs(o) do
    if not HEAD_KEYS[key] then return nil end
  end
  return type(o.model) == "string" and o.model or ""
end

local function is_plain_head(m, head)
  if head == m.head then return true end
  local model = model_of(head)
  if not model then return false end
  m.head = head
  note_model(m, model)
  return true
end

local function known_text(rest)
  local n = #rest
  for i = 1, #shapes do
    local shape = shapes[i]
    local text, close = shape.text, n - shape.after_n + 1
    if close > text and find(rest, shape.before, 1, true) == 1 and find(rest, '"', text, true) == close
      and byte(rest, close - 1) ~= 92 and find(rest, shape.after, close, true) == close then
      return shape
    end
  end
  return nil
end

local function has_line_end(text) return find(text, "\n", 1, true) or find(text, "\r", 1, true) end

-- Remembers what stands around the text in a frame of this stream, for `alike`.
local function remember_frame(m, beginning, shape)
  if m.lead_head == m.head and m.lead_shape == shape then return end
  m.lead_head, m.lead_shape, m.lead = m.head, shape, false
  if not shape.is_one_line or has_line_end(beginning) then return end
  m.lead, m.trail = "data: " .. beginning .. shape.before, shape.trail
end

local function learn_text(rest)
  for i = 1, #TEXT_KEYS do
    local _, e = find(rest, TEXT_KEYS[i], 1, true)
    if e and byte(rest, e + 1) ~= 34 then
      local close = find(rest, '"', e + 1, true)
      if close and byte(rest, close - 1) ~= 92 then
        shapes_next = shapes_next % MAX_SHAPES + 1
        local before, after = sub(rest, 1, e), sub(rest, close)
        shapes[shapes_next] = {
          before = before, text = e + 1, after = after, after_n = #after, trail = after .. "\n\n",
          is_one_line = not has_line_end(before) and not has_line_end(after),
        }
        return
      end
    end
  end
end

local function learn_rest(rest, finish)
  if rests_n >= MAX_KNOWN then rests, rests_n = {}, 0 end
  rests[rest], rests_n = { finish = finish }, rests_n + 1
end

-- Whether a rest tells usage and nothing else; notes it.
local function read_usage(m, rest)
  local prompt, counts = match(rest, USAGE)
  for i = 1, prompt and #OUTPUT or 0 do
    local output = match(counts, OUTPUT[i])
    if output then
      note_tokens(m, "usage", tonumber(prompt), tonumber(output))
      return true
    end
  end
  return false
end

-- Reads a rest of no known make, and learns it where it may come again. Returns whether it was read, and whether it is
-- usage only.
local function read_rest(m, rest, now)
  local o = json.decode("{" .. rest)
  if not is_table(o) then return false end
  local err, source, prompt, output = m.err, m.source, m.prompt, m.output
  local finish = m.finish
  m.finish = nil
  local bare, content = objects.read(m, o, nil, now)
  local own = m.finish
  m.finish = own or finish
  if m.err == err and m.source == source and m.prompt == prompt and m.output == output and not m.done
    and not is_table(o.usage) and o.error == nil then
    if not content then learn_rest(rest, own) elseif not own then learn_text(rest) end
  end
  return true, bare and not m.err
end

-- A frame of the usual make. Returns whether it was read here, and whether it is usage only.
function M.read(m, data, now)
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
  if read_usage(m, rest) then return true, not m.err end
  return read_rest(m, rest, now)
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

return M
