-- SHA-256 (FIPS 180-4): tenants named by API key are known by a digest of it, never by the key. LuaJIT only.
local bit = require("bit")
local band, bnot, bxor, ror, rshift, tobit = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift, bit.tobit
local char, byte, rep, format = string.char, string.byte, string.rep, string.format

local function fraction_bits(x) return tobit(math.floor((x - math.floor(x)) * 4294967296)) end

-- Round constants: the first 32 bits of the fractional parts of the cube roots (K) and square roots (H) of the primes.
local K, H = {}, {}
do
  local n = 2
  while #K < 64 do
    local is_prime = true
    for d = 2, n - 1 do
      if n % d == 0 then is_prime = false break end
    end
    if is_prime then
      local root = n ^ (1 / 3)
      root = root - (root * root * root - n) / (3 * root * root) -- one Newton step: 32 bits must be right
      K[#K + 1] = fraction_bits(root)
      if #H < 8 then H[#H + 1] = fraction_bits(math.sqrt(n)) end
    end
    n = n + 1
  end
end

local function block(h, s, at, w)
  for i = 1, 16 do
    local a, b, c, d = byte(s, at + 4 * i - 4, at + 4 * i - 1)
    w[i] = tobit(a * 16777216 + b * 65536 + c * 256 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
    w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
  end
  local a, b, c, d, e, f, g, k = h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8]
  for i = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local t1 = tobit(k + s1 + bxor(band(e, f), band(bnot(e), g)) + K[i] + w[i])
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local t2 = tobit(s0 + bxor(band(a, b), band(a, c), band(b, c)))
    k, g, f, e, d, c, b, a = g, f, e, tobit(d + t1), c, b, a, tobit(t1 + t2)
  end
  h[1], h[2], h[3], h[4] = tobit(h[1] + a), tobit(h[2] + b), tobit(h[3] + c), tobit(h[4] + d)
  h[5], h[6], h[7], h[8] = tobit(h[5] + e), tobit(h[6] + f), tobit(h[7] + g), tobit(h[8] + k)
end

-- Lower-case hexadecimal digest of `s` (below 512 MiB).
return function(s)
  local bits = #s * 8
  local length = char(0, 0, 0, 0, math.floor(bits / 16777216) % 256, math.floor(bits / 65536) % 256, math.floor(bits / 256) % 256, bits % 256)
  local padded = s .. "\128" .. rep("\0", (55 - #s) % 64) .. length
  local h, w = { H[1], H[2], H[3], H[4], H[5], H[6], H[7], H[8] }, {}
  for at = 1, #padded, 64 do block(h, padded, at, w) end
  local out = {}
  for i = 1, 8 do out[i] = bit.tohex(h[i]) end
  return table.concat(out)
end
