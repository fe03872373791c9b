-- KEYS: fence, queues, index, offered, queue...   ARGV: fence, num_queues, num_offered, item..., then per queue: count, item...
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < current then return {'stale', current} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'ok', 0} end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SADD', KEYS[3], KEYS[2])
local at = 4
local function push(key, count)
  for _ = 1, count do
    redis.call('RPUSH', key, ARGV[at])
    at = at + 1
  end
  redis.call('SADD', KEYS[3], key)
end
push(KEYS[4], tonumber(ARGV[3]))
for shard = 1, tonumber(ARGV[2]) do
  local count = tonumber(ARGV[at])
  at = at + 1
  push(KEYS[4 + shard], count)
end
return {'ok', 1}
