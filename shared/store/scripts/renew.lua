-- KEYS: call, fence   ARGV: owner, fence, ttl_ms
-- Returns 1 if the claim is still the owner's, else 0.
if tonumber(redis.call('GET', KEYS[2]) or '0') > tonumber(ARGV[2]) then return 0 end
local call = redis.call('HMGET', KEYS[1], 'owner', 'reply')
if call[1] ~= ARGV[1] or call[2] then return 0 end
local time = redis.call('TIME')
redis.call('HSET', KEYS[1], 'expires', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[3]))
return 1
