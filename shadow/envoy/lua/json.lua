-- JSON reading for the meter and the request inspection. Strings stay as they are written (escapes untouched): nothing
-- here needs their text, only whether there is any. A malformed text is an error that the callers turn into nil.
local M = {}
local byte, find, match, sub, tonumber = string.byte, string.find, string.match, string.sub, tonumber
local MAX_DEPTH = 200

M.null = setmetatable({}, { __tostring = function() return "null" end })
local NULL = M.null

local function skip_blanks(s, i)
  local c = byte(s, i)
  while c == 32 or c == 10 or c == 13 or c == 9 do
    i = i + 1
    c = byte(s, i)
  end
  return i
end

-- Position of the quote that closes the string whose first character is at `i`.
local function string_end(s, i)
  local from = i
  while true do
    local quote = find(s, '"', from, true)
    if not quote then error("json: a string does not end") end
    local back = quote - 1
    while back >= i and byte(s, back) == 92 do back = back - 1 end
    if (quote - 1 - back) % 2 == 0 then return quote end
    from = quote + 1
  end
end

local value

local function object(s, i, depth)
  local found = {}
  i = skip_blanks(s, i)
  if byte(s, i) == 125 then return found, i + 1 end
  while true do
    if byte(s, i) ~= 34 then error("json: a key is missing") end
    local quote = string_end(s, i + 1)
    local key = sub(s, i + 1, quote - 1)
    i = skip_blanks(s, quote + 1)
    if byte(s, i) ~= 58 then error("json: a colon is missing") end
    found[key], i = value(s, skip_blanks(s, i + 1), depth)
    i = skip_blanks(s, i)
    local c = byte(s, i)
    if c == 125 then return found, i + 1 end
    if c ~= 44 then error("json: an object does not end") end
    i = skip_blanks(s, i + 1)
  end
end

local function array(s, i, depth)
  local found, n = {}, 0
  i = skip_blanks(s, i)
  if byte(s, i) == 93 then return found, i + 1 end
  while true do
    n = n + 1
    found[n], i = value(s, i, depth)
    i = skip_blanks(s, i)
    local c = byte(s, i)
    if c == 93 then return found, i + 1 end
    if c ~= 44 then error("json: an array does not end") end
    i = skip_blanks(s, i + 1)
  end
end

function value(s, i, depth)
  if depth > MAX_DEPTH then error("json: nested too deeply") end
  local c = byte(s, i)
  if c == 34 then
    local quote = string_end(s, i + 1)
    return sub(s, i + 1, quote - 1), quote + 1
  elseif c == 123 then
    return object(s, i + 1, depth + 1)
  elseif c == 91 then
    return array(s, i + 1, depth + 1)
  elseif c == 116 and sub(s, i, i + 3) == "true" then
    return true, i + 4
  elseif c == 102 and sub(s, i, i + 4) == "false" then
    return false, i + 5
  elseif c == 110 and sub(s, i, i + 3) == "null" then
    return NULL, i + 4
  end
  local number = match(s, "^-?%d+%.?%d*[eE]?[+-]?%d*", i)
  local n = number and tonumber(number)
  if not n then error("json: not a value") end
  return n, i + #number
end

local function whole(s)
  local v, i = value(s, skip_blanks(s, 1), 0)
  if skip_blanks(s, i) <= #s then error("json: something follows the value") end
  return v
end

-- The value of a JSON text, or nil where it is none.
function M.decode(s)
  local ok, v = pcall(whole, s)
  if ok then return v end
  return nil
end

local function skip_value(s, i)
  local c = byte(s, i)
  if c == 34 then return string_end(s, i + 1) + 1 end
  if c ~= 123 and c ~= 91 then
    local _, e = find(s, "^[%w%.+-]+", i)
    if not e then error("json: not a value") end
    return e + 1
  end
  local depth = 0
  repeat
    c = byte(s, i)
    if c == 34 then
      i = string_end(s, i + 1)
    elseif c == 123 or c == 91 then
      depth = depth + 1
    elseif c == 125 or c == 93 then
      depth = depth - 1
    elseif not c then
      error("json: a value does not end")
    end
    i = i + 1
  until depth == 0
  return i
end

local function scan(s)
  local found = {}
  local i = skip_blanks(s, 1)
  if byte(s, i) ~= 123 then error("json: not an object") end
  i = skip_blanks(s, i + 1)
  if byte(s, i) == 125 then return found end
  while true do
    if byte(s, i) ~= 34 then error("json: a key is missing") end
    local quote = string_end(s, i + 1)
    local key = sub(s, i + 1, quote - 1)
    i = skip_blanks(s, quote + 1)
    if byte(s, i) ~= 58 then error("json: a colon is missing") end
    local from = skip_blanks(s, i + 1)
    i = skip_value(s, from)
    found[key] = { from, i - 1 } -- a key that comes twice: the last one counts, as in every engine
    i = skip_blanks(s, i)
    local c = byte(s, i)
    if c == 125 then return found end
    if c ~= 44 then error("json: an object does not end") end
    i = skip_blanks(s, i + 1)
  end
end

-- Where the values of an object's own keys stand: {key = {first, last}}; nil where the text is no object. It builds no
-- values, so that a long prompt costs one pass.
function M.top(s)
  local ok, found = pcall(scan, s)
  if ok then return found end
  return nil
end

return M
