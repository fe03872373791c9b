-- KEYS: samples   ARGV: field...
-- Returns the beginning of each value up to the end of its safetensors header, or an empty text where there is none. A
-- file starts with the header's length: 8 bytes, little-endian, of which 4 are more than enough.
local out = {}
for at = 1, #ARGV do
  local value = redis.call('HGET', KEYS[1], ARGV[at]) or ''
  local length = 0
  if #value >= 8 then length = struct.unpack('<I4', value) end
  out[at] = string.sub(value, 1, 8 + length)
end
return out
