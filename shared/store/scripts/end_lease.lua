-- KEYS: leases, holders, deliveries, plan, index, offered, then the queue of each part
-- ARGV: owner, item, then per part: shard ('*': any), part
if redis.call('HGET', KEYS[2], ARGV[2]) ~= ARGV[1] then return 0 end
redis.call('ZREM', KEYS[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
if #ARGV == 2 then return 1 end
local count = tonumber(redis.call('HGET', KEYS[3], ARGV[2]) or '1') - 1
redis.call('HDEL', KEYS[3], ARGV[2])
local num_queues = tonumber(redis.call('HGET', KEYS[4], 'queues') or '0')
for part = 1, (#ARGV - 2) / 2 do
  local shard = tonumber(ARGV[1 + 2 * part])
  -- An actor that the batch does not have never comes for its queue.
  local queue = (shard and shard < num_queues) and KEYS[6 + part] or KEYS[6]
  redis.call('HSET', KEYS[3], ARGV[2 + 2 * part], count)
  redis.call('RPUSH', queue, ARGV[2 + 2 * part])
  redis.call('SADD', KEYS[5], queue, KEYS[3])
end
return 1
