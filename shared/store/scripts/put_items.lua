-- KEYS: fence, plan, index, offered, leases, holders, deliveries, progress, queue...
-- ARGV: fence, num_queues, num_offered, item..., then per queue: count, item...
local fence = tonumber(ARGV[1])
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if fence < current then return {'stale', current} end
local put_by = tonumber(redis.call('HGET', KEYS[2], 'fence') or '-1')
if fence <= put_by then return {'ok', 0} end
redis.call('HSET', KEYS[2], 'fence', fence)
if put_by >= 0 then
  -- A newer owner goes on with the batch. Its predecessor's workers can commit nothing any more.
  for _, item in ipairs(redis.call('HKEYS', KEYS[6])) do redis.call('RPUSH', KEYS[4], item) end
  redis.call('DEL', KEYS[5], KEYS[6], KEYS[7], KEYS[8])
  return {'ok', 0}
end
redis.call('HSET', KEYS[2], 'queues', ARGV[2])
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
  push(KEYS[8 + shard], count)
end
return {'ok', 1}
