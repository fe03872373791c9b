-- KEYS: owner, fence, record   ARGV: owner, ttl_ms
-- Returns {fence, cancel_requested}; fence 0 if the ownership is lost.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0, ''} end
-- Expired, yet nobody took over: the fence is still this owner's if no one raised it, which only acquire does.
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {tonumber(redis.call('GET', KEYS[2]) or '0'), redis.call('HGET', KEYS[3], 'cancel') or ''}
