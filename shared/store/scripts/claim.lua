-- KEYS: call, fence, index   ARGV: digest, owner, fence, ttl_ms
-- Returns {verdict, value}: granted | stored reply | busy ms | conflict | stale fence
local current = tonumber(redis.call('GET', KEYS[2]) or '0')
local fence = tonumber(ARGV[3])
if fence < current then return {'stale', current} end
local call = redis.call('HMGET', KEYS[1], 'digest', 'owner', 'expires', 'fence', 'reply')
if call[1] and call[1] ~= ARGV[1] then return {'conflict', 0} end
if call[5] then return {'stored', call[5]} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if call[2] and call[2] ~= ARGV[2] and tonumber(call[3]) > now and tonumber(call[4]) >= fence then
  return {'busy', tonumber(call[3]) - now}
end
redis.call('HSET', KEYS[1], 'digest', ARGV[1], 'owner', ARGV[2], 'expires', now + tonumber(ARGV[4]), 'fence', fence)
redis.call('SADD', KEYS[3], KEYS[1])
return {'granted', 0}
