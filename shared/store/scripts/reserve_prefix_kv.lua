-- KEYS: versions   ARGV: key prefix, weights digest, budget_bytes, ttl_ms, blob, num_bytes, blob, num_bytes, ...
-- Notes the sizes of what is to be stored. Returns {{1 or 0 for each blob: whether it fits}, {blobs to delete}}.
-- For room, other versions go, the oldest first; those past their time go in any case.
local versions, prefix, own, ttl_ms = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4])
local budget = tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function size_of(version)
  local total = 0
  for _, size in ipairs(redis.call('HVALS', prefix .. version .. ':sizes')) do total = total + tonumber(size) end
  return total
end

local deleted = {}
local function drop(version)
  for _, blob in ipairs(redis.call('HKEYS', prefix .. version .. ':sizes')) do deleted[#deleted + 1] = blob end
  redis.call('UNLINK', prefix .. version .. ':sizes', prefix .. version .. ':handles')
  redis.call('ZREM', versions, version)
end

local others, of_others = {}, 0
for _, version in ipairs(redis.call('ZRANGE', versions, 0, -1)) do
  if version ~= own then
    if tonumber(redis.call('ZSCORE', versions, version)) < now - ttl_ms then
      drop(version)
    else
      others[#others + 1] = version
      of_others = of_others + size_of(version)
    end
  end
end

local sizes, oldest, fits = prefix .. own .. ':sizes', 1, {}
local of_own = size_of(own)
for at = 5, #ARGV, 2 do
  local blob, num_bytes = ARGV[at], tonumber(ARGV[at + 1])
  if redis.call('HEXISTS', sizes, blob) == 1 then
    fits[#fits + 1] = 1
  elseif of_own + num_bytes > budget then
    fits[#fits + 1] = 0
  else
    while of_own + of_others + num_bytes > budget do
      of_others = of_others - size_of(others[oldest])
      drop(others[oldest])
      oldest = oldest + 1
    end
    redis.call('HSET', sizes, blob, num_bytes)
    of_own = of_own + num_bytes
    fits[#fits + 1] = 1
  end
end
if of_own > 0 then
  redis.call('ZADD', versions, now, own)
  redis.call('PEXPIRE', versions, ttl_ms)
  redis.call('PEXPIRE', sizes, ttl_ms)
end
return {fits, deleted}
