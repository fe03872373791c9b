-- KEYS: owner, fence, record   ARGV: owner, ttl_ms
-- Returns {fence, cancel_requested}; fence 0 while another owner is alive.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0, ''} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {redis.call('INCR', KEYS[2]), redis.call('HGET', KEYS[3], 'cancel') or ''}
