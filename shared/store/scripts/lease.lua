-- KEYS: fence, leases, holders, deliveries, index, own queue, offered, other queues...
-- ARGV: owner, fence, ttl_ms, max_items, max_deliveries
-- Returns {verdict, elsewhere, poisoned, item, delivery, item, delivery, ...}
local current = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[2]) < current then return {'stale', current, ''} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expires = now + tonumber(ARGV[3])
local poisoned = ''
local out = {}
local function hand_out(item)
  local delivery = redis.call('HINCRBY', KEYS[4], item, 1)
  if delivery > tonumber(ARGV[5]) then
    redis.call('HINCRBY', KEYS[4], item, -1)
    poisoned = item
    return
  end
  redis.call('ZADD', KEYS[2], expires, item)
  redis.call('HSET', KEYS[3], item, ARGV[1])
  out[#out + 1] = item
  out[#out + 1] = delivery
end
-- Leases that the worker's own earlier attempts or dead workers left behind come first: they are the oldest.
for _, item in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, tonumber(ARGV[4]))) do
  if #out / 2 < tonumber(ARGV[4]) then hand_out(item) end
end
for key = 6, #KEYS do
  while #out / 2 < tonumber(ARGV[4]) do
    local item = redis.call('LPOP', KEYS[key])
    if not item then break end
    hand_out(item)
  end
end
redis.call('SADD', KEYS[5], KEYS[2], KEYS[3], KEYS[4])
local elsewhere = 0
local holders = redis.call('HVALS', KEYS[3])
for _, holder in ipairs(holders) do
  if holder ~= ARGV[1] then elsewhere = elsewhere + 1 end
end
local reply = {'ok', elsewhere, poisoned}
for _, value in ipairs(out) do reply[#reply + 1] = value end
return reply
