-- What one chunk object of a stream says: content, finish reason, usage, errors, in every dialect that engines speak.
-- Called by frames.lua and stream.lua with a decoded object; it knows neither bytes nor framing. `m` is the reading of
-- stream.lua, whose fields are noted here; times are whatever clock the caller passes.
local json = ...
local M = {}
local NULL = json.null
local find, sub, tonumber, type = string.find, string.sub, tonumber, type

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
  if type(v) == "number" and v >= 0 and v < 2 ^ 53 then return v end
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

local function note_model(m, model)
  if m.model == nil and model ~= "" and #model <= 200 then m.model = model end
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
function M.read(m, o, name, now)
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
  if type(o.model) == "string" then note_model(m, o.model) end
  if content then note_content(m, now) end
  if ended then m.done = true end
  return bare, content
end

M.is_table, M.note_error, M.note_tokens = is_table, note_error, note_tokens
M.note_content, M.note_model = note_content, note_model
return M
